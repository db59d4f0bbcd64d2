"""SIGTERM, SIGINT and Slurm's SIGUSR1 end a program; what is new is saved first.

Python runs signal handlers between bytecodes, so a handler would wait until XLA has
compiled. A thread that reads what `signal.set_wakeup_fd` writes hears of a signal at
once. If there is nothing to save, it ends the process, else the main thread does.
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
# where this process left off. Neither Python, absl nor a shell exits with 75 by itself.
EXIT_CODE = 75
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
# `timeout` and some launchers signal a process and then its whole group.
SAME = 0.5  # seconds within which signals count as one


class Interruption:
  """Listens to signals and ends the process when one comes.

  The first signal ends it with EXIT_CODE, or within `deferred()` only sets `asked`. A
  second signal ends it at once in any case. Before `install()` signals are not heard;
  if another one listens already, this one takes its place.

  Attributes:
    asked: whether a signal has come.
    last_words: waits for what must not be cut off; returns a sentence to end with.
  """

  def __init__(self) -> None:
    self.asked = False
    self.last_words: Callable[[], str] = str
    self._deferred = 0
    self._lock, self._saying = threading.Lock(), threading.Lock()
    self._said = False
    self._said_to = sys.stderr

  def install(self) -> 'Interruption':
    """Listens to SIGNALS from now on; call it in the main thread."""
    # A copy, since standard error may be redirected when a signal comes.
    self._said_to = os.fdopen(os.dup(2), 'w')
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in SIGNALS:
      signal.signal(number, _nothing)
    self._writer = writer  # an unreferenced socket would be closed
    threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
    return self

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Within it, a first signal only sets `asked`: the caller saves and leaves."""
    with self._lock:
      self._deferred += 1
    try:
      yield
    finally:
      with self._lock:
        self._deferred -= 1

  def leave_if_asked(self) -> None:
    """Ends the program if a signal has come while that was deferred."""
    if self.asked:
      self.leave()

  def leave(self) -> None:
    """Ends the program from the main thread, in the usual order."""
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
    """Ends the process from another thread: the main thread may be in a long call."""
    self._say()
    os._exit(EXIT_CODE)

  def _say(self) -> None:
    with self._saying:  # the main thread may leave while another one is ending it
      if not self._said:
        words = f'stopped by a signal. {self.last_words()}'.strip()
        with contextlib.suppress(OSError):  # nobody reads it any more
          print(words, file=self._said_to, flush=True)
        self._said = True


def _nothing(*_: object) -> None:
  """Does nothing; without a handler, Python writes nothing to the wakeup fd."""
