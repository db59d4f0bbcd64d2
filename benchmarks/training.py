"""How fast training is, beside other programs, and how long it takes to begin.

As a program, `python -m benchmarks.training CONFIG.json CORPUS START` prints what
take_steps() returns, by which time_start() times a start with an empty and with a
filled cache.
"""

import functools
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Protocol

import jax
import ml_collections
import numpy as np

from benchmarks.timing import OURS, columns, interleave, matrix_products
from transformer_jax.data import batches
from transformer_jax.data.corpus import read_split, token_writer
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK
from transformer_jax.machine import platform, signals
from transformer_jax.machine.errors import UserError, report_user_errors
from transformer_jax.model import flops
from transformer_jax.training.trainer import Trainer

FIRST_WORD = max(PAD, EOS, BOS, UNK) + 1


class Program(Protocol):
  """A model and its optimizer: ours, or another program's of our sizes."""

  def step(self, batch: batches.Batch) -> None:
    """Starts an update; each row of the batch ends with EOS and padding."""

  def wait(self) -> float:
    """Waits until all updates are done; returns the last loss per target token."""


class Ours:
  """A trainer's updates, in the order of training/loop.py.

  That is, an update starts while the one before it runs; then that one's sums are read.
  """

  def __init__(self, trainer: Trainer):
    self._trainer, self._state, self._sums = trainer, trainer.initialize(), None
    self.notes: list[str] = []  # such as that a kernel did not compile
    with trainer.compile(self._state, trainer.batches.shapes, self._say):
      trainer.wait_for_all_programs()

  def _say(self, note: str) -> None:
    print(note, file=sys.stderr, flush=True)
    self.notes.append(note)

  def step(self, batch: batches.Batch) -> None:
    before = self._sums
    self._state, self._sums = self._trainer.step(self._state, batch)
    if before is not None:
      jax.device_get(before)

  def wait(self) -> float:
    return float(self._sums.loss / self._sums.tokens)


def measure(
  config: ml_collections.ConfigDict,
  corpus: pathlib.Path,
  rivals: Mapping[str, Program],
  each: int,
  rounds: int,
) -> dict:
  """Times `rounds` rounds of `each` updates by every program; one object for JSON."""
  trainer = Trainer(config, read_split(corpus, 'train'))
  ours = Ours(trainer)
  programs = {OURS: ours, **rivals}
  for shape in trainer.batches.shapes:  # warm-up
    for program in programs.values():
      program.step(full_batch(trainer, shape))
      program.wait()

  def one_round(program: Program, number: int) -> None:
    for step in range(number * each, (number + 1) * each):
      program.step(trainer.batch(step))
    program.wait()

  calls = {name: functools.partial(one_round, p) for name, p in programs.items()}
  seconds = interleave(calls, rounds)
  tokens = [
    sum(trainer.batch(step).target_tokens for step in range(i * each, (i + 1) * each))
    for i in range(rounds)
  ]
  rates = columns(seconds, {'target_tokens': tokens, 'steps': [each] * rounds})
  products = matrix_products(platform.training_dtype(config.dtype))
  per_token = flops_per_target_token(config, trainer.batches)
  achieved = rates[OURS]['target_tokens_per_second'] * per_token
  return {
    'dtype': products['dtype'],
    'shapes': [list(shape) for shape in trainer.batches.shapes],
    'padding': trainer.batches.padding,
    'steps_of_a_round': each,
    'notes': ours.notes,
    'target_tokens': tokens,
    'columns': rates,
    'flops_per_target_token': per_token,
    'matrix_products': products,
    'model_flops_utilisation': achieved / products['flops_per_second'],
  }


def flops_per_target_token(
  config: ml_collections.ConfigDict, training: batches.Batches
) -> int:
  """Returns model FLOPs of training, if all sentences had the mean target length."""
  length = round(len(training.target.tokens) / len(training.target) + 1)
  return flops.flops_per_target_token(config.model.to_dict(), length)


# A corpus of one batch


def random_words(count: int, length: int, vocab_size: int, seed: int) -> np.ndarray:
  """Returns ids, [count, length - 1]; EOS, which is added later, is the last token."""
  random = np.random.default_rng(seed)
  return random.integers(FIRST_WORD, vocab_size, (count, length - 1), np.int32)


def write_corpus(
  config: ml_collections.ConfigDict, rows: int, length: int, folder: pathlib.Path
) -> ml_collections.ConfigDict:
  """Writes a training set of one batch without padding; returns its config.

  Raises:
    UserError: the rows are not divisible by the config's slices.
  """
  if rows % config.slices:
    raise UserError(f'--rows={rows} must be a multiple of slices={config.slices}')
  shared = config.model.vocab_size
  sizes = {'source': shared, 'target': config.model.target_vocab_size or shared}
  for seed, (side, size) in enumerate(sizes.items()):
    words = random_words(rows, length, size, seed)
    with token_writer(folder / f'train.{side}') as append:
      append(words.ravel(), np.full(rows, length - 1))
  config = config.copy_and_resolve_references()
  config.tokens_per_batch = rows * length
  return config


def full_batch(trainer: Trainer, shape: batches.Shape) -> batches.Batch:
  """Returns this host's slices of a batch of this shape that has no padding."""
  slices = len(trainer.batch(0).source)
  side = lambda most: np.full((slices, shape.rows, most), FIRST_WORD, np.int32)
  pairs = np.zeros((slices, shape.rows), np.int64)
  return batches.Batch(side(shape.source), side(shape.target), pairs)


# The start of a program


def time_start(
  config: ml_collections.ConfigDict, corpus: pathlib.Path, folder: pathlib.Path
) -> dict:
  """Times two processes that start to train, the second with what the first compiled.

  Args:
    folder: an empty one. Its folder `compiled` keeps the compiled programs.

  Returns:
    `cold` and `warm`, each what take_steps() returns.

  Raises:
    UserError: a process failed; it has said why on stderr.
  """
  path = folder / 'config.json'
  path.write_text(config.to_json_best_effort())
  environment = os.environ | {'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled')}
  results = {}
  for name in 'cold', 'warm':
    command = [sys.executable, '-m', __name__, str(path), str(corpus)]
    command.append(str(time.time()))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
      raise UserError(f'{" ".join(command)} failed: exit code {done.returncode}')
    results[name] = json.loads(done.stdout)
  return results


def take_steps(
  config: ml_collections.ConfigDict, corpus: pathlib.Path, begin: float
) -> dict:
  """Makes an update of every shape of batch.

  Args:
    begin: when the process was started, as time.time().

  Returns:
    `first_step_seconds`, from `begin` to the end of the first update;
    `compile_seconds`, after which all shapes were compiled; and the `peak_bytes` of the
    first device's memory, or of the whole process's where devices do not tell (a CPU).
  """
  platform.start(config.slices)
  trainer = Trainer(config, read_split(corpus, 'train'))
  state = trainer.initialize()
  start = time.time()
  with trainer.compile(state, trainer.batches.shapes_from(0)):
    first = trainer.batch(0)
    state, sums = trainer.step(state, first)
    jax.block_until_ready(sums)
    first_step = time.time() - begin
    trainer.wait_for_all_programs()
  seconds = time.time() - start
  for shape in {*trainer.batches.shapes} - {first.shape}:
    state, sums = trainer.step(state, full_batch(trainer, shape))
    jax.block_until_ready(sums)
  timed = {'first_step_seconds': first_step, 'compile_seconds': seconds}
  return timed | peak_memory()


def peak_memory() -> dict:
  """Returns `peak_bytes` so far, and whether they are of a device or the process."""
  stats = jax.local_devices()[0].memory_stats()
  if stats is not None and 'peak_bytes_in_use' in stats:
    return {'peak_bytes': stats['peak_bytes_in_use'], 'memory_of': 'device'}
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  unit = 1 if sys.platform == 'darwin' else 1024
  return {'peak_bytes': most * unit, 'memory_of': 'process'}


if __name__ == '__main__':
  signals.end_with_parent()
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends the parent
  file, folder, begin = sys.argv[1:]
  settings = ml_collections.ConfigDict(json.loads(pathlib.Path(file).read_text()))
  with report_user_errors():
    print(json.dumps(take_steps(settings, pathlib.Path(folder), float(begin))))
