"""Training speed of a config, on its prepared corpus or on one fixed shape.

  python -m scripts.benchmark --config=configs/multi30k.py:en-de --steps=60
  python -m scripts.benchmark --config=configs/multi30k.py:en-de --rows=256 --length=16
  python -m scripts.benchmark --config=configs/base.py:en-fr --what=input --steps=1000

The corpus gives non-padding target tokens/s over the real sequence of batches, input
included. A fixed shape is ROWS full pairs of LENGTH tokens a side in a batch: what to
compare with other programs' steps of the same shape. `--what=input` times what comes
before the model: start, memory, and the assembling of batches by one process.
"""

import json
import pathlib
import statistics
import time
from collections.abc import Callable

import ml_collections
import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax import batches, parallel, token_files
from transformer_jax.train import Trainer, TrainState
from transformer_jax.vocabulary import PAD

CONFIG = config_flags.DEFINE_config_file('config', None, 'What to time.')
STEPS = flags.DEFINE_integer('steps', 60, 'Steps that are timed.')
ROWS = flags.DEFINE_integer('rows', None, 'Pairs in a batch of one fixed shape.')
LENGTH = flags.DEFINE_integer('length', None, 'Tokens of a side of a fixed shape.')
WHAT = flags.DEFINE_enum('what', 'step', ['step', 'input'], 'What to time.')
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


def training(config: ml_collections.ConfigDict, corpus: pathlib.Path) -> dict:
  """Seconds a step and target tokens/s."""
  parallel.start(config.slices)
  trainer = Trainer(config, corpus)
  batch = trainer.batches.batch
  if ROWS.value is not None:
    if ROWS.value % config.slices:
      raise app.UsageError(f'--rows must be a multiple of slices={config.slices}')
    one = fixed(config, ROWS.value, LENGTH.value)
    trainer.batches.shapes = [batches.Shape(*one.source.shape[1:])]
    batch = lambda _: one
  state = trainer.initial()
  trainer.compile(state, iter)
  taken, tokens = seconds(trainer, state, batch)
  return {
    'shape': None if ROWS.value is None else [ROWS.value, LENGTH.value],
    'median_seconds': statistics.median(taken),
    'target_tokens_per_second': tokens / sum(taken),
    'padding': None if ROWS.value is not None else trainer.batches.padding,
    'device': parallel.describe_device(),
  }


def private_megabytes() -> float | None:
  """Memory of this process that no file backs; None where the system does not say."""
  path = pathlib.Path('/proc/self/smaps_rollup')
  if not path.is_file():
    return None
  lines = path.read_text().splitlines()
  return next(int(x.split()[1]) / 1000 for x in lines if x.startswith('Anonymous:'))


def input_pipeline(config: ml_collections.ConfigDict, corpus: pathlib.Path) -> dict:
  """Seconds to start and to order an epoch, private memory, tokens/s of batches."""
  before, begin = private_megabytes(), time.perf_counter()
  made = batches.Batches(
    *token_files.read_split(corpus, 'train'),
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
  start = time.perf_counter() - begin
  made.batch(0)
  first = time.perf_counter() - begin - start
  taken, tokens = [], 0
  for step in range(1, STEPS.value + 1):
    begin = time.perf_counter()
    batch = made.batch(step)
    taken.append(time.perf_counter() - begin)
    tokens += int((batch.target != PAD).sum())
  after = private_megabytes()
  return {
    'pairs': len(made.source),
    'start_seconds': start,
    'first_batch_seconds': first,
    'median_batch_seconds': statistics.median(taken),
    'target_tokens_per_second': tokens / sum(taken),
    'private_megabytes': None if before is None else after - before,
    'padding': made.padding,
  }


def main(_: list[str]) -> None:
  logging.set_verbosity(logging.WARNING)
  config = CONFIG.value
  corpus = prepare_data.prepare(config)
  measured = input_pipeline if WHAT.value == 'input' else training
  print(
    json.dumps(
      {'config': config.corpus, 'steps': STEPS.value} | measured(config, corpus)
    )
  )


if __name__ == '__main__':
  app.run(main)
