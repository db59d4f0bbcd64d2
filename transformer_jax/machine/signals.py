"""SIGTERM, SIGINT and Slurm's SIGUSR1: save what is new and leave, whatever goes on.

Python runs signal handlers between bytecodes, so not before XLA has done compiling. A
thread that reads what `signal.set_wakeup_fd` writes hears of a signal at once: where
there is nothing to save it ends the process, elsewhere the main thread does.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

# EX_TEMPFAIL of sysexits.h, "the user is invited to retry": the same command goes on
# where this process left off. Neither Python nor absl nor a shell makes a 75 itself.
EXIT_CODE = 75
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
# `timeout` and some launchers signal a process and then its group, which holds it too.
SAME = 0.5  # seconds within which signals count as one


class Interruption:
  """Whether this process was told to stop, and what then becomes of it.

  The first signal ends the process with EXIT_CODE; while `deferred()` it sets `asked`
  instead. A second one ends it at once in any case. Without `install()` no signal is
  listened to.
  """

  def __init__(self) -> None:
    self.asked = False
    # Waits for what must not be cut off, and returns a sentence to end with.
    self.last_words: Callable[[], str] = str
    self._deferred = 0
    self._lock = threading.Lock()
    self._said_to = sys.stderr

  def install(self) -> 'Interruption':
    """Listens to SIGNALS from now on; for the main thread alone."""
    # What standard error is now: while a vocabulary is learnt, it is a file.
    self._said_to = os.fdopen(os.dup(2), 'w')
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in SIGNALS:
      signal.signal(number, _nothing)
    self._writer = writer  # a closed one would tell nobody
    threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
    return self

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Within it a first signal only sets `asked`: the caller saves, then leaves."""
    with self._lock:
      self._deferred += 1
    try:
      yield
    finally:
      with self._lock:
        self._deferred -= 1

  def leave(self) -> None:
    """Ends the program from the main thread, in order."""
    self._say()
    raise SystemExit(EXIT_CODE)

  def _listen(self, reader: socket.socket) -> None:
    first = None
    while numbers := reader.recv(1):
      if numbers[0] not in SIGNALS:
        continue
      if first is None:
        first = time.monotonic()
        with self._lock:
          self.asked = True
          if not self._deferred:
            threading.Thread(target=self._end, daemon=True).start()
      elif time.monotonic() - first > SAME:
        os._exit(EXIT_CODE)

  def _end(self) -> None:
    """Ends the process from outside the main thread, which may be in a long call."""
    self._say()
    os._exit(EXIT_CODE)

  def _say(self) -> None:
    print(f'stopped by a signal. {self.last_words()}', file=self._said_to, flush=True)


def _nothing(*_: object) -> None:
  """A handler of Python's own, without which nothing is written to the wakeup fd."""
