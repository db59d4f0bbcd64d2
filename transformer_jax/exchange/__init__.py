"""Models for other programs, and models from them (docs/export.md)."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from transformer_jax.machine.errors import UserError


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a folder to write into, and renames it to `path` when the block ends.

  If the block raises, the folder is deleted. A killed process leaves PATH.partial,
  which the next call replaces.

  Raises:
    UserError: `path` exists.
  """
  if path.exists():
    raise UserError(f'{path} exists: delete it, or give another name')
  partial = path.absolute().with_name(f'{path.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    yield partial
    partial.rename(path)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
