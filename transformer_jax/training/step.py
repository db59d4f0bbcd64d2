"""One update: Equation 3, Adam (section 5.3), gradients over all slices of a batch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from transformer_jax.data.vocabulary import PAD
from transformer_jax.machine import parallel
from transformer_jax.model import products
from transformer_jax.training import loss

Tree = Any


class TrainState(NamedTuple):
  step: jax.Array  # updates made so far
  params: Tree
  opt_state: Tree


class Share(NamedTuple):
  """A device's part of a batch, or a host's, and what goes with each of its slices."""

  source: jax.Array  # [slices, B, L] ids
  target: jax.Array  # the same
  # The host's, to stop and to save: how hosts agree without another message.
  wishes: jax.Array  # [slices, 2]
  # The run's, for dropout. Given here, runs that differ in it share compiled programs.
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
  share: Share,
  *,
  graph: nnx.GraphDef,
  transform: optax.GradientTransformation,
  epsilon_ls: float,
) -> tuple[TrainState, Sums]:
  """One update from this device's share of a batch.

  Dropout keys are (seed, step, slice). Loss and gradient are sums over all slices of
  all devices, divided by the batch's count of target tokens, so that neither depends on
  how many devices share the slices.

  If one of them is not finite, parameters and Adam's state stay as they are. `step`
  goes on all the same: it says which batch is next.
  """
  each = len(share.source)
  key = jax.random.fold_in(jax.random.key(share.seed[0]), state.step)
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
    sums = slice_gradient(jnp.int32(0), share.source[0], share.target[0])
  else:
    parts = jnp.arange(each), share.source, share.target
    one = jax.eval_shape(slice_gradient, *jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
    sums, _ = jax.lax.scan(add, zeros, parts)
  sums, wishes = jax.lax.psum((sums, share.wishes.sum(0)), parallel.AXIS)
  gradient, smoothed, plain, tokens = sums
  # The sum's, so that the division has one use only and becomes part of Adam's pass.
  norm = optax.tree.norm(gradient) / tokens
  gradient = jax.tree.map(lambda g: g / tokens, gradient)
  finite = jnp.isfinite(norm) & jnp.isfinite(smoothed)
  updates, opt_state = transform.update(gradient, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)
  keep = lambda new, old: jnp.where(finite, new, old)
  params = jax.tree.map(keep, params, state.params)
  if products.on_cpu():
    opt_state = optax.tree.map_params(transform, _after, opt_state, params)
  opt_state = jax.tree.map(keep, opt_state, state.opt_state)
  skipped = 1 - finite.astype(jnp.int32)
  return TrainState(state.step + 1, params, opt_state), Sums(
    smoothed, plain, tokens, norm, skipped, wishes
  )


def _after(average: jax.Array, param: jax.Array) -> jax.Array:
  """The average, computed after the parameter.

  Both come from the average as it was. Left to its own order, XLA on a CPU writes the
  new one in its place first, for which it copies the old one.
  """
  return average + 0 * param.ravel()[0]
