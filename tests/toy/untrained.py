"""A prepared corpus and the folder of a run on it, whose parameters are random."""

import pathlib
import shutil
from typing import Any

import numpy as np

from toy import checkpoints, corpus, forms
from toy.config import tiny
from transformer_jax.model import build

WORDS = 'one, two three four. "five" six seven-up eight nine ten'.split()
SIZES = {'model.N': 2, 'model.h': 3}
STEP = 10
SETTINGS = {
  'average_last': 1,
  'checkpoint_every_steps': STEP,
  'slices': 1,
  'extra_length': 0,
  'decode_dtype': 'float32',
  'train_steps': STEP,
}


def write(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
  """Writes `folder`/run beside data/toy; `changes` are keys of its config."""
  config = tiny(**SIZES | SETTINGS | changes)
  raw = corpus.write_raw(folder / 'raw', 200, 12, 12, english=WORDS, order=-1)
  corpus.prepare(raw, config)
  prepared, workdir = folder / 'data' / 'toy', folder / 'run'
  workdir.mkdir()
  for path in (prepared / 'card.json', *prepared.glob('vocabulary*')):
    shutil.copy(path, workdir)
  (workdir / 'config.json').write_text(config.to_json_best_effort())
  params = forms.random_like(build.architecture(config)[1], 0.4, seed=4)
  checkpoints.save(workdir / 'checkpoints', STEP, params, {'count': np.zeros(())})
  return workdir
