"""Fine-tuning: a run that starts from another one's model and vocabulary."""

import json
import pathlib
import shutil

import jax
import ml_collections
import numpy as np
import pytest

from toy import corpus, untrained
from toy.config import tiny
from transformer_jax.data.corpus import Corpus
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import prepare
from transformer_jax.runs.run import Run, start_from
from transformer_jax.tasks import LINES
from transformer_jax.training import checkpoint
from transformer_jax.training.trainer import Trainer


@pytest.fixture(scope='module')
def texts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Writes a run in `run`, and other text in `other`."""
  folder = tmp_path_factory.mktemp('tuned')
  untrained.write(folder)
  corpus.write_raw(folder / 'other')
  return folder


@pytest.fixture
def parent(texts: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  """Returns a copy of the run."""
  return shutil.copytree(texts / 'run', tmp_path / 'parent')


def config_of(texts: pathlib.Path, **changes: object) -> ml_collections.ConfigDict:
  text = {'data.name': 'new', 'data.raw_dir': str(texts / 'other')}
  settings = untrained.SIZES | text | {'model.vocab_size': 50, 'tokens_per_batch': 64}
  return tiny(**settings | changes)


def test_starts_with_its_parameters(texts, parent: pathlib.Path, tmp_path):
  """At step 0 with a new optimiser; its vocabulary encodes the new corpus."""
  config, workdir = config_of(texts, **{'model.P_drop': 0.3}), tmp_path / 'run'
  start_from(config, parent, workdir)
  assert config.data.name.startswith('new.') and config.is_locked
  assert config.init_from.step == untrained.STEP
  folder = prepare.ensure(config, LINES, tmp_path / 'data')
  words = [path / 'vocabulary.model' for path in (folder, parent)]
  assert words[0].read_bytes() == words[1].read_bytes()
  prepared = Corpus.open(folder)
  about = prepared.card
  assert about.vocabulary.from_run and about.corpus['model.vocab_size'] == 60
  trainer = Trainer(config, prepared.split('train'))
  state = trainer.restore(workdir / 'checkpoints')
  assert state.step == 0 and not any(x.any() for x in jax.tree.leaves(state.opt_state))
  shapes = jax.tree.map(np.asarray, state.params)
  theirs = checkpoint.restore_params(parent / 'checkpoints', untrained.STEP, shapes)
  jax.tree.map(np.testing.assert_array_equal, shapes, theirs)

  run = Run.open(workdir, config, prepared)
  assert run.config().init_from == config.init_from
  run.metrics.write_text('{"step": 1, "loss": 1.0}\n')
  shutil.copytree(parent / 'checkpoints' / '10', parent / 'checkpoints' / '20')
  again = config_of(texts, **{'model.P_drop': 0.3})
  start_from(again, parent, workdir)
  assert again.init_from == config.init_from, 'the same command goes on'
  fresh = config_of(texts)
  start_from(fresh, parent, tmp_path / 'fresh')
  assert fresh.init_from.step == 20, 'a new run starts from the newest'
  (parent / 'metrics.jsonl').write_text('{"step": 10, "dev_perplexity": 2.0}\n')
  settings = json.loads((parent / 'config.json').read_text())
  (parent / 'config.json').write_text(json.dumps(settings | {'best_by': 'perplexity'}))
  for step in '10', 'best':
    start_from(fresh, pathlib.Path(f'{parent}:{step}'), tmp_path / 'fresh')
    assert fresh.init_from.step == 10
  with pytest.raises(UserError, match=f'{parent}:15: no such .* 10, 20'):
    start_from(fresh, pathlib.Path(f'{parent}:15'), tmp_path / 'fresh')
  (parent / 'checkpoints' / '10' / 'manifest.json').write_text('{}')
  with pytest.raises(UserError, match='not the checkpoint that this run was to start'):
    trainer.initialize()


def test_another_vocabulary_is_refused(texts, parent: pathlib.Path, tmp_path):
  config = config_of(texts)
  start_from(config, parent, tmp_path / 'run')
  kept = tmp_path / 'moved'
  kept.mkdir()
  shutil.copy(parent / 'vocabulary.model', kept)
  shutil.copy(texts / 'other' / 'train.de', parent / 'vocabulary.model')
  with pytest.raises(UserError, match='is not the vocabulary .* that new.* is to be'):
    prepare.ensure(config, LINES, tmp_path / 'data')
  folder = prepare.ensure(config, LINES, tmp_path / 'data', run=kept)
  assert Corpus.open(folder).card.vocabulary.from_run, 'the run has it already'


@pytest.mark.parametrize(
  ('changes', 'lacks', 'message'),
  [
    ({}, 'config.json', 'is .* a run'),
    ({}, 'checkpoints/10/manifest.json', 'no finished check'),
    ({'task': 'parsing'}, '', r'\(task\) than .*: give --config.task=trans'),
    ({'model.N': 3, 'model.d_ff': 64}, '', r'\(model.N, model.d_ff\) than the con'),
  ],
)
def test_refuses(changes: dict, lacks: str, message: str, texts, parent, tmp_path):
  if lacks:
    (parent / lacks).unlink()
  with pytest.raises(UserError, match=message):
    start_from(config_of(texts, **changes), parent, tmp_path / 'run')
