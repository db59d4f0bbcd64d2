"""Which checkpoints stand in a run's folder `checkpoints/`, by their names; no JAX."""

import os
import pathlib
import re

MANIFEST = 'manifest.json'  # of a checkpoint: it is finished
STEP = re.compile('[1-9][0-9]*')  # the name of a checkpoint's folder
ASIDE = '.damaged'  # ends the name of a damaged one, which is left for the user


def steps(checkpoints: pathlib.Path) -> list[int]:
  """The steps that have a finished checkpoint, ascending."""
  return [s for s in numbered(checkpoints) if flaw(checkpoints / str(s)) is None]


def flaw(path: pathlib.Path) -> str | None:
  """Why what stands there is no finished checkpoint; None if it is one."""
  if path.is_symlink():
    return 'is a link'
  if (path / MANIFEST).is_file():
    return None
  if path.exists():
    return f'has no {MANIFEST}'
  aside = path.with_name(path.name + ASIDE)
  return f'is set aside as {aside}' if aside.exists() else 'is not there'


def numbered(checkpoints: pathlib.Path) -> list[int]:
  """The steps that entries of the folder are named by, ascending, finished or not."""
  names = os.listdir(checkpoints) if checkpoints.exists() else []
  return sorted(int(name) for name in names if STEP.fullmatch(name))


def misnumbered(checkpoints: pathlib.Path) -> list[str]:
  """Names there that look like a step's and are none, such as 075."""
  names = os.listdir(checkpoints) if checkpoints.exists() else []
  return sorted(name for name in names if name.isdigit() and not STEP.fullmatch(name))
