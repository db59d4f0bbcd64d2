"""Files that are there whole or not at all, and the sums that vouch for them."""

import hashlib
import os
import pathlib


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file of which nobody ever sees a part, whenever the machine stops."""
  partial = path.with_name(path.name + '.partial')
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
