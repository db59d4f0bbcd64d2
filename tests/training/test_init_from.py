"""Fine-tuning: a run that starts from another one's model and vocabulary."""

import json
import pathlib
import shutil

import jax
import ml_collections
import numpy as np
import pytest

from configs import base
from toy import corpus, untrained
from transformer_jax.data import card, prepare
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run, start_from
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training import checkpoint
from transformer_jax.training.trainer import Trainer


@pytest.fixture(scope='module')
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A run in `run`, and other text in `other`."""
  folder = tmp_path_factory.mktemp('tuned')
  untrained.write(folder)
  corpus.write_raw(folder / 'other')
  return folder


@pytest.fixture
def origin(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  """A copy of the run."""
  return shutil.copytree(made / 'run', tmp_path / 'origin')


def config_of(made: pathlib.Path, **changes: object) -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.update(untrained.SIZES | {'vocab_size': 50})
  files = {'train': ('train',), 'dev': ('dev',), 'test': ('test',)}
  config.data.update({'name': 'new', 'reader': 'files', 'files': files})
  config.data.raw_dir = str(made / 'other')
  config.update({'slices': 8, 'tokens_per_batch': 64})
  config.update_from_flattened_dict(changes)
  return config


def test_starts_with_its_parameters(made, origin: pathlib.Path, tmp_path):
  """At step 0 with a new optimiser; its vocabulary encodes the new corpus."""
  config, workdir = config_of(made, **{'model.P_drop': 0.3}), tmp_path / 'run'
  start_from(config, origin, workdir)
  assert config.data.name.startswith('new.') and config.is_locked
  assert config.init_from.step == untrained.STEP
  folder = prepare.prepare_corpus(config, TRANSLATION, tmp_path / 'data')
  words = [place / 'vocabulary.model' for place in (folder, origin)]
  assert words[0].read_bytes() == words[1].read_bytes()
  about = card.read_card(folder)
  assert about.vocabulary.from_run and about.corpus['vocab_size'] == 60
  trainer = Trainer(config, folder)
  state = trainer.restore(workdir / 'checkpoints')
  assert state.step == 0 and not any(x.any() for x in jax.tree.leaves(state.opt_state))
  shapes = jax.tree.map(np.asarray, state.params)
  theirs = checkpoint.restore_params(origin / 'checkpoints', untrained.STEP, shapes)
  jax.tree.map(np.testing.assert_array_equal, shapes, theirs)

  run = Run.open(workdir, config, folder)
  assert run.config().init_from == config.init_from
  run.metrics.write_text('{"step": 1, "loss": 1.0}\n')
  shutil.copytree(origin / 'checkpoints' / '10', origin / 'checkpoints' / '20')
  again = config_of(made, **{'model.P_drop': 0.3})
  start_from(again, origin, workdir)
  assert again.init_from == config.init_from, 'the same command goes on'
  fresh = config_of(made)
  start_from(fresh, origin, tmp_path / 'fresh')
  assert fresh.init_from.step == 20, 'a new run starts from the newest'
  (origin / 'checkpoints' / '10' / 'manifest.json').write_text('{}')
  with pytest.raises(UserError, match='not the checkpoint that this run was to start'):
    trainer.initial()


def test_another_vocabulary_than_before(made, origin: pathlib.Path, tmp_path):
  config = config_of(made)
  start_from(config, origin, tmp_path / 'run')
  kept = tmp_path / 'moved'
  kept.mkdir()
  shutil.copy(origin / 'vocabulary.model', kept)
  shutil.copy(made / 'other' / 'train.de', origin / 'vocabulary.model')
  with pytest.raises(UserError, match='is not the vocabulary .* that new.* is to be'):
    prepare.prepare_corpus(config, TRANSLATION, tmp_path / 'data')
  folder = prepare.prepare_corpus(config, TRANSLATION, tmp_path / 'data', run=kept)
  assert card.read_card(folder).vocabulary.from_run, 'a run that has begun has it'


def edit(origin: pathlib.Path, **values: object) -> None:
  path = origin / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (lambda origin: (origin / 'config.json').unlink(), 'is .* a run'),
    (lambda origin: shutil.rmtree(origin / 'checkpoints' / '10'), 'no finished check'),
    (
      lambda origin: edit(origin, task='parsing'),
      'is a run of parsing, and the config of translation',
    ),
    (
      lambda origin: (origin / 'vocabulary.model').write_bytes(b'x'),
      "is not the run's vocabulary",
    ),
  ],
)
def test_what_is_no_origin(spoil, message: str, made, origin, tmp_path: pathlib.Path):
  spoil(origin)
  with pytest.raises(UserError, match=message):
    start_from(config_of(made), origin, tmp_path / 'run')


def test_other_sizes(made, origin: pathlib.Path, tmp_path: pathlib.Path):
  """The refusal says what to give."""
  config = config_of(made, **{'model.N': 3, 'model.d_ff': 64})
  give = r'sizes .model\.N, model\.d_ff. than the config: give --config.model.N=2 --con'
  with pytest.raises(UserError, match=give):
    start_from(config, origin, tmp_path / 'run')
