"""What made a figure: the checkout's commit, and the versions of packages."""

import importlib.metadata
import pathlib
import platform
import subprocess
from collections.abc import Iterable


def commit(folder: pathlib.Path = pathlib.Path(__file__).parent) -> str | None:
  """A checkout's commit, '+' behind it if files differ; None outside of one."""
  git = lambda *words: subprocess.run(
    ['git', *words], cwd=folder, capture_output=True, text=True, check=True
  ).stdout.strip()
  try:
    git('ls-files', '--error-unmatch', '.')  # else it is installed inside of another's
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Of Python and of these, which must be installed."""
  found = {name: importlib.metadata.version(name) for name in packages}
  return {'python': platform.python_version()} | found
