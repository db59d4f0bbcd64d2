"""Training speed of a config, on its prepared corpus or on one fixed shape.

  python -m scripts.benchmark --config=configs/multi30k.py:en-de --steps=60
  python -m scripts.benchmark --config=configs/multi30k.py:en-de --rows=256 --length=16

The corpus gives non-padding target tokens/s over the real sequence of batches, input
included. A fixed shape is ROWS full pairs of LENGTH tokens a side in a batch: what to
compare with other programs' steps of the same shape.
"""

import json
import statistics
import time
from collections.abc import Callable

import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax import batches, parallel
from transformer_jax.train import Trainer, TrainState

CONFIG = config_flags.DEFINE_config_file('config', None, 'What to time.')
STEPS = flags.DEFINE_integer('steps', 60, 'Steps that are timed.')
ROWS = flags.DEFINE_integer('rows', None, 'Pairs in a batch of one fixed shape.')
LENGTH = flags.DEFINE_integer('length', None, 'Tokens of a side of a fixed shape.')
flags.mark_flags_as_required(['config'])

WARM_UP = 3  # steps that are not timed
FIRST_WORD = 4  # ids below are PAD, EOS, BOS, UNK


def fixed(config: ml_collections.ConfigDict, rows: int, length: int) -> batches.Batch:
  """Random pairs without padding, in the config's slices."""
  size = (config.slices, rows // config.slices, length)
  random = np.random.default_rng(0)
  draw = lambda: random.integers(FIRST_WORD, config.model.vocab_size, size, np.int32)
  return batches.Batch(draw(), draw(), np.zeros(size[:2], np.int64))


def seconds(
  trainer: Trainer, state: TrainState, batch: Callable[[int], batches.Batch]
) -> tuple[list[float], int]:
  """Seconds of each timed step, and the target tokens of all of them."""
  taken, tokens = [], 0
  for step in range(-WARM_UP, STEPS.value):
    begin = time.perf_counter()
    state, sums = trainer.step(state, batch(step + WARM_UP))
    counted = int(sums.tokens)  # waits for the step
    if step >= 0:
      taken.append(time.perf_counter() - begin)
      tokens += counted
  return taken, tokens


def main(_: list[str]) -> None:
  logging.set_verbosity(logging.WARNING)
  config = CONFIG.value
  parallel.start(config.slices)
  trainer = Trainer(config, prepare_data.prepare(config))
  batch = trainer.batches.batch
  if ROWS.value is not None:
    if ROWS.value % config.slices:
      raise app.UsageError(f'--rows must be a multiple of slices={config.slices}')
    one = fixed(config, ROWS.value, LENGTH.value)
    trainer.batches.shapes = [batches.Shape(*one.source.shape[1:])]
    batch = lambda _: one
  trainer.compile(iter)
  state = trainer.devices.replicate(trainer.initial)
  taken, tokens = seconds(trainer, state, batch)
  print(
    json.dumps(
      {
        'config': config.corpus,
        'shape': None if ROWS.value is None else [ROWS.value, LENGTH.value],
        'steps': STEPS.value,
        'median_seconds': statistics.median(taken),
        'target_tokens_per_second': tokens / sum(taken),
        'padding': None if ROWS.value is not None else trainer.batches.padding,
        'device': parallel.describe_device(),
      }
    )
  )


if __name__ == '__main__':
  app.run(main)
