"""What was stored on a former day is read by today's code, and what is of today."""

import copy
import functools
import math
import pathlib

import pytest

from toy.results import PARSED, RESULT, changed
from transformer_jax import config as configs
from transformer_jax.data.corpus import CARD, Corpus, read_card
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import results
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.runs.run import Run, finished_steps
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.translations import PAPER_BLEU, PERPLEXITY
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
  # Fields of a record of dev or a checkpoint, of BLEU, of training: none is lost.
  assert {len(record) for record in run.records()} == {2, 3, 12}
  read = results.read(sorted(day.glob('*.json')), OUTPUTS)
  assert not read.omissions and len(read.baselines) == 1
  names = [(run.result.task, run.name) for run in read.evaluations]
  assert sorted(names) == [(x, x) for x in ('parsing', 'translation')]


def test_a_key_that_was_not_stored_is_as_before_it(tmp_path: pathlib.Path):
  """In a config, and in a result's."""
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


# Results of today


def test_what_is_written_is_read(tmp_path: pathlib.Path):
  """A parser's result needs no BLEU."""
  path = tmp_path / 'result.json'
  for result in RESULT, PARSED:
    result.write(path)
    assert Result.read(path) == result
  search = {'beam': 4, 'alpha': 0.6, 'decode_dtype': 'float32', 'average_last': 2}
  assert RESULT.search() == search
  assert RESULT.value(PERPLEXITY) == 2.5 and RESULT.value(PAPER_BLEU) == 51
  assert PARSED.value(PAPER_BLEU) is None
  name = 'test.step-600.average-2.beam-4.alpha-0.6.txt'
  assert RESULT.translations(Run(tmp_path)) == tmp_path / 'translations' / name


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'dev_perplexity': math.nan}, r'`\$.dev_perplexity`'),  # null, as JSON has no NaN
    ({'paper_bleu': None}, 'without its scores'),
    ({'paper_bleu': Score(51, '', [1, None])}, r'scores\[...\].interval'),
    ({'config': {'model.P_drop': 'much'}}, 'model.P_drop'),
    ({'config': {'model.gates': 2}}, 'model.gates is unknown'),
    *(({'version': v}, f'version {v}, not {VERSION}') for v in (VERSION + 1, None)),
  ],
)
def test_what_is_refused(change: dict, message: str, tmp_path: pathlib.Path):
  """The message names the file and advises to evaluate again."""
  path = tmp_path / 'result.json'
  changed(RESULT, **change).write(path)
  with pytest.raises(UserError, match=f'{path}.*{message}.*evaluate the run again'):
    Result.read(path)
