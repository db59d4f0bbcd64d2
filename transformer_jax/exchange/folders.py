"""A folder that is written whole or not at all."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

PARTIAL = '.partial'


def partial_of(folder: pathlib.Path) -> pathlib.Path:
  """Where a folder is written until it is whole."""
  folder = folder.absolute()
  return folder.with_name(folder.name + PARTIAL)


@contextlib.contextmanager
def written(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a folder beside `folder` to write into, and renames it in the end.

  If the block raises, nothing is left. What a killed process leaves is named
  FOLDER.partial.

  Raises:
    UserError: there is something already.
  """
  folder, partial = folder.absolute(), partial_of(folder)
  for path in (folder, partial):
    if path.exists() or path.is_symlink():
      what = 'left by a process that was killed' if path == partial else 'there already'
      raise UserError(f'{path} is {what}: delete it, or give another name')
  partial.mkdir(parents=True)
  try:
    with files.named(partial):
      yield partial
    for path in sorted(partial.rglob('*')):
      files.sync(path)
    partial.rename(folder)
    files.sync(folder.parent)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
