"""A run's folder belongs to one config and one corpus; its metrics are never double."""

import errno
import fcntl
import json
import pathlib
import socket
import subprocess
import sys

import ml_collections
import pytest

from configs import base
from scripts import prepare_data
from transformer_jax import corpora, vocabulary
from transformer_jax.corpora.embedded import Made
from transformer_jax.run import COUNTS, Busy, Log, Run, Silent

LINES = ['one two three four five', 'six seven eight nine ten']


def prepared(
  data_dir: pathlib.Path, name: str = 'toy', extra: str = ''
) -> pathlib.Path:
  pairs = [(line, line) for line in [*LINES, extra]]
  parts = {split: [Made(split, pairs, {})] for split in corpora.SPLITS}
  asked = prepare_data.asked(small_config())
  corpora.prepare(asked._replace(name=name), parts, data_dir)
  return data_dir / name


def small_config() -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.vocab_size = 30
  config.character_coverage, config.byte_fallback = 1.0, False
  config.cleaning.drop_identical = False
  return config


@pytest.fixture
def corpus(tmp_path: pathlib.Path) -> pathlib.Path:
  return prepared(tmp_path / 'data')


@pytest.fixture
def config() -> ml_collections.ConfigDict:
  return small_config()


def test_a_new_run(corpus, config, tmp_path: pathlib.Path):
  workdir = tmp_path / 'runs' / 'new'
  run = Run.open(workdir, config, corpus)
  assert sorted(path.name for path in workdir.iterdir()) == [
    'card.json',
    'config.json',
    'vocabulary.model',
  ]
  assert run.config().to_dict() == json.loads(config.to_json_best_effort())
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


def test_a_swapped_vocabulary_is_refused(corpus, config, tmp_path: pathlib.Path):
  """A good one of another corpus, which would decode to other words, and a torn one."""
  run = Run.open(tmp_path / 'run', config, corpus)
  path = run.workdir / 'vocabulary.model'
  ours = path.read_bytes()
  other = prepared(tmp_path / 'data', 'other', extra='nine nine nine nine one')
  for content in ((other / 'vocabulary.model').read_bytes(), ours[:-1], b''):
    path.write_bytes(content)
    for use in (
      run.vocabulary,
      lambda: run.check_vocabulary(corpus),
      lambda: Run.open(run.workdir, config, corpus),
    ):
      with pytest.raises(ValueError, match="is not the run's vocabulary") as caught:
        use()
      assert str(path) in str(caught.value) and '\n' not in str(caught.value)
  path.write_bytes(ours)
  assert len(run.vocabulary()) == 30


@pytest.mark.parametrize(
  ('key', 'value'),
  [(key, 0) for key in COUNTS] + [('beam', -1), ('average_last', -3)],
)
def test_counts_below_one(key, value, corpus, config, tmp_path: pathlib.Path):
  config[key] = value
  with pytest.raises(ValueError, match=rf'^{key}={value}: 1 or more \(--config\.{key}'):
    Run.open(tmp_path / 'run', config, corpus)
  assert not (tmp_path / 'run').exists()


def test_fewer_are_kept_than_averaged(corpus, config, tmp_path: pathlib.Path):
  config.keep_checkpoints, config.average_last = 4, 5
  with pytest.raises(ValueError, match='=4 are too few to average the last 5'):
    Run.open(tmp_path / 'run', config, corpus)
  config.average_last = 4
  Run.open(tmp_path / 'run', config, corpus)


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


# The lock

HOLD = """
import pathlib, sys
from transformer_jax.run import Run
with Run(pathlib.Path(sys.argv[1])).locked():
  print('locked', flush=True)
  sys.stdin.read()
"""


def holder(workdir: pathlib.Path) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, '-c', HOLD, str(workdir)],
    cwd=pathlib.Path(__file__).parents[1],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )


def test_a_folder_has_one_trainer(tmp_path: pathlib.Path):
  """Who has it is named; no lock outlives its process, however that ended."""
  run = Run(tmp_path / 'runs' / 'one')
  process = holder(run.workdir)
  assert process.stdout.readline() == b'locked\n'
  with pytest.raises(Busy) as caught, run.locked():
    pass
  assert f'in use by process {process.pid} on {socket.gethostname()}:' in str(
    caught.value
  )
  assert str(run.workdir) in str(caught.value)
  process.kill()
  process.communicate()
  with run.locked():
    pass
  process = holder(run.workdir)
  assert process.communicate() == (b'locked\n', None) and process.returncode == 0


def test_where_there_are_no_locks_it_says_so(tmp_path, monkeypatch, capsys):
  def unsupported(*_: object):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(fcntl, 'flock', unsupported)
  with Run(tmp_path).locked():
    pass
  assert 'lock: no lock (' in capsys.readouterr().out


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
  assert 'step 2: dev perplexity 3.500' in capsys.readouterr().err
  assert list((tmp_path / 'events').iterdir())


def test_an_error_before_the_first_step_is_not_hidden(tmp_path: pathlib.Path):
  with pytest.raises(MemoryError, match='of the device'), Log(Run(tmp_path), 0, 2):
    raise MemoryError('of the device')


def test_a_skipped_update_stands_in_the_metrics(tmp_path: pathlib.Path, capsys):
  run = Run(tmp_path)
  with Log(run, 0, 2) as log:
    log.skipped(1, [7, 8, 9, 10, 11, 12])
  assert run.records() == [{'step': 1, 'skipped_pairs': [7, 8, 9, 10, 11, 12]}]
  said = capsys.readouterr().err
  assert 'step 1: loss or gradient is not finite, update skipped' in said
  assert 'pairs 7, 8, 9, 10, 11 ... (6 in' in said


def test_no_records_before_the_first_step(tmp_path: pathlib.Path):
  assert Run(tmp_path).records() == []


def test_other_hosts_are_silent(capsys):
  with Silent() as log:
    assert list(log.compiling([1, 2])) == [1, 2]
    log.started()
    log.advance(record(1))
    log.dev(1, 2.0)
    log.saved(1)
    log.skipped(1, [1])
    log.say('a word')
  assert capsys.readouterr() == ('', '')
