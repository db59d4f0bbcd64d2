"""A script's table of flags: what a command line sets, and what it may not have."""

import pathlib

import ml_collections
import pytest
from absl import flags

from transformer_jax.machine import cli
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError

CONFIG = """
from ml_collections import ConfigDict
def get_config(argument='none'):
  return ConfigDict({'name': argument, 'seed': 1, 'rate': 0.5, 'model': {'d_model': 8}})
"""
KEYS = 'name', 'seed', 'rate', 'model.d_model'


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs' / 'some.py').write_text(CONFIG)
  return tmp_path


def with_config(required: bool = True) -> tuple[Flags, flags.FlagHolder, list]:
  table, resolved = Flags('What it does.'), []
  resolve = lambda config, plain, names: resolved.append((config, plain, {*names}))
  return table, table.config('The config.', KEYS, resolve, required), resolved


def test_a_config_with_overrides(folder: pathlib.Path):
  """Each parse begins anew; None is a value; the plain config stays beside it."""
  table, config, resolved = with_config()
  words = ['--config=configs/some.py:mine', '--config.seed=3', '--config.name=None']
  assert table.parse(['x', *words]) == ['x']
  plain = {'name': 'mine', 'seed': 1, 'rate': 0.5, 'model': {'d_model': 8}}
  changed = plain | {'name': None, 'seed': 3}
  assert config.value.to_dict() == changed and table.plain.to_dict() == plain
  assert resolved == [(config.value, table.plain, {'seed', 'name'})]
  table.parse(['x', '--config=configs/some.py', '--config.model.d_model=4'])
  assert isinstance(config.value, ml_collections.ConfigDict)
  assert config.value.to_dict() == plain | {'name': 'none', 'model': {'d_model': 4}}
  table, config, resolved = with_config(required=False)
  table.parse(['x'])
  assert config.value is table.plain is None and not resolved


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ('', '^give --config: The config.'),
    ('--config.seed=2', '^--config.seed needs --config=FILE'),
    ('--config=configs/some.py --config.sed=2', 'did you mean --config.seed[?]'),
    ('-config.d_modle=2', 'did you mean --config.model.d_model[?]'),
    ('--config.Learning-Rate=2', 'here it is --config.rate_factor, a factor of '),
    ('--sead=2', '^--sead: no such flag; did you mean --config.seed[?]'),
    ('--hidden_size=2', '^--hidden_size: no such flag; .* --config.model.d_model'),
    ('--config=configs/sone.py', 'did you mean configs/some.py[?]'),
    ('--config=none/some.py:x', 'did you mean configs/some.py[?]'),
    ('--config=runs/config.json', '^--config=runs/config.json: give the Python file'),
    ('--config=configs/some.py 5', "^'5' is not a flag"),
  ],
)
def test_what_a_command_line_may_not_have(words: str, message: str, folder):
  with pytest.raises(UserError, match=message):
    with_config()[0].parse(['x', *words.split()])


def test_each_script_has_its_flags():
  """Paths are of this machine; numbers have a least; some flags go with no other."""
  table, other = Flags('What it does.', positional=True), Flags('')
  workdir = table.path('workdir', None, 'Folder of it.')
  other.path('workdir', 'a', '')
  sizes = table.list('sizes', ['1'], 'Sizes.')
  count = table.integer('count', None, 'Number.', 1)
  for name in 'gs://bucket/run', 'file:///run', '':
    with pytest.raises(flags.Error, match=f'^flag --workdir={name}: '):
      table.parse(['x', f'--workdir={name}'])
  assert table.parse(['x', 'y', '--workdir=~/w', '--sizes=2,30']) == ['x', 'y']
  assert workdir.value == pathlib.Path.home() / 'w' and cli.integers(sizes) == [2, 30]
  table.refuse('--json', count)
  with pytest.raises(UserError, match='^--sizes does not go with --json'):
    table.refuse('--json', count, sizes)
  for text in '2,0', '2,x', '':
    table.parse(['x', f'--sizes={text}'])
    with pytest.raises(UserError, match=f'^--sizes={text}: give numbers of 1 or more'):
      cli.integers(sizes)
  table.parse(['x', '--sizes=0'])
  assert cli.integers(sizes, 0) == [0]
