"""The commands, python -m scripts.NAME, and what they need before their imports."""

import contextlib
import os
import signal
import sys


def _leave(*_: object) -> None:
  """Ends the process at Ctrl-C."""
  with contextlib.suppress(OSError):  # nobody reads it any more
    os.write(2, b'stopped by Ctrl-C\n')
  os._exit(130)  # as a shell has it


if sys.argv[0] == '-m':  # a command, not an import of one
  # Importing takes seconds, and an interrupted import prints where it was. cli.run()
  # listens by itself. A shell lets its background processes ignore the signal.
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)
  # A stream that is closed, as by 2>&-, would give its number to the next file, which
  # would then get all that is printed.
  for _name, _mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, _name) is None:
      setattr(sys, _name, open(os.devnull, _mode))
