"""stdin, stdout and stderr, of which a user may have closed some."""

import contextlib
import io
import os
import pathlib
import sys
from collections.abc import Iterator

from transformer_jax.machine import files

STDOUT = pathlib.Path('stdout')


@contextlib.contextmanager
def standard() -> Iterator[None]:
  """Makes the three usable, and sees to it that what is printed arrives, in UTF-8.

  A reader of stdout that leaves early, such as `| head`, has what it wants. One of
  stderr may leave at any time, as `2>&1 | tee log` does at Ctrl-C: the program goes on.

  Raises:
    OSError: stdout, which it names, is closed or its disk is full.
  """
  _replace_closed()
  before, before_error = sys.stdout, sys.stderr
  sys.stderr = io.TextIOWrapper(
    io.BufferedWriter(_Stderr(2, 'w', closefd=False)),
    encoding=before_error.encoding,
    errors=before_error.errors,
    line_buffering=True,
  )
  sys.stdout = io.TextIOWrapper(
    io.BufferedWriter(_Stdout(1, 'w', closefd=False)),
    encoding='utf-8',
    errors='surrogateescape',
    line_buffering=before.line_buffering,
    write_through=before.write_through,
  )
  try:
    yield
    sys.stdout.flush()
  except BaseException as error:
    try:
      sys.stdout.flush()
    except OSError as lost:  # Python would try once more at its end
      os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
      if isinstance(error, SystemExit) and not error.code:  # as of --help
        error = lost
    if not (isinstance(error, BrokenPipeError) and error.filename == str(STDOUT)):
      raise error
  finally:
    sys.stdout, sys.stderr = before, before_error


class _Stdout(io.FileIO):
  """Names itself in its errors, as a file that has a path does."""

  def write(self, content: bytes) -> int | None:
    with files.named(STDOUT):
      return super().write(content)


class _Stderr(io.FileIO):
  """Drops what cannot be written: saving what is new matters more than telling."""

  def write(self, content: bytes) -> int | None:
    try:
      return super().write(content)
    except OSError:
      return len(content)


def read_stdin() -> bytes:
  """All of stdin; an OSError that names it if it is closed, or is a folder."""
  with files.named(pathlib.Path('stdin')):
    return sys.stdin.buffer.read()


def _replace_closed() -> None:
  """Opens closed streams on /dev/null, such that using stdin or stdout raises OSError.

  What is written to stderr is discarded. Without this, the next file that is opened
  would get the closed stream's descriptor, and so receive what is printed.
  """
  while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
    os.close(descriptor)
    os.open(os.devnull, (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[descriptor])
  os.close(descriptor)
  for number, name, mode in ((0, 'stdin', 'r'), (1, 'stdout', 'w'), (2, 'stderr', 'w')):
    if getattr(sys, name) is None:
      setattr(sys, name, open(number, mode, closefd=False))
