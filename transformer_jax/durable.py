"""Files that are there whole or not at all, and the sums that vouch for them."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def named(path: pathlib.Path) -> Iterator[None]:
  """Says which file it was that could not be written, as a full disk does not."""
  try:
    yield
  except OSError as error:
    if error.errno is not None:  # else the filename would stand for what it says
      error.filename = error.filename or str(path)
    raise


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file of which nobody ever sees a part, whenever the machine stops."""
  partial = path.with_name(path.name + '.partial')
  with named(partial):
    partial.write_text(text, encoding='utf-8')
    sync(partial)
  partial.replace(path)


def sync(path: pathlib.Path) -> None:
  """Waits until a file, or a folder's list of what is in it, is on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def sha256(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()
