"""Writing a file whole or not at all, sha256 sums, and locks."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import IO

# Seconds. A process that only asks whether a file is locked holds it for less.
LOOK = 0.1


@contextlib.contextmanager
def named(path: pathlib.Path) -> Iterator[None]:
  """Adds the path to a system's error that lacks it, such as that of a full disk."""
  try:
    yield
  except OSError as error:
    if error.errno is not None:  # without a number, the message alone is printed
      error.filename = error.filename or str(path)
    raise


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file as a whole: after a crash it is the old one or the new one."""
  partial = path.with_name(path.name + '.partial')
  with named(partial):
    partial.write_text(text, encoding='utf-8')
    sync(partial)
  partial.replace(path)


def sync(path: pathlib.Path) -> None:
  """Waits until a file, or a folder's list of entries, is on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def sha256(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def take_lock(file: IO[str], kind: int, unsupported: Callable[[OSError], None]) -> bool:
  """Tries to lock or unlock an open file, without waiting; whether that succeeded.

  Args:
    kind: fcntl's LOCK_EX, LOCK_SH or LOCK_UN.
    unsupported: is called if the file system has no locks, which counts as a success.
  """
  try:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    unsupported(error)
  return True


def claim_lock(file: IO[str], unsupported: Callable[[OSError], None]) -> bool:
  """Tries to lock a file for this process alone; whether that succeeded.

  It tries twice, since a process that only looks may hold the lock for a moment.
  """
  if take_lock(file, fcntl.LOCK_EX, unsupported):
    return True
  time.sleep(LOOK)
  return take_lock(file, fcntl.LOCK_EX, unsupported)
