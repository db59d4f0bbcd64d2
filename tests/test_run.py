"""A run's folder belongs to one config and one corpus; its metrics are never double."""

import json
import pathlib

import ml_collections
import pytest

from configs import base
from transformer_jax import corpora, vocabulary
from transformer_jax.corpora import Corpus, Text
from transformer_jax.run import Log, Run

LINES = ['one two three four five', 'six seven eight nine ten']


def prepared(
  data_dir: pathlib.Path, name: str = 'toy', extra: str = ''
) -> pathlib.Path:
  texts = {
    split: Text(
      LINES + [extra], LINES + [extra], {s: {'file': s} for s in corpora.SIDES}
    )
    for split in corpora.SPLITS
  }
  corpora.prepare(Corpus(name, 'en', 'de', 30, 256, 1), texts, data_dir)
  return data_dir / name


@pytest.fixture
def corpus(tmp_path: pathlib.Path) -> pathlib.Path:
  return prepared(tmp_path / 'data')


@pytest.fixture
def config() -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.vocab_size = 30
  return config


def test_a_new_run(corpus, config, tmp_path: pathlib.Path):
  workdir = tmp_path / 'runs' / 'new'
  run = Run.open(workdir, config, corpus)
  assert sorted(path.name for path in workdir.iterdir()) == [
    'card.json',
    'config.json',
    'vocabulary.model',
  ]
  assert run.config().to_dict() == config.to_dict()
  assert run.config().is_locked
  card = corpora.read_card(corpus)
  assert run.vocabulary().sha256 == card['vocabulary']['sha256']
  assert (workdir / 'card.json').read_bytes() == (corpus / 'card.json').read_bytes()


def test_the_same_run_is_opened_again(corpus, config, tmp_path: pathlib.Path):
  Run.open(tmp_path / 'run', config, corpus)
  before = (tmp_path / 'run' / 'config.json').read_bytes()
  Run.open(tmp_path / 'run', config, corpus)
  assert (tmp_path / 'run' / 'config.json').read_bytes() == before


def test_a_run_may_be_prolonged(corpus, config, tmp_path: pathlib.Path):
  Run.open(tmp_path / 'run', config, corpus)
  config.train_steps += 5
  run = Run.open(tmp_path / 'run', config, corpus)
  assert run.config().train_steps == config.train_steps


def test_the_run_of_another_config_is_refused(corpus, config, tmp_path: pathlib.Path):
  """All that differ are named, train_steps is not, and nothing is written."""
  Run.open(tmp_path / 'run', config, corpus)
  before = (tmp_path / 'run' / 'config.json').read_bytes()
  config.model.P_drop = 0.25
  config.seed = 2
  config.train_steps += 1
  with pytest.raises(ValueError) as caught:
    Run.open(tmp_path / 'run', config, corpus)
  message = str(caught.value)
  assert "holds another config's run; these differ: model.P_drop, seed. " in message
  assert '--workdir' in message
  assert (tmp_path / 'run' / 'config.json').read_bytes() == before


def test_keys_that_came_or_went_are_named(corpus, config, tmp_path: pathlib.Path):
  Run.open(tmp_path / 'run', config, corpus)
  path = tmp_path / 'run' / 'config.json'
  kept = json.loads(path.read_text())
  del kept['model']['d_k']
  kept['old'] = 1
  path.write_text(json.dumps(kept))
  with pytest.raises(ValueError, match=r'these differ: model\.d_k, old\. '):
    Run.open(tmp_path / 'run', config, corpus)


@pytest.mark.parametrize(
  ('key', 'value'),
  [('max_length', 9), ('source_language', 'fr'), ('target_language', 'x')],
)
def test_a_corpus_of_another_config(key, value, corpus, config, tmp_path: pathlib.Path):
  config[key] = value
  with pytest.raises(ValueError, match=rf'toy was prepared with {key}=.*says {value}:'):
    Run.open(tmp_path / 'run', config, corpus)
  assert not (tmp_path / 'run').exists()


def test_another_vocabulary_size(corpus, config, tmp_path: pathlib.Path):
  config.model.vocab_size = 31
  with pytest.raises(
    ValueError, match='prepared with vocab_size=30, the config says 31'
  ):
    Run.open(tmp_path / 'run', config, corpus)


def test_another_vocabulary_is_one_clear_sentence(
  corpus, config, tmp_path: pathlib.Path
):
  run = Run.open(tmp_path / 'run', config, corpus)
  other = prepared(tmp_path / 'data', 'other', extra='nine nine nine nine one')
  assert (
    vocabulary.Vocabulary(other / 'vocabulary.model').sha256 != run.vocabulary().sha256
  )
  for check in (
    lambda: Run.open(tmp_path / 'run', config, other),
    lambda: run.check_vocabulary(other),
  ):
    with pytest.raises(ValueError) as caught:
      check()
    assert 'other was encoded with another vocabulary' in str(caught.value)
    assert run.vocabulary().sha256[:12] in str(caught.value)
    assert '\n' not in str(caught.value)


def test_no_corpus_and_no_run(config, tmp_path: pathlib.Path):
  with pytest.raises(FileNotFoundError, match=r'card\.json: not there; run scripts'):
    Run.open(tmp_path / 'run', config, tmp_path / 'nowhere')
  assert not (tmp_path / 'run').exists()
  with pytest.raises(FileNotFoundError, match='is .* a run'):
    Run(tmp_path).config()


def test_a_kill_while_the_run_is_made(corpus, config, tmp_path: pathlib.Path):
  """config.json comes last: what is torn before is made again."""
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'vocabulary.model').write_bytes(b'torn')
  run = Run.open(tmp_path / 'run', config, corpus)
  assert len(run.vocabulary()) == 30


# Metrics


def records(run: Run) -> list[dict]:
  return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def record(step: int) -> dict:
  return {'step': step, 'loss': 1.5, 'target_tokens': 10, 'steps': 1, 'seconds': 0.5}


def log_steps(run: Run, start: int, end: int) -> None:
  with Log(run, start, 9) as log:
    list(log.compiling([1, 2]))
    log.started()
    for step in range(start + 1, end + 1):
      log.advance(record(step))
      log.advance(None)


def test_metrics_are_cut_back_on_resume(tmp_path: pathlib.Path, capsys):
  run = Run(tmp_path)
  log_steps(run, 0, 5)
  log_steps(run, 3, 9)  # killed after 5, where the checkpoint was of 3
  assert [r['step'] for r in records(run)] == list(range(1, 10))
  assert 'going on from step 3' in capsys.readouterr().err


@pytest.mark.parametrize(
  'torn', ['{"step": 4, "lo', '{', '{"step": 2', '\x00\x00\n', '\n']
)
def test_a_torn_last_line_is_left_out(torn: str, tmp_path: pathlib.Path):
  run = Run(tmp_path)
  log_steps(run, 0, 3)
  with run.metrics.open('a') as file:
    file.write(torn)
  log_steps(run, 3, 5)
  assert [r['step'] for r in records(run)] == [1, 2, 3, 4, 5]


def test_a_fresh_start_leaves_no_old_metrics(tmp_path: pathlib.Path):
  """Killed before the first checkpoint: all of it is done again."""
  run = Run(tmp_path)
  log_steps(run, 0, 3)
  log_steps(run, 0, 2)
  assert [r['step'] for r in records(run)] == [1, 2]


def test_dev_perplexity_is_logged(tmp_path: pathlib.Path, capsys):
  run = Run(tmp_path)
  with Log(run, 0, 2) as log:
    log.dev(2, 3.5)
  assert records(run) == [{'step': 2, 'dev_perplexity': 3.5}]
  assert 'step 2: checkpoint saved, dev perplexity 3.500' in capsys.readouterr().err
  assert list((tmp_path / 'events').iterdir())


def test_an_error_before_the_first_step_is_not_hidden(tmp_path: pathlib.Path):
  with pytest.raises(MemoryError, match='of the device'), Log(Run(tmp_path), 0, 2):
    raise MemoryError('of the device')
