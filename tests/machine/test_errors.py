"""Users' mistakes end in one line; bugs keep their traceback."""

import errno
import importlib
import pathlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags

from transformer_jax.machine import errors
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError


def line_of(call: Callable[[], object]) -> str:
  """Returns the line that the user reads."""
  with pytest.raises(SystemExit) as caught, errors.report_user_errors():
    call()
  return caught.value.code


def test_a_config_that_refuses(tmp_path: pathlib.Path):
  """Its own message, but a bug's type; a file that it misses is not the config."""
  path, table = tmp_path / 'some.py', Flags('')
  config = table.config('', ['seed'], lambda *_: None)

  def load(body: str) -> None:
    path.write_text(f'def get_config():\n  {body}\n')
    table.parse(['train', f'--config={path}'])
    assert config.value.seed

  assert line_of(lambda: load('raise ValueError("no row Q")')).endswith('no row Q')
  line = line_of(lambda: load('return open("stems.txt")'))
  assert line.endswith("No such file or directory: 'stems.txt'")
  with pytest.raises(flags.Error, match='TypeError'), errors.report_user_errors():
    load('return None + 1')


def failing(error: Exception) -> Callable[[], object]:
  def fail() -> None:
    raise error

  return fail


@pytest.mark.parametrize(
  ('call', 'line'),
  [
    (failing(UserError('one\n  two ')), 'one two'),
    (failing(flags.Error('flag --x: no')), 'flag --x: no'),
    (
      failing(ModuleNotFoundError(name='matplotlib.pyplot')),
      "matplotlib is not installed: pip install -e '.[report]' ",
    ),
    (pathlib.Path('/none').read_text, '[Errno 2] No such file'),
    (failing(OSError(errno.ENOSPC, 'full')), '[Errno 28] full'),
    (lambda: np.zeros(2**55), 'out of memory ('),
    (lambda: jax.jit(lambda: jnp.zeros(2**45))(), 'out of memory ('),
  ],
)
def test_a_mistake_is_one_line(call: Callable[[], object], line: str):
  assert line_of(call).startswith(line)


def test_a_bug_is_not_hidden():
  for error, bug in (
    (ValueError, lambda: int('x')),
    (ImportError, lambda: importlib.import_module('transformer_jax.none')),
    (OSError, failing(OSError(errno.ENOENT, 'of no file'))),
  ):
    with pytest.raises(error), errors.report_user_errors():
      bug()
