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
from transformer_jax.runs.run import Run


def line_of(call: Callable[[], object]) -> str:
  """Returns the line that the user reads."""
  with pytest.raises(SystemExit) as caught, errors.report_user_errors():
    call()
  return caught.value.code


def test_refusals_of_our_code_are_one_line(tmp_path: pathlib.Path):
  line = line_of(Run(tmp_path).config)
  assert line.startswith(f'{tmp_path / "config.json"}: no such file; is ')
  line = line_of((tmp_path / 'none').read_text)
  assert 'No such file or directory: ' in line and str(tmp_path) in line


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
  assert 'there are' not in line
  with pytest.raises(flags.Error, match='TypeError'), errors.report_user_errors():
    load('return None + 1')


@pytest.mark.parametrize('name', ['gs://bucket/run', 's3://x', 'file:///run', ''])
def test_a_path_outside_this_machine(name: str, monkeypatch):
  table = Flags('')
  workdir = table.path('workdir', None, '')
  line = line_of(lambda: table.parse(['x', f'--workdir={name}']))
  assert line.startswith(f'flag --workdir={name}: ')
  monkeypatch.setenv('HOME', '/home/me')
  table.parse(['x', '--workdir=~/run'])
  assert workdir.value == pathlib.Path('/home/me/run')


def failing(error: Exception) -> Callable[[], object]:
  def fail() -> None:
    raise error

  return fail


@pytest.mark.parametrize(
  ('error', 'line'),
  [
    (UserError('one\n  two '), 'one two'),
    (flags.Error('flag --x: no'), 'flag --x: no'),
    (
      ModuleNotFoundError(name='matplotlib.pyplot'),
      "matplotlib is not installed: pip install -e '.[report]' ",
    ),
    (FileNotFoundError(errno.ENOENT, 'none', 'path'), "[Errno 2] none: 'path'"),
    *(
      (OSError(n, 'x'), f'[Errno {n}] x')
      for n in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    ),
    (OSError('Configuration is not available here'), 'Configuration is not'),
  ],
)
def test_a_mistake_is_one_line(error: Exception, line: str):
  assert line_of(failing(error)).startswith(line)


def test_a_bug_is_not_hidden():
  for error, bug in (
    (ValueError, lambda: int('x')),
    (AttributeError, lambda: None.x),
    (ImportError, lambda: importlib.import_module('transformer_jax.none')),
    (OSError, failing(OSError(errno.ENOENT, 'of no file'))),
  ):
    with pytest.raises(error), errors.report_user_errors():
      bug()


def test_too_little_memory_is_not_a_bug():
  """Neither for numpy nor for JAX."""
  for call in (lambda: np.zeros(2**55), lambda: jax.jit(lambda: jnp.zeros(2**45))()):
    line = line_of(call)
    assert line.startswith('out of memory (') and 'a smaller model' in line
