"""How fast training is, beside rivals, and where an update's time goes."""

import collections
import contextlib
import operator
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from benchmarks import matmul_rate
from benchmarks.fixed_shape import FIRST_WORD, vocabulary_of_targets
from benchmarks.interleave import OURS, columns, interleave
from benchmarks.startup import full_batch
from transformer_jax.data import batches
from transformer_jax.machine import platform
from transformer_jax.machine.devices import map_rows, replicate, round_up
from transformer_jax.model import flops
from transformer_jax.model.transformer import Outputs
from transformer_jax.training import loss
from transformer_jax.training import step as training_step
from transformer_jax.training.trainer import Trainer

Tree = Any


class Rival(Protocol):
  """Another program's model and optimizer of our sizes."""

  def step(self, source: np.ndarray, target: np.ndarray) -> None:
    """Starts an update on [rows, length] ids; each row ends with EOS and padding."""

  def wait(self) -> float:
    """Waits until all updates are done; returns the last loss per target token."""


class Updates:
  """A trainer's updates, made as training/loop.py makes them.

  That is, an update starts while the one before it runs; then that one's sums are read.

  Attributes:
    assembling: the seconds that each batch took to assemble, on the host.
    waiting: how many of these seconds the devices were idle, at most: all of a batch's,
      if the update before it was done when the batch was there.
  """

  def __init__(self, trainer: Trainer, each: int, shapes: Sequence[batches.Shape]):
    """`each`: updates of a round; `shapes`: those of the batches that will come."""
    self._trainer, self._each = trainer, each
    self._state = trainer.initial()
    with trainer.compile(self._state, shapes) as programs:
      programs.wait_for_all()
    self.assembling: list[float] = []
    self.waiting = 0.0

  def one(self, batch: batches.Batch) -> None:
    """Makes one update, and waits for it."""
    self._state, sums = self._trainer.step(self._state, batch)
    jax.block_until_ready(sums)

  def round(self, number: int) -> None:
    previous = None
    for step in range(number * self._each, (number + 1) * self._each):
      begin = time.perf_counter()
      batch = self._trainer.batch(step)
      self.assembling.append(time.perf_counter() - begin)
      if previous is not None and previous.tokens.is_ready():
        self.waiting += self.assembling[-1]
      self._state, sums = self._trainer.step(self._state, batch)
      if previous is not None:
        jax.device_get(previous)
      previous = sums
    jax.block_until_ready(previous)


def measure(
  config: ml_collections.ConfigDict,
  corpus: pathlib.Path,
  rivals: Mapping[str, Rival],
  each: int,
  rounds: int,
) -> dict:
  """Times `rounds` rounds of `each` updates by every program; one object for JSON."""
  trainer = Trainer(config, corpus)
  ours = Updates(trainer, each, trainer.batches.shapes)
  contestants = {OURS: ours.round}
  for name, rival in rivals.items():
    contestants[name] = _rounds(rival, trainer, each)
  for shape in trainer.batches.shapes:  # warm-up
    batch = full_batch(trainer, shape)
    ours.one(batch)
    for rival in rivals.values():
      _step(rival, batch)
      rival.wait()
  seconds = interleave(contestants, rounds)
  tokens = [
    sum(trainer.batch(step).target_tokens for step in range(i * each, (i + 1) * each))
    for i in range(rounds)
  ]
  work = {'target_tokens': tokens, 'steps': [each] * rounds}
  found = columns(seconds, work)
  products_rate = matmul_rate.measure(platform.training_dtype(config.dtype))
  per_token = flops_per_target_token(config, trainer.batches)
  achieved = found[OURS]['target_tokens_per_second'] * per_token
  return {
    'dtype': products_rate['dtype'],
    'shapes': [list(shape) for shape in trainer.batches.shapes],
    'padding': trainer.batches.padding,
    'steps_of_a_round': each,
    'target_tokens': tokens,
    'columns': found,
    'step': step_seconds(config, corpus, ours, trainer, seconds[OURS]),
    'flops_per_target_token': per_token,
    'matrix_products': products_rate,
    'model_flops_utilisation': achieved / products_rate['flops_per_second'],
  }


def _rounds(rival: Rival, trainer: Trainer, each: int) -> Callable[[int], None]:
  def one_round(number: int) -> None:
    for step in range(number * each, (number + 1) * each):
      _step(rival, trainer.batch(step))
    rival.wait()

  return one_round


def _step(rival: Rival, batch: batches.Batch) -> None:
  rival.step(*(x.reshape(-1, x.shape[-1]) for x in (batch.source, batch.target)))


def flops_per_target_token(
  config: ml_collections.ConfigDict, made: batches.Batches
) -> int:
  """Model FLOPs of training, if all sentences had the mean target length."""
  length = round(len(made.target.tokens) / len(made.target) + 1)
  return flops.flops_per_target_token(config.model.to_dict(), length)


def step_seconds(
  config: ml_collections.ConfigDict,
  corpus: pathlib.Path,
  ours: Updates,
  trainer: Trainer,
  rounds: list[float],
) -> dict:
  """Where an update's time goes, in seconds.

  `input` is the host's time for a batch, which passes while the devices compute.
  `waiting_share` is the largest share of all time that the devices may have waited for
  it. `compute` and `exchange` are for the shape that most batches have: the same update
  is compiled a second time without what devices tell each other, and both are timed in
  turn. One device exchanges nothing. `loss` is the part of `compute` that logits, their
  cross-entropy and both gradients take on their own.
  """
  shapes = (trainer.batch(step).shape for step in range(len(ours.assembling)))
  shape = collections.Counter(shapes).most_common(1)[0][0]
  batch = full_batch(trainer, shape)
  contestants = {OURS: lambda _: ours.one(batch)}
  if trainer.devices.count > 1:
    with without_exchange():
      apart = Updates(Trainer(config, corpus), 1, [shape])
    apart.one(batch)
    contestants['apart'] = lambda _: apart.one(batch)
  taken = interleave(contestants, len(rounds))
  whole, parts = taken[OURS], taken['apart' if 'apart' in taken else OURS]
  return {
    'median': statistics.median(rounds) * len(rounds) / len(ours.assembling),
    'input': statistics.median(ours.assembling),
    'waiting_share': ours.waiting / sum(rounds),
    'of_shape': list(shape),
    'compute': statistics.median(parts),
    'exchange': statistics.median(map(operator.sub, whole, parts)),
    'loss': _loss_seconds_of_update(config, trainer, shape, len(rounds)),
  }


def _loss_seconds_of_update(
  config: ml_collections.ConfigDict,
  trainer: Trainer,
  shape: batches.Shape,
  repeats: int,
) -> float:
  """Seconds of the loss of all slices of a device, as many at once as in a step."""
  at_once = shape._replace(rows=shape.rows * trainer.at_once)
  times = trainer.devices.slices_each // trainer.at_once
  return times * loss_seconds(config, at_once, repeats)


def loss_seconds(
  config: ml_collections.ConfigDict, shape: batches.Shape, repeats: int
) -> float:
  """Seconds of a shape's logits, loss, and gradients by x and by the embedding."""
  dtype = platform.training_dtype(config.dtype)
  random = np.random.default_rng(0)
  d_model, words = config.model.d_model, vocabulary_of_targets(config)
  size = round_up(1) * shape.rows, shape.target
  labels = random.integers(FIRST_WORD, words, size, np.int32)
  x = random.standard_normal((*shape[::2], d_model), np.float32)
  table = random.standard_normal((words, d_model), np.float32)
  table = (table * d_model**-0.5).astype(dtype)
  given = replicate((table, x.astype(platform.activation_dtype(dtype))))

  def largest(given: tuple[jax.Array, jax.Array], labels: jax.Array) -> jax.Array:
    of = lambda table, x: loss.cross_entropy(
      Outputs(x, table, None), labels, config.epsilon_ls
    )[0]
    # The largest, not the sum, which XLA could compute without the whole products.
    largest = [jnp.abs(g).max() for g in jax.grad(of, (0, 1))(*given)]
    return sum(x.astype(jnp.float32) for x in largest)[None]

  run = map_rows(largest)
  run(given, labels)()  # which compiles
  return statistics.median(
    interleave({OURS: lambda _: run(given, labels)()}, repeats)[OURS]
  )


@contextlib.contextmanager
def without_exchange() -> Iterator[None]:
  """In programs traced in this context, devices tell each other nothing.

  Each takes its own gradient for the sum.
  """
  kept = training_step.sum_over_devices
  training_step.sum_over_devices = lambda own: own
  try:
    yield
  finally:
    training_step.sum_over_devices = kept
