"""What a user did wrong ends a program in one line, what the code did in a traceback.

A sentence for the user is what this project's own code raises; an error that comes up
by itself, in a library or in an expression of ours, is a bug, and how it came about is
shown. A file that is not there or may not be read is named by the system.
"""

import contextlib
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator

from absl import app, flags

# RuntimeError and ArithmeticError: a folder in use, a run that has diverged.
KINDS = ValueError, OSError, RuntimeError, ArithmeticError
# The last says which config file is not there, when the config is first looked at.
OURS = {'__main__', 'transformer_jax', 'scripts', 'configs', 'ml_collections'}


class UserError(ValueError):
  """What the user did wrong, in a sentence that says where and what to do.

  A program ends with this sentence on stderr and exit code 1, without a traceback.
  """


def run(main: Callable[[list[str]], None]) -> None:
  """Parses the flags, calls main() and ends the program."""
  app.run(in_one_line()(main), flags_parser=in_one_line()(flags.FLAGS))


def counts(flag: flags.FlagHolder[list[str]]) -> list[int]:
  """The numbers of a flag that is a list, each 1 or more; UsageError otherwise."""
  if not flag.value or not all(x.isdecimal() and int(x) for x in flag.value):
    given = ','.join(flag.value)
    raise app.UsageError(f'--{flag.name}={given}: numbers of 1 or more, such as 16,64')
  return [int(text) for text in flag.value]


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
  """What is refused within it is said on stderr, and ends the program with 1."""
  try:
    yield
  except Exception as error:
    sentence = _sentence(error)
    if sentence is None:
      raise
    sys.exit(' '.join(line.strip() for line in sentence.splitlines()))


def _sentence(error: BaseException) -> str | None:
  """What to tell the user, if it is for the user."""
  if isinstance(error, app.UsageError | UserError):
    return str(error)
  if isinstance(error, flags.Error):
    if 'parsing config file' not in str(error):
      return str(error)
    while error.__context__ is not None:  # to what the file itself has raised
      error = error.__context__
    return str(error) if _on_purpose(error) else None
  frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
  modules = [frame.f_globals['__name__'] for frame in frames]
  if 'ml_collections.config_flags.config_path' in modules:  # --config.KEY is no key
    while isinstance(error.args[0], Exception):
      error = error.args[0]
    return f'--config: {error.args[0]}'
  if isinstance(error, OSError) and error.filename is not None:
    return str(error)
  if absent := re.search(r"path\]:\s+(\S+)\s+\[Errno 2\][^']*'\1'", str(error)):
    there = sorted(map(str, pathlib.Path('configs').glob('[!_]*.py')))
    return f'--config={absent[1]}: no such file; there are: {", ".join(there)}'
  ours = modules[-1].partition('.')[0] in OURS
  meant = ours and isinstance(error, KINDS) and _on_purpose(error)
  return str(error) if meant else None


def _on_purpose(error: BaseException) -> bool:
  """Whether it comes from a `raise` statement."""
  line = traceback.extract_tb(error.__traceback__)[-1].line
  return (line or '').startswith('raise ')
