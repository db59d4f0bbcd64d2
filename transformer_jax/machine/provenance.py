"""What code made a result: the checkout's commit, and the versions of packages."""

import importlib.metadata
import pathlib
import platform
import subprocess
from collections.abc import Iterable


def commit(folder: pathlib.Path = pathlib.Path(__file__).parent) -> str | None:
  """The checkout's commit, with a '+' if files differ; None outside a checkout."""
  git = lambda *words: subprocess.run(
    ['git', *words], cwd=folder, capture_output=True, text=True, check=True
  ).stdout.strip()
  try:
    # Fails if this package is only installed inside another project's checkout.
    git('ls-files', '--error-unmatch', '.')
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
  """The versions of Python and of installed packages."""
  found = {name: importlib.metadata.version(name) for name in packages}
  return {'python': platform.python_version()} | found
