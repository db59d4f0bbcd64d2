"""The commands, python -m scripts.NAME, and what they need before their imports."""

import contextlib
import os
import signal
import sys
import types

# For glibc, which reads it as a process starts; other C libraries ignore it. Arrays lie
# in large pages, and large ones that are freed stay in the process: docs/speed.md has
# what each is worth.
MEMORY = (
  'glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=2147483647:'
  'glibc.malloc.trim_threshold=17179869184'
)


def _leave(*_: object) -> None:
  """Ends the process at Ctrl-C."""
  with contextlib.suppress(OSError):  # nobody reads it any more
    os.write(2, b'stopped by Ctrl-C\n')
  os._exit(130)  # as a shell has it


def _tell(kind: type, error: BaseException, trace: types.TracebackType) -> None:
  """Prints one line for an error of the user, such as a variable that JAX refuses."""
  from transformer_jax.machine.errors import sentence_of

  if line := sentence_of(error):
    print(line, file=sys.stderr)
  else:
    sys.__excepthook__(kind, error, trace)


if sys.argv[0] == '-m':  # a command, not an import of one
  if sys.platform == 'linux' and 'GLIBC_TUNABLES' not in os.environ:
    os.environ['GLIBC_TUNABLES'] = MEMORY
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
  # Modules are imported before cli.run() tells errors in one line.
  sys.excepthook = _tell
  # Importing takes seconds, and an interrupted import prints a traceback. cli.run()
  # handles Ctrl-C itself. In background processes a shell has it ignored.
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)
  # A stream that is closed, as by 2>&-, would give its number to the next file, which
  # would then get all that is printed.
  for _name, _mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, _name) is None:
      setattr(sys, _name, open(os.devnull, _mode))
