"""One update: Equation 3, Adam (section 5.3), gradients over all slices of a batch."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from transformer_jax.data.vocabulary import PAD
from transformer_jax.machine import parallel
from transformer_jax.machine.shares import Shares
from transformer_jax.model import ops
from transformer_jax.training import loss

Tree = Any


class TrainState(NamedTuple):
  step: jax.Array  # steps made so far, with those that were skipped
  params: Tree
  opt_state: Tree


class StepInput(NamedTuple):
  """Slices of a batch and what goes with each: a device's part, or a host's."""

  source: jax.Array  # [slices, B, S] ids
  target: jax.Array  # [slices, B, T] ids
  # Whether the host wishes to stop, and to save. The step sums them for all hosts.
  wishes: jax.Array  # [slices, 2]
  # Of the run's dropout. As an input, so that all seeds share one compiled program.
  seed: jax.Array  # [slices]


class Sums(NamedTuple):
  """Over all target tokens of a batch."""

  loss: jax.Array  # nats, label-smoothed
  negative_log_likelihood: jax.Array  # nats
  tokens: jax.Array
  gradient_norm: jax.Array
  skipped: jax.Array  # 1 if the state was left as it is, see train_step
  wishes: jax.Array  # [2], how many slices' hosts wish to stop, and to save


def train_step(
  state: TrainState,
  given: StepInput,
  *,
  graph: nnx.GraphDef,
  transform: optax.GradientTransformation,
  epsilon_ls: float,
  shares: Shares,
  at_once: int,
) -> tuple[TrainState, Sums]:
  """Returns the state after one update from this device's part of a batch.

  Dropout keys are (seed, step, slice). Loss and gradient are sums over all slices of
  all devices, divided by the batch's count of target tokens, so that neither depends on
  how many devices share the slices, or on how many a device computes at once. Each
  device has all parameters, its share of the gradient's sum and of Adam's averages, and
  updates its share of the parameters.

  If the loss or the gradient's norm is not finite, parameters and Adam's state stay as
  they are. Otherwise Adam's update is finite at every rate that config_checks allows.
  `step` rises in both cases, because it also says which batch is next.
  """
  each = len(given.source)
  key = jax.random.fold_in(jax.random.key(given.seed[0]), state.step)
  first = jax.lax.axis_index(parallel.AXIS) * each

  def gradient_of(numbers: jax.Array, source: jax.Array, target: jax.Array) -> Tree:
    """The sum over `at_once` slices: numbers [slices], ids [slices, B, S or T]."""
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(first + numbers)
    dropout_key = keys if at_once > 1 else keys[0]
    source, target = (x.reshape(-1, x.shape[-1]) for x in (source, target))

    def objective(params: Tree) -> tuple[jax.Array, jax.Array]:
      outputs = nnx.merge(graph, params).outputs(source, target, dropout_key)
      return loss.cross_entropy(outputs, target, epsilon_ls)

    (smoothed, plain), gradient = jax.value_and_grad(objective, has_aux=True)(
      state.params
    )
    return gradient, smoothed, plain, (target != PAD).sum()

  group = lambda x: x.reshape(-1, at_once, *x.shape[1:])
  parts = jnp.arange(each), given.source, given.target
  sums = _sum_over(gradient_of, *map(group, parts))
  sums, wishes = shares.sum((sums, given.wishes.sum(0)))
  gradient, smoothed, plain, tokens = sums
  # The norm is that of the undivided sum, so that XLA can make the mean in Adam's pass.
  # If a square overflows, the norm is infinite and the update is skipped. So Adam's
  # averages of squares stay finite.
  norm = jnp.sqrt(_sum_of_squares(gradient, state.params, shares)) / tokens
  finite = jnp.isfinite(norm) & jnp.isfinite(smoothed)

  params, opt_state = _updated(state, gradient, tokens, finite, transform, shares)
  return TrainState(state.step + 1, params, opt_state), Sums(
    smoothed, plain, tokens, norm, 1 - finite.astype(jnp.int32), wishes
  )


def _updated(
  state: TrainState,
  gradient: Tree,
  tokens: jax.Array,
  finite: jax.Array,
  transform: optax.GradientTransformation,
  shares: Shares,
) -> tuple[Tree, Tree]:
  """Returns parameters and Adam's state, updated if loss and norm are `finite`.

  `gradient` is this device's share of the sum over `tokens`.
  """

  def update(params: Tree, opt_state: Tree) -> tuple[Tree, Tree]:
    # Not g / tokens: XLA would store the quotient. It recomputes this product for each
    # of Adam's averages.
    mean = jax.tree.map(lambda g: g * (1 / tokens), gradient)
    own = shares.own(params)
    updates, opt_state = transform.update(mean, opt_state, own)
    return optax.apply_updates(own, updates), opt_state

  # A branch and no selection: XLA then updates in place, in half the passes.
  own, opt_state = jax.lax.cond(
    finite,
    update,
    lambda params, opt_state: (shares.own(params), opt_state),
    state.params,
    state.opt_state,
  )
  return shares.join(own, state.params), opt_state


def _sum_of_squares(gradient: Tree, params: Tree, shares: Shares) -> jax.Array:
  """Returns the whole gradient's sum of squares, given this device's share of it."""
  if shares.count == 1:
    return sum(map(ops.sum_of_squares, jax.tree.leaves(gradient)))
  # Every device adds the squares of what is not shared, so they would count D times.
  times = lambda p: 1 if shares.has(p) else shares.count
  each = lambda g, p: ops.sum_of_squares(g) / times(p)
  own = sum(jax.tree.leaves(jax.tree.map(each, gradient, params)))
  return shares.sum(own)


def _sum_over(function: Callable[..., Tree], *parts: jax.Array) -> Tree:
  """Returns the sum of function(*part) over axis 0 of the parts, one at a time."""
  first = jax.tree.map(lambda x: x[0], parts)
  if len(parts[0]) == 1:
    return function(*first)
  add = lambda sums, part: (jax.tree.map(jnp.add, sums, function(*part)), None)
  one = jax.eval_shape(function, *first)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
  return jax.lax.scan(add, zeros, parts)[0]


def on_devices(
  devices: parallel.Devices,
  graph: nnx.GraphDef,
  params: Tree,
  transform: optax.GradientTransformation,
  epsilon_ls: float,
  at_once: int,
) -> Callable[[TrainState, StepInput], tuple[TrainState, Sums]]:
  """Returns train_step mapped over the devices.

  Args:
    params: the parameters' shapes.
    at_once: how many of its slices a device computes at once; a divisor of their
      number.
  """
  step = functools.partial(
    train_step,
    graph=graph,
    transform=transform,
    epsilon_ls=epsilon_ls,
    shares=devices.shares,
    at_once=at_once,
  )
  opt_state = jax.eval_shape(transform.init, params)
  axes = TrainState(None, None, devices.shares.axes(opt_state))
  return devices.parallel(step, axes)


def placed(state: TrainState, devices: parallel.Devices) -> TrainState:
  """Places a state of the first host's arrays as the mapped train_step takes it."""
  step, params = devices.replicate((state.step, state.params))
  return TrainState(step, params, devices.share(state.opt_state))
