"""A run's folder belongs to one config, one corpus and one trainer at a time."""

import json
import pathlib
import shutil

import ml_collections
import pytest

from toy.config import tiny
from toy.corpus import GERMAN, WORDS, prepare, write_raw
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import RESUMABLE, Run, find_parent, start_from


def prepared(folder: pathlib.Path, name: str, own: int = 0) -> pathlib.Path:
  """Prepares a corpus; any but 'toy' has the German words on both sides.

  `own` is the size of the target's own vocabulary.
  """
  raw = write_raw(folder / 'raw', english=WORDS if name == 'toy' else GERMAN)
  prepare(raw, tiny(**{'data.name': name, 'model.target_vocab_size': own}))
  return folder / 'data' / name


@pytest.fixture(scope='module')
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return prepared(tmp_path_factory.mktemp('data'), 'toy')


@pytest.fixture(scope='module')
def other_corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return prepared(tmp_path_factory.mktemp('data'), 'other')


@pytest.fixture
def config() -> ml_collections.ConfigDict:
  return tiny()


@pytest.fixture
def run(tmp_path: pathlib.Path, config, corpus: pathlib.Path) -> Run:
  return Run.open(tmp_path / 'runs' / 'new', config, Corpus.open(corpus))


@pytest.fixture
def started(run: Run) -> Run:
  """Returns the same run after its first steps."""
  run.metrics.write_text('{"step": 5, "loss": 1.0}\n')
  return run


def test_what_a_resumed_run_may_change(started: Run, corpus, config):
  """What is kept and logged, and its steps; the newest settings stay with the run."""
  assert RESUMABLE == {
    *('data.raw_dir', 'train_steps', 'checkpoint_every_steps', 'keep_checkpoints'),
    *('bleu_every_checkpoints', 'bleu_sentences', 'patience', 'decode_tokens'),
    *('kernels', 'log_every_steps'),
  }
  before = (started.workdir / 'config.json').read_bytes()
  Run.open(started.workdir, config, Corpus.open(corpus))
  assert (started.workdir / 'config.json').read_bytes() == before
  assert started.changes(config) == []
  config.update(keep_checkpoints=7, decode_tokens=512, kernels='plain', patience=9)
  config.update(log_every_steps=3, bleu_sentences=9, train_steps=config.train_steps + 5)
  assert 'keep_checkpoints is now 7, before' in ' '.join(started.changes(config))
  Run.open(started.workdir, config, Corpus.open(corpus))
  assert started.config().keep_checkpoints == 7 and started.changes(config) == []


def test_dev_bleu_stays_of_the_same_sentences(started: Run, corpus):
  settings = started.config().to_dict() | {'best_by': 'bleu', 'bleu_sentences': 9}
  files.write_json(started.workdir / 'config.json', settings)
  started.check_config(settings)
  with pytest.raises(UserError, match='differ: bleu_sentences'):
    started.check_config(settings | {'bleu_sentences': 8})


def test_the_run_of_another_config_is_refused(started: Run, corpus):
  """The message names all keys that differ but train_steps."""
  before = (started.workdir / 'config.json').read_bytes()
  several = {'beam': 3, 'model.P_drop': 0.25, 'rate_factor': 2.0, 'seed': 2}
  several['train_steps'] = 200_000
  for changes, differ in (
    (several, 'beam, model.P_drop, rate_factor, seed. .*--workdir'),
    ({'row': 'A1'}, 'row'),
    ({'best_by': 'perplexity'}, 'best_by'),
  ):
    with pytest.raises(UserError, match=f'differ: {differ}'):
      Run.open(started.workdir, tiny(**changes), Corpus.open(corpus))
  assert (started.workdir / 'config.json').read_bytes() == before


def test_a_run_resumes_with_its_own_text_alone(
  started: Run, corpus, other_corpus, config, tmp_path
):
  """Other text has other batches, and another curve on dev."""
  folder = shutil.copytree(corpus, tmp_path / 'data' / 'toy')
  listed = json.loads((folder / 'card.json').read_text())
  (folder / 'card.json').write_text(json.dumps(listed | {'identity': 'f' * 64}))
  for other, what in (folder, 'text'), (other_corpus, 'vocabulary'):
    with pytest.raises(UserError, match=f'has another {what} than the run.s corpus'):
      Run.open(started.workdir, config, Corpus.open(other))
  with pytest.raises(UserError, match='has another vocabulary than'):
    started.open_corpus(other_corpus)
  train = f'by scripts.train --workdir={started.workdir}'
  with pytest.raises(UserError, match=f"none: the run's corpus is missing.*{train}"):
    started.open_corpus(tmp_path / 'none')
  assert started.open_corpus(corpus).folder == corpus
  Run.open(started.workdir, config, Corpus.open(corpus))


def test_before_its_first_step_a_run_may_change(run: Run, config, other_corpus):
  """A message, such as of memory, may have advised another config."""
  config.slices = 4
  Run.open(run.workdir, config, Corpus.open(other_corpus))
  assert run.config().slices == 4
  run.open_corpus(other_corpus)


def test_a_swapped_vocabulary_is_refused(config, tmp_path: pathlib.Path):
  """One of the targets' own is copied too; another would decode to other words."""
  folder = prepared(tmp_path, 'toy', own=40)
  config.model.target_vocab_size = 40
  run = Run.open(tmp_path / 'run', config, Corpus.open(folder))
  assert [*map(len, run.vocabularies())] == [60, 40]
  run.metrics.write_text('{"step": 5, "loss": 1.0}\n')
  shutil.copy(run.workdir / 'vocabulary.model', run.workdir / 'vocabulary.target.model')
  again = lambda: Run.open(run.workdir, config, Corpus.open(folder))
  for read in run.vocabularies, again:
    with pytest.raises(
      UserError, match=r"target.model \(.*is not the run's vocabulary"
    ):
      read()


def test_fewer_steps_than_a_run_has(run: Run, corpus, config):
  run.metrics.write_text('{"step": 30}\n')
  config.train_steps = 29
  with pytest.raises(UserError, match='has 30 steps: train_steps=29 would be another'):
    Run.open(run.workdir, config, Corpus.open(corpus))
  config.train_steps = 30
  Run.open(run.workdir, config, Corpus.open(corpus))


SAVED = '{"step": 57, "loss": 1.0}\n{"step": 50, "saved": true}\n'


@pytest.mark.parametrize('rest', ['metrics.jsonl', 'translations'])
def test_checkpoints_that_are_gone(rest: str, run: Run, corpus, config):
  """A new training would mix with the metrics and results of the old one."""
  run.metrics.write_text(SAVED)
  (run.workdir / 'translations').mkdir()
  (run.checkpoints / '50').mkdir(parents=True)
  Run.open(run.workdir, config, Corpus.open(corpus))
  (run.checkpoints / '50').rmdir()
  if rest != 'metrics.jsonl':
    run.metrics.unlink()
  with pytest.raises(UserError, match=f'has no checkpoint, but .*{rest} tells of'):
    Run.open(run.workdir, config, Corpus.open(corpus))
  shutil.rmtree(run.workdir / 'translations')
  run.metrics.unlink(missing_ok=True)
  Run.open(run.workdir, config, Corpus.open(corpus))


def test_a_half_written_run_is_written_again(corpus, config, tmp_path: pathlib.Path):
  """config.json is written last; without it, torn files are written again."""
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'vocabulary.model').write_bytes(b'torn')
  run = Run.open(tmp_path / 'run', config, Corpus.open(corpus))
  expected = Vocabulary(corpus / 'vocabulary.model').sha256
  assert run.vocabularies().source.sha256 == expected


def test_a_damaged_config(tmp_path: pathlib.Path):
  (tmp_path / 'config.json').write_text('{"tusk": "x"}')
  with pytest.raises(UserError, match='config.json: tusk is unknown'):
    Run(tmp_path).config()


def test_training_so_far_is_up_to_the_step(tmp_path: pathlib.Path):
  """Later records do not count."""
  record = {'target_tokens': 5, 'seconds': 2.0, 'device': 'one'}
  commits = {10: 'a', 20: 'b', 30: 'c'}
  records = [{'step': step, 'commit': c} | record for step, c in commits.items()]
  records.insert(2, {'step': 20, 'dev_perplexity': 9.0})
  text = ''.join(json.dumps(line) + '\n' for line in records)
  (tmp_path / 'metrics.jsonl').write_text(text)
  assert Run(tmp_path).training_so_far(20) == {
    'target_tokens_seen': 10,
    'wall_seconds': 4.0,
    'training_device': 'one',
    'training_commit': 'a; b',
  }


def test_a_folder_has_one_trainer(tmp_path: pathlib.Path):
  run = Run(tmp_path / 'runs' / 'one')
  with run.locked():
    with pytest.raises(UserError, match=f'{run.workdir} is in use by process \\d+ on '):
      with Run(run.workdir).locked():
        pass
  with run.locked():
    pass


def test_a_run_starts_from_another(started: Run, tmp_path: pathlib.Path):
  """From its newest checkpoint, a step or the best; going on, from the one before."""
  manifest = lambda step: started.checkpoints / str(step) / 'manifest.json'
  resumed = Run(tmp_path / 'resumed')

  def start(chosen: str = '', **model: int) -> ml_collections.ConfigDict:
    config = tiny(**{f'model.{k}': n for k, n in ({'vocab_size': 50} | model).items()})
    start_from(config, pathlib.Path(f'{started.workdir}{chosen}'), resumed.workdir)
    return config

  with pytest.raises(UserError, match='no finished checkpoint to start from'):
    start()
  for step in (5, 10):
    manifest(step).parent.mkdir(parents=True)
    manifest(step).write_text(f'{{"step": {step}}}')
  new = start()
  assert new.init_from.to_dict() == {
    'run': str(started.workdir.resolve()),
    'step': 10,
    'sha256': files.sha256(manifest(10)),
    'vocabulary': files.sha256(started.workdir / 'vocabulary.model'),
  }
  assert new.model.vocab_size == 60 and new.data.name.startswith('toy.')
  assert find_parent(new.init_from) == (started, 10)
  assert start(':5').init_from.step == 5
  resumed.workdir.mkdir()
  (resumed.workdir / 'config.json').write_text(start(':5').to_json_best_effort())
  assert start().init_from.step == 10, 'it has no step yet'
  resumed.metrics.write_text('{"step": 1}\n')
  assert start().init_from == start(':5').init_from
  manifest(5).rename(tmp_path / 'tidied')
  for chosen in ':5', ':best':
    assert start(chosen).init_from.step == 5, 'it needs no checkpoint of its parent'
  (tmp_path / 'tidied').rename(manifest(5))
  config = files.read_json_object(started.workdir / 'config.json')
  files.write_json(started.workdir / 'config.json', config | {'best_by': 'perplexity'})
  lines = ({'step': n, 'dev_perplexity': n} for n in (10, 5))
  started.metrics.write_text(''.join(json.dumps(x) + '\n' for x in lines))
  resumed.metrics.unlink()
  assert start(':best').init_from.step == 5
  with pytest.raises(UserError, match=':7: no such checkpoint; the steps are 5, 10'):
    start(':7')
  with pytest.raises(
    UserError, match='give --config.model.N=1 --config.model.d_ff=32$'
  ):
    start(N=3, d_ff=64)
  for spoil in (lambda: manifest(10).write_text('{}')), manifest(10).unlink:
    spoil()
    with pytest.raises(UserError, match='not the checkpoint that this run was to s'):
      find_parent(new.init_from)
  resumed.metrics.write_text('{"step": 1}\n')
  started.workdir.rename(tmp_path / 'gone')
  with pytest.raises(UserError, match='resumed goes on without it: leave out --config'):
    start()
