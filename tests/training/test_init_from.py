"""Fine-tuning: a run that starts from another one's model and vocabulary."""

import pathlib
import shutil

import jax
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


def test_starts_with_its_parameters(tmp_path: pathlib.Path):
  """At step 0 with a new optimiser; its vocabulary encodes the new corpus."""
  workdir, parent = tmp_path / 'tuned', untrained.write(tmp_path)
  other = corpus.write_raw(tmp_path / 'other')
  changes = {'data.name': 'new', 'data.raw_dir': str(other), 'model.vocab_size': 50}
  changes |= {'tokens_per_batch': 64, 'model.P_drop': 0.3}
  config = tiny(**untrained.SIZES | changes)
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
  assert Run.open(workdir, config, prepared).config().init_from == config.init_from
  shutil.copy(other / 'train.de', parent / 'vocabulary.model')
  again = prepare.ensure(config, LINES, tmp_path / 'again', run=workdir)
  assert Corpus.open(again).card.identity == about.identity, 'the run has it already'
  (parent / 'checkpoints' / '10' / 'manifest.json').write_text('{}')
  with pytest.raises(UserError, match='not the checkpoint that this run was to start'):
    trainer.initialize()
  with pytest.raises(UserError, match=r'\(task\) than .*: give --config.task=trans'):
    start_from(tiny(**untrained.SIZES, task='parsing'), parent, tmp_path / 'parser')
