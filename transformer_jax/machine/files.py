"""Files that are there whole or not at all, their sha256 sums, and locks."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import IO

LOOK = 0.1  # seconds; who only looks whether a file is locked has it shared for less


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


def take_lock(file: IO[str], kind: int, unsupported: Callable[[OSError], None]) -> bool:
  """Whether it could be had at once: fcntl's LOCK_EX or LOCK_SH, or LOCK_UN to give.

  A file system may have no locks: it is had then, and `unsupported` is called.
  """
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    unsupported(error)
  return True


def claim_lock(file: IO[str], unsupported: Callable[[OSError], None]) -> bool:
  """Whether it was had alone, by whoever did not only look: it is asked for twice."""
  if take_lock(file, fcntl.LOCK_EX, unsupported):
    return True
  time.sleep(LOOK)
  return take_lock(file, fcntl.LOCK_EX, unsupported)
