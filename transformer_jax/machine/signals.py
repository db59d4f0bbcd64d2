"""SIGTERM, SIGINT and Slurm's SIGUSR1 end a program; what is new is saved first."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

# EX_TEMPFAIL of sysexits.h, "the user is invited to retry": the same command goes on
# where this process left off. Neither Python, absl nor a shell exits with 75 by itself.
EXIT_CODE = 75
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
# `timeout` and some launchers signal a process and then its whole group: signals within
# this many seconds count as one.
REPEATED = 0.5


class Interruption:
  """A context in which a signal ends the process with EXIT_CODE and one line.

  Within `deferred()` a first signal only sets `requested`, so that the caller saves and
  leaves. A second signal ends the process at once. Outside of the context signals do
  what they do in any program.

  Attributes:
    requested: whether a signal has come.
    last_words: waits for what must not be cut off; returns a sentence to end with.
  """

  def __init__(self) -> None:
    self.requested = False
    self.last_words: Callable[[], str] = str
    self._first = 0.0  # when the first signal came
    self._deferrals = 0

  def __enter__(self) -> 'Interruption':
    """Listens to SIGNALS from now on; only the main thread may call it."""
    self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
    return self

  def __exit__(self, *_: object) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Makes a first signal only set `requested` while the context is open."""
    self._deferrals += 1
    try:
      yield
    finally:
      self._deferrals -= 1

  def leave_if_requested(self) -> None:
    """Ends the program if a signal has come while that was deferred."""
    if self.requested:
      self.leave()

  def leave(self) -> None:
    """Ends the program in the usual order."""
    self._say()
    raise SystemExit(EXIT_CODE)

  def _handle(self, *_: object) -> None:
    if self.requested:
      if time.monotonic() - self._first > REPEATED:
        os._exit(EXIT_CODE)
      return
    self.requested, self._first = True, time.monotonic()
    if not self._deferrals:
      self._say()
      # Not SystemExit, which would wait for the threads in which XLA compiles.
      os._exit(EXIT_CODE)

  def _say(self) -> None:
    words = f'stopped by a signal. {self.last_words()}'.strip()
    # Not print(): the signal may have come within another print().
    with contextlib.suppress(OSError, RuntimeError):
      sys.stdout.flush()
    with contextlib.suppress(OSError):  # nobody reads it any more
      os.write(2, f'{words}\n'.encode())
