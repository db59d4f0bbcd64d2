"""A prepared corpus and the folder of a run on it, whose parameters are random."""

import pathlib
import random
import shutil
from typing import Any

import jax
import msgspec
import numpy as np

from configs import base
from toy import corpus
from transformer_jax.model import build
from transformer_jax.training import checkpoint

WORDS = 'one, two three four. "five" six seven-up eight nine ten'.split()
SIZES = {'N': 2, 'd_model': 16, 'd_ff': 32, 'h': 3, 'd_k': 8, 'd_v': 8}
STEP = 10


def write(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
  """The run's folder in `folder`, beside data/toy; `changes` are keys of its config."""
  raw = folder / 'raw'
  raw.mkdir(parents=True)
  for seed, (stem, count) in enumerate((('train', 200), ('dev', 12), ('test', 12))):
    corpus.write(raw, stem, *_lines(count, seed))
  target_size = changes.get('model.target_vocab_size', 0)
  corpus.prepare(
    raw, msgspec.structs.replace(corpus.CORPUS, target_vocab_size=target_size)
  )
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
  noise = np.random.default_rng(4)
  fill = lambda x: noise.normal(size=x.shape, scale=0.4).astype(np.float32)
  params = jax.tree.map(fill, build.architecture(config)[1])
  checkpoint.save(workdir / 'checkpoints', STEP, params, {'count': np.zeros(())})
  return workdir


def _lines(count: int, seed: int) -> tuple[bytes, bytes]:
  """Number words, and the German ones in reverse order."""
  rng = random.Random(seed)
  rows = [rng.choices(range(10), k=rng.randint(1, 7)) for _ in range(count)]
  source = (' '.join(WORDS[i] for i in row) + '\n' for row in rows)
  target = (' '.join(corpus.GERMAN[i] for i in row[::-1]) + '\n' for row in rows)
  return ''.join(source).encode(), ''.join(target).encode()
