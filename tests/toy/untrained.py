"""A prepared corpus and the folder of a run on it, whose parameters are random."""

import dataclasses
import pathlib
import shutil
from typing import Any

import numpy as np

from configs import base
from toy import corpus, forms
from transformer_jax.model import build
from transformer_jax.training import checkpoint

WORDS = 'one, two three four. "five" six seven-up eight nine ten'.split()
SIZES = {'N': 2, 'd_model': 16, 'd_ff': 32, 'h': 3, 'd_k': 8, 'd_v': 8}
STEP = 10


def write(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
  """Writes `folder`/run beside data/toy; `changes` are keys of its config."""
  raw = corpus.write_raw(folder / 'raw', 12, english=WORDS, order=-1)
  target_size = changes.get('model.target_vocab_size', 0)
  corpus.prepare(raw, dataclasses.replace(corpus.CORPUS, target_vocab_size=target_size))
  prepared, workdir = folder / 'data' / 'toy', folder / 'run'
  workdir.mkdir()
  for path in (prepared / 'card.json', *prepared.glob('vocabulary*')):
    shutil.copy(path, workdir)
  config = base.get_config()
  config.model.update(SIZES | {'vocab_size': corpus.CORPUS.vocab_size})
  config.update({'average_last': 1, 'checkpoint_every_steps': STEP, 'slices': 1})
  config.update({'extra_length': 0, 'decode_dtype': 'float32', 'data': {'name': 'toy'}})
  config.train_steps = STEP
  config.update_from_flattened_dict(changes)
  (workdir / 'config.json').write_text(config.to_json_best_effort())
  params = forms.random_like(build.architecture(config)[1], 0.4, seed=4)
  checkpoint.save(workdir / 'checkpoints', STEP, params, {'count': np.zeros(())})
  return workdir
