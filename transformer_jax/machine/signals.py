"""Handles signals that ask a program to end, so that it saves first.

They are SIGTERM and SIGINT, SIGHUP of a closed terminal, SIGUSR1 and SIGUSR2 of
schedulers, and SIGXCPU of a limit on processor time.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

# EX_TEMPFAIL of sysexits.h, "the user is invited to retry": the same command goes on
# where this process left off. Neither Python, absl nor a shell exits with 75 by itself.
EXIT_CODE = 75
SIGNALS = (
  signal.SIGTERM,
  signal.SIGINT,
  signal.SIGHUP,
  signal.SIGUSR1,
  signal.SIGUSR2,
  signal.SIGXCPU,
)
# A second of these ends a program that is saving. The system repeats SIGXCPU.
URGENT = signal.SIGTERM, signal.SIGINT
PARENT = 'TRANSFORMER_JAX_PARENT'  # environment variable: the parent's process id
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
# `timeout` and some launchers signal a process and then its whole group: signals within
# this many seconds count as one.
REPEATED = 0.5


class Interruption:
  """A context in which a signal ends the process with EXIT_CODE and one line.

  Within `deferred()` a first signal only sets `requested`, so that the caller saves and
  leaves. A second SIGTERM or SIGINT ends the process at once. A signal that was ignored
  before, as nohup ignores SIGHUP, stays ignored. Outside of the context signals do what
  they did before.

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
    self._before = {
      number: signal.signal(number, self._handle)
      for number in SIGNALS
      if signal.getsignal(number) != signal.SIG_IGN
    }
    return self

  def __exit__(self, _: type | None, error: object, *rest: object) -> None:
    if self.requested and isinstance(error, SystemExit) and error.code == EXIT_CODE:
      self._say()  # here, below progress bars that have been closed
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
    """Ends the program in the usual order; __exit__() says so."""
    self.requested = True  # also where the signal came to another host
    raise SystemExit(EXIT_CODE)

  def _handle(self, number: int, _: object) -> None:
    if self.requested:
      if number in URGENT and time.monotonic() - self._first > REPEATED:
        os._exit(EXIT_CODE)
      return
    self.requested, self._first = True, time.monotonic()
    if not self._deferrals:
      self._say()
      # Not SystemExit, which would wait for the threads in which XLA compiles.
      os._exit(EXIT_CODE)

  def _say(self) -> None:
    message = f'stopped by a signal. {self.last_words()}'.strip()
    # At a terminal the line may have ^C or a progress bar.
    begin = '\n' if os.isatty(2) else ''
    # Not print(): the signal may have come within another print().
    with contextlib.suppress(OSError, RuntimeError):
      sys.stdout.flush()
    with contextlib.suppress(OSError):  # nobody reads it any more
      os.write(2, f'{begin}{message}\n'.encode())


def end_with_parent() -> None:
  """Makes the system send SIGTERM to this process when its parent has ended.

  Only Linux can do it; elsewhere nothing changes.
  """
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
