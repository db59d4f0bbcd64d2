"""Locks of files: the system lifts them when the process ends, however it does."""

import fcntl
from collections.abc import Callable
from typing import IO


def take(file: IO[str], kind: int, unsupported: Callable[[OSError], None]) -> bool:
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
