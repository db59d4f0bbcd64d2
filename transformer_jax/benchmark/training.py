"""Training: rates of whole updates, what an update's time goes to, others beside us."""

import collections
import contextlib
import operator
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from transformer_jax.benchmark import rate, start
from transformer_jax.benchmark.fixed import FIRST_WORD
from transformer_jax.benchmark.interleave import OURS, columns, interleave
from transformer_jax.data import batches
from transformer_jax.machine import parallel, platform
from transformer_jax.model import flops, products
from transformer_jax.training import loss
from transformer_jax.training.trainer import Trainer


class Rival(Protocol):
  """Another program's model and optimiser of our sizes."""

  def step(self, source: np.ndarray, target: np.ndarray) -> None:
    """Begins an update on [rows, length] ids, each row with EOS and then PAD."""

  def wait(self) -> float:
    """Until all updates are over; the last one's loss per target token."""


class Updates:
  """Compiled updates and their state; rounds of them as train.Loop makes them.

  That is: each is dispatched while the one before it runs, its metrics read one later.

  Attributes:
    made: seconds that assembling each batch took, on the host.
    waited: of them those that no device was busy in, at most: where the update before
      was over when the batch was there, all that the batch took.
  """

  def __init__(self, trainer: Trainer, each: int):
    self._trainer, self._each = trainer, each
    self._state = trainer.initial()
    trainer.compile(self._state, iter)
    self.made: list[float] = []
    self.waited = 0.0

  def one(self, batch: batches.Batch) -> None:
    self._state, sums = self._trainer.step(self._state, batch)
    jax.block_until_ready(sums)

  def round(self, number: int) -> None:
    previous = None
    for step in range(number * self._each, (number + 1) * self._each):
      begin = time.perf_counter()
      batch = self._trainer.batch(step)
      self.made.append(time.perf_counter() - begin)
      if previous is not None and previous.tokens.is_ready():
        self.waited += self.made[-1]
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
  """`rounds` of `each` updates by every program; one object for JSON."""
  trainer = Trainer(config, corpus)
  ours = Updates(trainer, each)
  contestants = {OURS: ours.round}
  for name, rival in rivals.items():
    contestants[name] = _rounds(rival, trainer, each)
  for shape in trainer.batches.shapes:  # a first time for everything
    batch = start.full(trainer, shape)
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
  measured = rate.matrix_products(platform.training_dtype(config.dtype))
  flops = flops_per_target_token(config, trainer.batches)
  achieved = found[OURS]['target_tokens_per_second'] * flops
  return {
    'dtype': measured['dtype'],
    'shapes': [list(shape) for shape in trainer.batches.shapes],
    'padding': trainer.batches.padding,
    'steps_of_a_round': each,
    'target_tokens': tokens,
    'columns': found,
    'step': step_seconds(config, corpus, ours, trainer, seconds[OURS]),
    'flops_per_target_token': flops,
    'matrix_products': measured,
    'model_flops_utilisation': achieved / measured['flops_per_second'],
  }


def _rounds(rival: Rival, trainer: Trainer, each: int) -> Callable[[int], None]:
  def round(number: int) -> None:
    for step in range(number * each, (number + 1) * each):
      _step(rival, trainer.batch(step))
    rival.wait()

  return round


def _step(rival: Rival, batch: batches.Batch) -> None:
  rival.step(*(x.reshape(-1, x.shape[-1]) for x in (batch.source, batch.target)))


def flops_per_target_token(
  config: ml_collections.ConfigDict, made: batches.Batches
) -> int:
  """For as many source as target tokens, in sentences of the mean target length."""
  length = round(len(made.target.tokens) / len(made.target) + 1)
  return flops.flops_per_target_token(config.model.to_dict(), length)


def step_seconds(
  config: ml_collections.ConfigDict,
  corpus: pathlib.Path,
  ours: Updates,
  trainer: Trainer,
  rounds: list[float],
) -> dict:
  """What an update's time goes to, in seconds.

  `input` is the host's time for a batch, which passes while devices compute;
  `waiting_share` the part of all time that devices waited for it, at the most.
  `compute` and `exchange` are of the shape that most batches have: the same update is
  compiled once more with the sum over devices left out, and both are timed in turn, as
  often as there were rounds. One device exchanges nothing. `loss` is the part of
  `compute` that logits, their cross-entropy and both gradients take by themselves.
  """
  shapes = (trainer.batch(step).source.shape[1:] for step in range(len(ours.made)))
  shape = batches.Shape(*collections.Counter(shapes).most_common(1)[0][0])
  batch = start.full(trainer, shape)
  contestants = {OURS: lambda _: ours.one(batch)}
  if trainer.devices.count > 1:
    with no_exchange():
      alone = Trainer(config, corpus)
      alone.batches.shapes = [shape]
      apart = Updates(alone, 1)
    apart.one(batch)
    contestants['apart'] = lambda _: apart.one(batch)
  taken = interleave(contestants, len(rounds))
  whole, parts = taken[OURS], taken['apart' if 'apart' in taken else OURS]
  return {
    'median': statistics.median(rounds) * len(rounds) / len(ours.made),
    'input': statistics.median(ours.made),
    'waiting_share': ours.waited / sum(rounds),
    'of_shape': list(shape),
    'compute': statistics.median(parts),
    'exchange': statistics.median(map(operator.sub, whole, parts)),
    'loss': trainer.devices.slices_each * loss_seconds(config, shape, len(rounds)),
  }


def loss_seconds(
  config: ml_collections.ConfigDict, shape: batches.Shape, repeats: int
) -> float:
  """Logits, their loss, and the gradients by x and by the embedding, of one slice."""
  dtype = platform.training_dtype(config.dtype)
  random = np.random.default_rng(0)
  model = config.model
  size = parallel.round_up(1) * shape[0], shape[1]
  labels = random.integers(FIRST_WORD, model.vocab_size, size, np.int32)
  x = random.standard_normal((*shape, model.d_model), np.float32)
  table = random.standard_normal((model.vocab_size, model.d_model), np.float32)
  table = (table * model.d_model**-0.5).astype(dtype)
  given = parallel.everywhere((table, x.astype(products.activations(dtype))))

  def largest(given: tuple[jax.Array, jax.Array], labels: jax.Array) -> jax.Array:
    of = lambda table, x: loss.cross_entropy(
      products.logits(x, table), labels, config.epsilon_ls
    )[0]
    # Not a sum, which XLA could take before the products.
    largest = [jnp.abs(g).max() for g in jax.grad(of, (0, 1))(*given)]
    return sum(x.astype(jnp.float32) for x in largest)[None]

  run = parallel.spread(largest)
  run(given, labels)()  # which compiles
  return statistics.median(
    interleave({OURS: lambda _: run(given, labels)()}, repeats)[OURS]
  )


@contextlib.contextmanager
def no_exchange() -> Iterator[None]:
  """What is traced in here leaves sums over devices out: each keeps what it has."""
  kept = jax.lax.psum
  jax.lax.psum = lambda tree, axis: tree
  try:
    yield
  finally:
    jax.lax.psum = kept
