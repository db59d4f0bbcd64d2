"""The model's operations, each written plainly, as an accelerator runs it.

On a CPU some of them need another form, to be fast or to be correct, and on an NVIDIA
GPU a kernel is faster. ops_cpu.py and ops_gpu.py have these forms. `forms` puts them
into programs that are compiled for such a device.

Products are computed in the dtype of the weights: float32 activations are cast to it.
Results have the activations' dtype. Inputs of a softmax are float32.

layers.py explains the names of axes; C is the number of top tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int

F = TypeVar('F', bound=Callable[..., Any])

TILE = 128  # the loss pads logits on accelerators to a multiple of this
GROUP = 128  # tokens of a group in top_tokens()
# Added to the variance in every LayerNorm, as in the paper's code (tensor2tensor).
NORM_EPSILON = 1e-6

# In the context kernel_mode('cuda'), which training enters, programs for NVIDIA GPUs
# get kernels. 'plain': no program gets any. 'interpret': all programs get them, as
# operations of XLA, for tests.
kernel_mode = jax.make_user_context('plain')


def forms(*static: str, cpu: str = '', gpu: str = '') -> Callable[[F], F]:
  """Replaces the decorated operation in programs compiled for a CPU or an NVIDIA GPU.

  Args:
    static: names of keyword arguments that are not arrays.
    cpu: the form's name in ops_cpu.py.
    gpu: its name in ops_gpu.py. That form gets the plain one as an argument, to call it
      for shapes that its kernel does not take.
  """

  def decorate(plain: F) -> F:
    # Jitted, so that JAX traces all forms once for all layers.
    @functools.partial(jax.jit, static_argnames=static)
    @functools.wraps(plain)
    def operation(*inputs: Any, **options: Any) -> Any:
      overrides = {}
      if cpu:
        from transformer_jax.model import ops_cpu  # here, since it imports this file

        overrides['cpu'] = functools.partial(getattr(ops_cpu, cpu), **options)
      if gpu and kernel_mode.value != 'plain':
        from transformer_jax.model import ops_gpu  # here, since Pallas takes 0.3 s

        kernel = functools.partial(getattr(ops_gpu, gpu), plain, **options)
        if kernel_mode.value == 'interpret':
          return kernel(*inputs)
        overrides['cuda'] = kernel
      default = functools.partial(plain, **options)
      if not overrides:
        return default(*inputs)
      return jax.lax.platform_dependent(*inputs, **overrides, default=default)

    return cast(F, operation)

  return decorate


def with_vjp(
  forward: Callable[..., Any], backward: Callable[..., Any], static: int = 0
) -> Callable[..., Any]:
  """Returns a function with these passes; its first `static` arguments are no arrays.

  forward() returns the result and the residuals, which backward() takes.
  """
  result = lambda *inputs: forward(*inputs)[0]
  function = jax.custom_vjp(result, nondiff_argnums=range(static))
  function.defvjp(forward, backward)
  return function


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TransposedWeight:
  """A weight that is stored transposed: the axes of its outputs come first.

  A CPU reads such a weight faster in a product of few rows. linear() takes it like an
  ordinary weight.
  """

  array: Array


def linear(
  x: Float[Array, '*rows I'],
  weight: Array | TransposedWeight,
  bias: Float[Array, ' O'] | None = None,
  *,
  dtype: DTypeLike,
) -> Float[Array, '*rows O']:
  """Returns x W + b; the product is computed in `dtype`.

  W may have several axes of outputs or inputs, such as heads. They are flattened.
  """
  if isinstance(weight, TransposedWeight):
    matrix = jnp.asarray(weight.array, dtype).reshape(-1, x.shape[-1])
    product = _times_transposed(x, matrix)
  else:
    product = _times(x, jnp.asarray(weight, dtype).reshape(x.shape[-1], -1))
  if bias is None:
    return product
  # repeat_rows() comes before the cast, so that the gradient is summed in float32.
  return product + repeat_rows(bias, product).astype(x.dtype)


@forms(cpu='linear')
def _times(
  x: Float[Array, '*rows I'], weight: Float[Array, 'I O']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight, preferred_element_type=x.dtype)


@forms(cpu='linear_transposed')
def _times_transposed(
  x: Float[Array, '*rows I'], weight: Float[Array, 'O I']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight.T, preferred_element_type=x.dtype)


@forms(cpu='repeat_rows')
def repeat_rows(
  vector: Float[Array, ' O'], x: Float[Array, '*rows O']
) -> Float[Array, '*rows O']:
  """Returns an array of x's shape that has the vector in every row.

  Its gradient is a sum over all rows, in the vector's dtype.
  """
  return jnp.broadcast_to(vector, x.shape)


def _einsum_forward(axes: str, a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
  return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32), (a, b)


def _einsum_backward(
  axes: str, operands: tuple[Array, Array], gradient: Array
) -> tuple[Array, ...]:
  plain = functools.partial(jnp.einsum, axes)
  return jax.vjp(plain, *operands)[1](gradient.astype(operands[0].dtype))


# An einsum with a float32 result, whatever the operands' dtype. Its backward pass
# rounds the gradient to that dtype. JAX alone would compute its products in float32,
# which takes an accelerator at least twice as long.
float32_einsum = with_vjp(_einsum_forward, _einsum_backward, static=1)


@forms(cpu='weighted_values')
def weighted_values(
  weights: Float[Array, 'B H T M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B H T V']:
  """Returns each head's weighted sum of values: weights times V in equation 1."""
  return jnp.einsum('bhtm,bhmv->bhtv', weights, v)


@forms(cpu='times_transposed')
def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """Returns x E^T, where E is the embedding matrix `table`."""
  rows = x.reshape(-1, x.shape[-1]).astype(table.dtype)
  product = float32_einsum('nd,wd->nw', rows, table)
  return product.reshape(*x.shape[:-1], -1)


@forms('epsilon', cpu='smoothed_cross_entropy', gpu='cross_entropy')
def smoothed_cross_entropy(
  x: Float[Array, '*rows D'],
  table: Float[Array, 'W D'],
  labels: Int[Array, '*rows'],
  real: Bool[Array, '*rows'],
  *,
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Returns the label-smoothed and the plain cross-entropy of the logits x E^T.

  Both are sums over the rows where `real` is True, in nats. training/step.py has the
  formula. Only the smoothed sum has a gradient, whose pass reads the logits once.
  """
  # Zeros follow the logits up to a multiple of TILE. Without them XLA for GPUs copies
  # the logits' gradient, to add zeros to it.
  z = logits(x, jnp.pad(table, ((0, -len(table) % TILE), (0, 0))))
  normalizer, true = _logsumexp_and_label_logit(len(table), z, labels)
  # Sum z, from the sum of the table's rows: this reads no logits.
  total = (x * repeat_rows(table.sum(0, dtype=jnp.float32), x)).sum(-1)
  off = epsilon / (len(table) - 1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * total
  plain = jax.lax.stop_gradient(normalizer - true)
  over_real = lambda rows: jnp.where(real, rows, 0).sum()
  return over_real(smoothed), over_real(plain)


def _logsumexp_forward(
  count: int, logits: Float32[Array, '*rows W'], labels: Int[Array, '*rows']
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
  """Returns log sum exp z and z_true; z are the first `count` logits of each row."""
  true = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
  z = jnp.where(_tokens(logits) < count, logits, -jnp.inf)
  normalizer = jax.nn.logsumexp(z, -1)
  return (normalizer, true), (logits, labels, normalizer)


def _logsumexp_backward(
  count: int, residuals: tuple[Array, Array, Array], gradients: tuple[Array, Array]
) -> tuple[Array, None]:
  logits, labels, normalizer = residuals
  column = lambda x: x[..., None]
  by_normalizer, by_true = map(column, gradients)
  tokens = _tokens(logits)
  # This overflows in the padding if all z are far below 0; `where` then drops it.
  probabilities = jnp.exp(logits - column(normalizer))
  by_logits = jnp.where(tokens < count, probabilities * by_normalizer, 0)
  return by_logits + jnp.where(tokens == column(labels), by_true, 0), None


def _tokens(logits: Array) -> Array:
  return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)


_logsumexp_and_label_logit = with_vjp(_logsumexp_forward, _logsumexp_backward, static=1)


def update_if(
  condition: Bool[Array, ''], update: Callable[..., tuple[Any, ...]], *state: Any
) -> tuple[Any, ...]:
  """Returns update(*state) if the condition holds, else the state as it is.

  XLA should update in place. On a CPU it does so in a branch, with half as many passes.
  Elsewhere a branch would copy all arrays, so both cases are computed.
  """
  in_branch = lambda condition, *state: jax.lax.cond(
    condition, update, lambda *state: state, *state
  )
  choose = functools.partial(jax.tree.map, functools.partial(jnp.where, condition))
  plain = lambda _, *state: choose(update(*state), state)
  return jax.lax.platform_dependent(condition, *state, cpu=in_branch, default=plain)


@forms('count', cpu='top_tokens')
def top_tokens(
  logits: Float32[Array, '*rows W'], *, count: int
) -> tuple[Float32[Array, '*rows C'], Int[Array, '*rows C'], Float32[Array, '*rows']]:
  """Returns the top `count` logits of each row, their tokens, and log sum exp z.

  Logits and tokens equal those of lax.top_k: best first, and the lower token first if
  logits are equal. lax.top_k is slow for a whole row, so the tokens are divided into
  groups. The `count` largest logits lie in the `count` groups with the largest maxima.
  """
  *rows, tokens = logits.shape
  normalizer = jax.nn.logsumexp(logits, -1)
  if tokens <= GROUP * count:
    return *jax.lax.top_k(logits, count), normalizer
  missing = [(0, 0)] * len(rows) + [(0, -tokens % GROUP)]
  padded = jnp.pad(logits, missing, constant_values=-jnp.inf)
  groups = padded.reshape(*rows, -1, GROUP)
  # Sorted, so that equal logits keep their order; top_k takes the first of equal ones.
  best = jnp.sort(jax.lax.top_k(groups.max(-1), count)[1])
  candidates = jnp.take_along_axis(groups, best[..., None], -2).reshape(*rows, -1)
  values, index = jax.lax.top_k(candidates, count)
  top = jnp.take_along_axis(best, index // GROUP, -1) * GROUP + index % GROUP
  return values, top, normalizer
