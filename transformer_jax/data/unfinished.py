"""Work on a corpus that is not finished: the folder NAME.partial.

`begun.json` is made first in it and deleted last: what has no such file was not made
here, and is left alone. A stage's marker, another file there, is written when the stage
is done, so that a preparation that was stopped goes on after it.
"""

import contextlib
import errno
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from transformer_jax.data import origin
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.origin import Splits
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

_BEGUN = 'begun.json'


def begin(corpus: Corpus, splits: Splits, partial: pathlib.Path) -> pathlib.Path:
  """The folder to be filled; what is left of another corpus or input is deleted."""
  asked = {'corpus': corpus.as_json(), 'stamps': origin.stamps(splits)}
  folder = partial / 'corpus'
  if not folder.is_dir() or begun_with(partial) != asked:  # no folder: see is_left_over
    remove(partial)
    partial.mkdir()
    files.write(partial / _BEGUN, json.dumps(asked))
    folder.mkdir()
  return folder


def begun_with(partial: pathlib.Path) -> dict | None:
  """The corpus and the input that a preparation was begun for; None if none was."""
  return _read(partial / _BEGUN)


def is_left_over(partial: pathlib.Path) -> bool:
  """Whether the corpus was renamed, and the process killed while it tidied up."""
  return begun_with(partial) is not None and not (partial / 'corpus').is_dir()


def remove(partial: pathlib.Path) -> None:
  """Deletes NAME.partial if it is there; UserError if no preparation has made it."""
  if not os.path.lexists(partial):
    return
  marker = partial / _BEGUN
  ours = partial.is_dir() and not partial.is_symlink()
  if ours and not marker.is_file():  # then it is empty, or the marker is half written
    ours = all(path.name.startswith(_BEGUN) for path in partial.iterdir())
  if not ours:
    raise UserError(
      f'{partial} is not what a preparation has left (it has no {_BEGUN}): move it '
      'away, or give the corpus another name (--config.data.name)'
    )
  for path in partial.iterdir():
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path)
    elif path != marker:
      path.unlink()
  marker.unlink(missing_ok=True)
  partial.rmdir()


def once(marker: pathlib.Path, stage: Callable[[], dict]) -> dict:
  """What a stage returns; it is run unless its marker says that it is done."""
  done = _read(marker)
  if done is None:
    done = stage()
    files.write(marker, json.dumps(done))
  return done


def _read(marker: pathlib.Path) -> dict | None:
  """What a marker says; None if it is not there, or damaged."""
  try:
    return json.loads(marker.read_bytes())
  except (FileNotFoundError, NotADirectoryError, UserError, ValueError):
    return None


@contextlib.contextmanager
def full_disk_explained(final: pathlib.Path, partial: pathlib.Path) -> Iterator[None]:
  """Adds what to do to the error of a full disk."""
  try:
    yield
  except OSError as error:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
      raise
    raise OSError(
      error.errno,
      f'{error.strerror} while preparing {final}: make room and start again; it goes '
      f'on from what is there. What could not be written',
      error.filename or str(partial),
    ) from error
