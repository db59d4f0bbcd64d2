"""One update: label-smoothed loss (section 5.4), Equation 3 and Adam (section 5.3)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import nnx
from jax import Array
from jaxtyping import Float32, Int, PyTree

from transformer_jax.data.vocabulary import PAD
from transformer_jax.machine.devices import AXIS
from transformer_jax.model import ops
from transformer_jax.model.dropout import DropoutKey
from transformer_jax.model.transformer import Outputs

Schedule = Callable[[jax.Array | int], jax.Array]


def cross_entropy(
  outputs: Outputs, labels: Int[Array, '*positions'], epsilon: float
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Returns two cross-entropies in nats, summed over positions with a label.

  The target distribution gives the true token probability 1 - epsilon, and every other
  token epsilon / (W - 1), as the paper's code did. Its cross-entropy with softmax(z),
  where z are the logits of a position, is

    log sum exp z - (1 - epsilon) z_true - epsilon / (W - 1) (sum z - z_true)

  Training minimizes this one. Perplexity is computed from the other, the plain
  cross-entropy, which has no gradient.

  Args:
    labels: ids below W of the true tokens; PAD at positions without a label. An id of W
      or more is not noticed: the loss becomes NaN or that of another token.
    epsilon: epsilon_ls.
  """
  return ops.smoothed_cross_entropy(
    outputs.x, outputs.table, labels, labels != PAD, epsilon=epsilon
  )


def learning_rate(config: ml_collections.ConfigDict) -> Schedule:
  """Returns Equation 3 times the config's rate_factor.

  The schedule takes optax's count of updates, from 0; the paper counts steps from 1.
  """
  scale = config.rate_factor * config.model.d_model**-0.5
  warmup_steps = config.warmup_steps

  def schedule(count: jax.Array | int) -> jax.Array:
    step = jnp.asarray(count, jnp.float32) + 1
    return scale * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return schedule


def adam(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
  """Returns Adam (section 5.3) with the rate of Equation 3.

  epsilon is added to the square root of the second moment, not inside the root.
  """
  rate = learning_rate(config)
  return optax.adam(rate, config.adam_b1, config.adam_b2, config.adam_epsilon)


class TrainState(NamedTuple):
  """What a training continues from, and a checkpoint stores."""

  step: jax.Array  # the number of steps so far, skipped ones included
  params: PyTree
  opt_state: PyTree


class StepInput(NamedTuple):
  """The slices of a batch that one device or one host computes."""

  source: jax.Array  # [slices, B, S] ids
  target: jax.Array  # [slices, B, T] ids
  # Two flags, 1 if the slice's host asks all hosts to stop, or to save. The step sums
  # them, so that every host learns of them after the same step.
  requests: jax.Array  # [slices, 2]


class Sums(NamedTuple):
  """Sums over all target tokens of a batch, equal on every device.

  All are [] but `requests`.
  """

  loss: jax.Array  # nats, label-smoothed
  negative_log_likelihood: jax.Array  # nats
  tokens: jax.Array  # target tokens, EOS counted
  gradient_norm: jax.Array  # not a sum: the norm of the loss's gradient per token
  skipped: jax.Array  # 1 if the update was skipped, see train_step
  requests: jax.Array  # [2]: StepInput.requests summed over all slices


def train_step(
  state: TrainState,
  inputs: StepInput,
  seed: jax.Array,
  *,
  graph: nnx.GraphDef[Any],
  transform: optax.GradientTransformation,
  epsilon_ls: float,
  slices_per_pass: int,
) -> tuple[TrainState, Sums]:
  """Returns the state after one update, from this device's slices of the batch.

  The gradient is summed over the slices of all devices and divided by the batch's
  number of target tokens. Dropout depends on seed, step and slice alone. So the update
  is the same for any number of devices and of slices per pass, but for rounding of the
  sums. In bfloat16 each pass's gradient is rounded, too (for a toy model by up to
  2.6e-3 of its largest entry).

  If the loss or the gradient's norm is not finite, the update is skipped: parameters
  and optimizer state do not change. Otherwise Adam's update is finite at every rate
  that config.py allows. `step` rises in both cases, because it also chooses the next
  batch.

  Args:
    seed: [], the run's seed, for dropout. It is an input, so that all seeds share a
      program.
    graph: the model without its parameters.
    transform: the optimizer.
    slices_per_pass: the number of slices that a device computes at once. It divides the
      number of the device's slices.
  """
  slices_per_device = len(inputs.source)
  first = jax.lax.axis_index(AXIS) * slices_per_device

  def gradient_of(numbers: jax.Array, source: jax.Array, target: jax.Array) -> PyTree:
    """Returns sums over one pass: numbers [slices], ids [slices, B, S or T]."""
    key = DropoutKey(seed, state.step, first + numbers)
    source, target = (x.reshape(-1, x.shape[-1]) for x in (source, target))
    sums = loss_and_gradient(
      state.params, source, target, key, graph=graph, epsilon_ls=epsilon_ls
    )
    return *sums, (target != PAD).sum()

  group = lambda x: x.reshape(-1, slices_per_pass, *x.shape[1:])
  slices = jnp.arange(slices_per_device), inputs.source, inputs.target
  sums = _sum_over(gradient_of, *map(group, slices))
  sums, requests = jax.lax.psum((sums, inputs.requests.sum(0)), AXIS)
  gradient, smoothed, plain, tokens = sums
  # Norm of the summed gradient; the division fuses into Adam. If a square overflows,
  # the norm is infinite and the update is skipped, so Adam's averages stay finite.
  norm = optax.tree.norm(gradient) / tokens
  # Not optax.apply_if_finite: it lets a non-finite update through after a number of
  # them, keeps counters in the optimizer's state, and does not look at the loss.
  finite = jnp.isfinite(norm) & jnp.isfinite(smoothed)
  state = _next_state(finite, state, gradient, tokens, transform)
  skipped = 1 - finite.astype(jnp.int32)
  return state, Sums(smoothed, plain, tokens, norm, skipped, requests)


def loss_and_gradient(
  params: PyTree,
  source: Int[Array, 'B S'],
  target: Int[Array, 'B T'],
  key: DropoutKey,
  *,
  graph: nnx.GraphDef[Any],
  epsilon_ls: float,
) -> tuple[PyTree, Float32[Array, ''], Float32[Array, '']]:
  """Returns the smoothed loss's gradient, this loss and the plain one: sums in nats."""

  def objective(params: PyTree) -> tuple[jax.Array, jax.Array]:
    outputs = nnx.merge(graph, params)(source, target, key)
    return cross_entropy(outputs, target, epsilon_ls)

  (smoothed, plain), gradient = jax.value_and_grad(objective, has_aux=True)(params)
  return gradient, smoothed, plain


def _next_state(
  finite: jax.Array,
  state: TrainState,
  gradient: PyTree,
  tokens: jax.Array,
  transform: optax.GradientTransformation,
) -> TrainState:
  """Returns the next state; `gradient` is a sum over `tokens` target tokens."""

  def update(params: PyTree, opt_state: PyTree) -> tuple[PyTree, PyTree]:
    # Not g / tokens: XLA would store the quotients. It recomputes products instead, for
    # each of Adam's averages.
    mean = jax.tree.map(lambda g: g * (1 / tokens), gradient)
    updates, opt_state = transform.update(mean, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

  params, opt_state = ops.update_if(finite, update, state.params, state.opt_state)
  return TrainState(state.step + 1, params, opt_state)


def _sum_over(function: Callable[..., PyTree], *parts: jax.Array) -> PyTree:
  """Returns the sum of function(*part) over axis 0 of the parts, one at a time."""
  first = jax.tree.map(lambda x: x[0], parts)
  if len(parts[0]) == 1:
    return function(*first)
  add = lambda sums, part: (jax.tree.map(jnp.add, sums, function(*part)), None)
  shapes = jax.eval_shape(function, *first)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return jax.lax.scan(add, zeros, parts)[0]
