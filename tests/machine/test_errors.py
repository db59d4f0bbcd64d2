"""Users' mistakes end in one line; what is a bug keeps its traceback."""

import importlib
import json
import pathlib

import numpy as np
import pytest
from absl import app, flags
from ml_collections import config_flags

from transformer_jax.data import card
from transformer_jax.machine import errors, files
from transformer_jax.runs.run import Run, RunLocked


def test_what_our_code_refuses_is_one_line(tmp_path: pathlib.Path):
  (tmp_path / 'card.json').write_text('{')
  for refuse, said in (
    (lambda: Run(tmp_path).config(), 'config.json: not there; is '),
    (lambda: card.read_card(tmp_path), 'card.json: damaged ('),
    (lambda: (tmp_path / 'none').read_text(), 'No such file or directory: '),
  ):
    with pytest.raises(SystemExit) as caught, errors.in_one_line():
      refuse()
    assert said in caught.value.code and str(tmp_path) in caught.value.code


def test_a_config_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
  """As ml_collections says it when the flag's value is first looked at."""
  monkeypatch.chdir(pathlib.Path(__file__).parents[2])
  command, values = ['train', '--config=configs/bsae.py:en-de'], flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values, sys_argv=command)
  values(command)
  with pytest.raises(SystemExit) as caught, errors.in_one_line():
    print(values['config'].value.seed)
  said = '--config=configs/bsae.py: no such file; there are: configs/base.py, '
  assert caught.value.code.startswith(said)


def test_a_config_that_misses_another_file(tmp_path: pathlib.Path):
  """Is not called missing itself."""
  path = tmp_path / 'some.py'
  path.write_text('def get_config():\n  return open("stems.txt")\n')
  command, values = ['train', f'--config={path}'], flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values, sys_argv=command)
  with pytest.raises(SystemExit) as caught, errors.in_one_line():
    values(command)
    print(values['config'].value.seed)
  assert 'stems.txt' in caught.value.code and 'there are' not in caught.value.code


def test_several_lines_become_one(tmp_path: pathlib.Path, monkeypatch):
  def refuse(self: Run) -> None:
    raise RunLocked('one\n  two')

  monkeypatch.setitem(refuse.__globals__, '__name__', 'scripts.some')
  with pytest.raises(SystemExit) as caught, errors.in_one_line():
    refuse(Run(tmp_path))
  assert caught.value.code == 'one two'


def modules_own(name: str) -> None:
  """Raises from this file's line, as if it were a library."""
  raise ValueError(name)


@pytest.mark.parametrize(
  'bug',
  [
    lambda: int('x'),
    lambda: json.loads('{'),
    lambda: np.zeros(3).reshape(2),
    lambda: np.zeros(2) @ np.zeros(3),
    lambda: {}['x'],
    lambda: None.x,
    lambda: importlib.import_module('transformer_jax.none'),
    lambda: modules_own('x'),
    lambda: Run(None).config(),
  ],
)
def test_a_bug_is_not_hidden(bug):
  with pytest.raises(Exception) as caught:
    bug()
  with pytest.raises(type(caught.value)), errors.in_one_line():
    bug()


def test_flags_that_do_not_go_together():
  with pytest.raises(SystemExit) as caught, errors.in_one_line():
    raise app.UsageError('give --config')
  assert caught.value.code == 'give --config'


def test_exits_are_left_alone():
  for error in (SystemExit(75), KeyboardInterrupt()):
    with pytest.raises(type(error)) as caught, errors.in_one_line():
      raise error
    assert caught.value is error


@pytest.mark.skipif(
  not pathlib.Path('/dev/full').exists(), reason='Linux has a full device to write to'
)
def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: pathlib.Path):
  (tmp_path / 'config.json.partial').symlink_to('/dev/full')
  with pytest.raises(SystemExit) as caught, errors.in_one_line():
    files.write(tmp_path / 'config.json', '{}')
  assert 'No space left on device' in caught.value.code
  assert str(tmp_path / 'config.json.partial') in caught.value.code
