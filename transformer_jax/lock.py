"""Locks of files: the system lifts them when the process ends, however it does."""

import fcntl
import time
from collections.abc import Callable
from typing import IO

LOOK = 0.1  # seconds; who only looks whether a file is locked has it shared for less


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


def claim(file: IO[str], unsupported: Callable[[OSError], None]) -> bool:
  """Whether it was had alone, by whoever did not only look: it is asked for twice."""
  if take(file, fcntl.LOCK_EX, unsupported):
    return True
  time.sleep(LOOK)
  return take(file, fcntl.LOCK_EX, unsupported)
