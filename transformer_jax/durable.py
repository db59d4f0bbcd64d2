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
  """Waits until what was written to a file is on the disk."""
  with path.open('rb') as file:
    os.fsync(file.fileno())


def sha256(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()
