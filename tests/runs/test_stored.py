"""What was stored on a former day is read by today's code."""

import copy
import functools
import pathlib

import pytest

from transformer_jax import config as configs
from transformer_jax.data.corpus import CARD, Corpus, read_card
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import results
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run, finished_steps
from transformer_jax.tasks import OUTPUTS

TESTS = pathlib.Path(__file__).parents[1]
DAYS = sorted(path for path in (TESTS / 'records').iterdir() if path.is_dir())
DAY = DAYS[0]


@pytest.mark.parametrize('day', DAYS, ids=lambda day: day.name)
def test_what_every_day_stored_is_read(day: pathlib.Path):
  run = Run(day / 'run')
  assert run.config().task == 'translation'
  assert read_card(run.workdir).corpus['data.name'] == run.config().data.name
  assert finished_steps(run.checkpoints) == [6000]
  assert {len(record) for record in run.records()} == {2, 3, 12}
  read = results.read(sorted(day.glob('*.json')), OUTPUTS)
  assert not read.omissions and len(read.baselines) == 1
  names = [(run.result.task, run.name) for run in read.evaluations]
  assert sorted(names) == [(x, x) for x in ('parsing', 'translation')]


def test_a_key_that_was_not_stored_is_as_before_it(tmp_path: pathlib.Path):
  """In a config, and in a result's; a key that nobody knows is refused."""
  stored = files.read_json_object(DAY / 'run/config.json')
  result = files.read_json_object(DAY / 'translation.json')
  whole = configs.flat(configs.complete(copy.deepcopy(stored)))
  for name, key in configs.KEYS.items():
    *outer, last = name.split('.')
    partial = copy.deepcopy(stored)
    functools.reduce(dict.__getitem__, outer, partial).pop(last, None)
    completed = configs.flat(configs.complete(partial))
    before = [*key.before] if isinstance(key.before, tuple) else key.before
    assert completed == whole | {name: before}
  del result['config']['data']['cleaning'], result['config']['kernels']
  path = tmp_path / 'result.json'
  files.write_json(path, result)
  assert Result.read(path).config['data']['cleaning'] == stored['data']['cleaning']
  result['config']['model']['gates'] = 2
  files.write_json(path, result)
  with pytest.raises(UserError, match='model.gates is unknown'):
    Result.read(path)


def test_a_card_that_lacks_a_key_is_as_before_it(tmp_path: pathlib.Path):
  card = files.read_json_object(DAY / 'run/card.json')
  config = Run(DAY / 'run').config()
  del card['corpus']['data.nfc']
  files.write_json(tmp_path / CARD, card)
  Corpus.open(tmp_path).check_settings(config)
  with config.unlocked():
    config.data.nfc = True
  with pytest.raises(UserError, match='prepared with data.nfc=False'):
    Corpus.open(tmp_path).check_settings(config)
