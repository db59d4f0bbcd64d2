"""A whole training in this process: what it keeps, and where it ends."""

import itertools
import pathlib

import pytest

from configs import base
from toy import corpus
from toy.untrained import SIZES
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint
from transformer_jax.training.perplexity import Perplexity
from transformer_jax.training.train import train


@pytest.mark.slow
def test_the_best_is_kept_and_patience_ends_it(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """The second checkpoint is the best; after two more, training ends."""
  corpus.prepare(corpus.write_raw(tmp_path / 'raw'))
  asked = corpus.config_of(corpus.CORPUS)
  config = base.get_config()
  config.update(asked)
  config.model.update(SIZES)
  config.update({'tokens_per_batch': 64, 'max_shapes': 1, 'average_last': 1})
  config.update({'train_steps': 9, 'checkpoint_every_steps': 1, 'keep_checkpoints': 1})
  config.update({'best_by': 'perplexity', 'patience': 2})
  measured = itertools.chain([5.0, 1.0, 3.0, 2.0], itertools.repeat(4.0))
  monkeypatch.setattr(Perplexity, '__call__', lambda self, params: next(measured))
  run = Run(tmp_path / 'new')
  train(config, run.workdir, tmp_path / 'data' / 'toy')
  assert checkpoint.steps(run.checkpoints) == [2, 4]
  assert run.best_step() == 2
  told = [r['dev_perplexity'] for r in run.records() if 'dev_perplexity' in r]
  assert told == [5.0, 1.0, 3.0, 2.0]
