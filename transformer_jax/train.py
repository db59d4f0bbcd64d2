"""Training: Equation 3, Adam, the step, and the loop around it (section 5)."""

import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from flax import nnx

from transformer_jax import batches, checkpoint, loss, parallel, run, translate
from transformer_jax.vocabulary import PAD

Tree = Any


def learning_rate(
  d_model: int, warmup_steps: int, factor: float
) -> Callable[[jax.Array], jax.Array]:
  """Equation 3 times `factor`; optax counts updates from 0, the paper steps from 1."""

  def schedule(count: jax.Array) -> jax.Array:
    step = jnp.asarray(count, jnp.float32) + 1
    return factor * d_model**-0.5 * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return schedule


def optimizer(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
  """Adam of section 5.3."""
  rate = learning_rate(config.model.d_model, config.warmup_steps, config.rate_factor)
  return optax.adam(rate, config.adam_b1, config.adam_b2, config.adam_epsilon)


class TrainState(NamedTuple):
  step: jax.Array  # updates made so far
  params: Tree
  opt_state: Tree


class Sums(NamedTuple):
  """Over all target tokens of a batch."""

  loss: jax.Array  # nats, label-smoothed
  negative_log_likelihood: jax.Array  # nats
  tokens: jax.Array
  gradient_norm: jax.Array


def train_step(
  state: TrainState,
  share: tuple[jax.Array, jax.Array],
  *,
  graph: nnx.GraphDef,
  transform: optax.GradientTransformation,
  epsilon_ls: float,
  seed: int,
) -> tuple[TrainState, Sums]:
  """One update from this device's share of a batch, source and target [slices, B, L].

  Dropout keys are (seed, step, slice). Loss and gradient are sums over all slices of
  all devices, divided by the batch's count of target tokens, so that neither depends
  on how many devices share the slices.
  """
  each = share[0].shape[0]
  key = jax.random.fold_in(jax.random.key(seed), state.step)
  first = jax.lax.axis_index(parallel.AXIS) * each

  def slice_gradient(number: jax.Array, source: jax.Array, target: jax.Array) -> Tree:
    def objective(params: Tree) -> tuple[jax.Array, jax.Array]:
      dropout_key = jax.random.fold_in(key, first + number)
      logits = nnx.merge(graph, params)(source, target, dropout_key)
      return loss.cross_entropy(logits, target, epsilon_ls)

    (smoothed, plain), gradient = jax.value_and_grad(objective, has_aux=True)(
      state.params
    )
    return gradient, smoothed, plain, (target != PAD).sum()

  def add(sums: Tree, inputs: tuple[jax.Array, ...]) -> tuple[Tree, None]:
    return jax.tree.map(jnp.add, sums, slice_gradient(*inputs)), None

  if each == 1:
    sums = slice_gradient(jnp.int32(0), share[0][0], share[1][0])
  else:
    parts = jnp.arange(each), *share
    one = jax.eval_shape(slice_gradient, *jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
    sums, _ = jax.lax.scan(add, zeros, parts)
  gradient, smoothed, plain, tokens = jax.lax.psum(sums, parallel.AXIS)
  gradient = jax.tree.map(lambda g: g / tokens, gradient)
  updates, opt_state = transform.update(gradient, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)
  norm = optax.tree.norm(gradient)
  return TrainState(state.step + 1, params, opt_state), Sums(
    smoothed, plain, tokens, norm
  )


class Trainer:
  """A config's model, batches and compiled steps on all devices."""

  def __init__(self, config: ml_collections.ConfigDict, corpus: pathlib.Path):
    self.config = config
    self.devices = parallel.Devices(config.slices)
    self.batches = batches.Batches(
      *batches.read_split(corpus, 'train'),
      tokens=config.tokens_per_batch,
      slices=config.slices,
      max_shapes=config.max_shapes,
      seed=config.seed,
    )
    self.graph, params = translate.transformer(config)
    self.transform = optimizer(config)
    self.initial = TrainState(np.int32(0), params, self.transform.init(params))
    step = functools.partial(
      train_step,
      graph=self.graph,
      transform=self.transform,
      epsilon_ls=config.epsilon_ls,
      seed=config.seed,
    )
    self._parallel = self.devices.parallel(step)
    self._compiled: dict[batches.Shape, Callable] = {}

  def compile(self, progress: Callable[[list], Any]) -> None:
    """Compiles a step for every shape of batch; `progress` wraps the list of them."""
    state = self.devices.replicate(self.initial)
    for shape in progress(self.batches.shapes):
      size = (self.config.slices, *shape)
      share = self.devices.split((np.zeros(size, np.int32),) * 2)
      self._compiled[shape] = self._parallel.lower(state, share).compile()

  def step(self, state: TrainState, batch: batches.Batch) -> tuple[TrainState, Sums]:
    """Dispatches one update; a shape that compile() has not seen is a KeyError."""
    shape = batches.Shape(*batch.source.shape[1:])
    share = self.devices.split((batch.source, batch.target))
    return self._compiled[shape](state, share)

  def restore(self, folder: pathlib.Path) -> TrainState:
    """The newest checkpoint that is as it was written, else the initial state."""
    for step in reversed(checkpoint.steps(folder)):
      try:
        restored = checkpoint.restore(
          folder, step, self.initial.params, self.initial.opt_state
        )
      except checkpoint.Damaged as error:
        print(f'{error}; trying the one before', flush=True)
        continue
      state = TrainState(np.int32(step), restored.params, restored.opt_state)
      return self.devices.replicate(state)
    return self.devices.replicate(self.initial)


def train(
  config: ml_collections.ConfigDict, workdir: pathlib.Path, corpus: pathlib.Path
) -> None:
  """Trains to config.train_steps, going on from what `workdir` holds."""
  directory = run.Run.open(workdir, config, corpus)
  trainer = Trainer(config, corpus)
  state = trainer.restore(directory.checkpoints)
  start = int(state.step)
  if start >= config.train_steps:
    print(f'{workdir} has {start} of {config.train_steps} steps: nothing to do')
    return
  dev = batches.read_split(corpus, 'dev')
  perplexity = translate.Perplexity(config, trainer.graph, *dev)
  with run.Log(directory, start, config.train_steps) as log:
    trainer.compile(log.compiling)
    log.started()
    meter = Meter(config, trainer.batches.steps_per_epoch)
    previous = None
    for step in range(start + 1, config.train_steps + 1):
      state, sums = trainer.step(state, trainer.batches.batch(step - 1))
      # Metrics are read one step late, while the device works on this step.
      if previous is not None:
        log.advance(meter.add(step - 1, previous))
      previous = sums
      if step % config.checkpoint_every_steps == 0 or step == config.train_steps:
        log.advance(meter.add(step, previous))
        previous = None
        _save(directory, state, config.keep_checkpoints)
        log.dev(step, perplexity(state.params))
        meter.resume()


def _save(directory: run.Run, state: TrainState, keep: int) -> None:
  step = int(state.step)
  checkpoint.save(directory.checkpoints, step, state.params, state.opt_state)
  checkpoint.prune(directory.checkpoints, keep)


class Meter:
  """Sums up steps into records, every `log_every_steps` and at each checkpoint."""

  def __init__(self, config: ml_collections.ConfigDict, epoch: int):
    """`epoch` is the number of steps of one."""
    self._rate = learning_rate(
      config.model.d_model, config.warmup_steps, config.rate_factor
    )
    # Nothing that a checkpoint has seen may be missing from the records.
    self._every = config.log_every_steps, config.checkpoint_every_steps
    self._last, self._epoch = config.train_steps, epoch
    self._clear()
    self.resume()

  def _clear(self) -> None:
    self._sums, self._steps, self._seconds = np.zeros(3), 0, 0.0

  def resume(self) -> None:
    """Lets time count again: what happened since the last add() does not."""
    self._since = time.perf_counter()

  def add(self, step: int, sums: Sums) -> dict | None:
    """Takes in a step's sums; a record of the steps since the last one when due.

    Raises:
      FloatingPointError: the loss is not finite.
    """
    values = jax.device_get(sums)
    if not np.isfinite(values.loss) or not np.isfinite(values.gradient_norm):
      raise FloatingPointError(
        f'loss {values.loss} and gradient norm {values.gradient_norm} at step {step}; '
        f'the checkpoints before it are good'
      )
    self._sums += [values.loss, values.negative_log_likelihood, values.tokens]
    self._steps += 1
    now = time.perf_counter()
    self._seconds += now - self._since
    self._since = now
    if all(step % every for every in self._every) and step != self._last:
      return None
    smoothed, plain, tokens = self._sums
    record = {
      'step': step,
      'epoch': round(step / self._epoch, 3),
      'loss': smoothed / tokens,
      'perplexity': float(np.exp(min(plain / tokens, 700.0))),
      'learning_rate': float(self._rate(step - 1)),
      'gradient_norm': float(values.gradient_norm),
      'target_tokens': int(tokens),
      'steps': self._steps,
      'seconds': self._seconds,
    }
    self._clear()
    return record
