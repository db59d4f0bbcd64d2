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

from transformer_jax.model import ops_cpu

F = TypeVar('F', bound=Callable[..., Any])

TILE = 128  # the loss pads logits on accelerators to a multiple of this
# Added to the variance in every LayerNorm, as in the paper's code (tensor2tensor).
NORM_EPSILON = 1e-6

# 'cuda': programs for an NVIDIA GPU have kernels. 'plain': no program has. 'interpret':
# all programs have them as operations of XLA, as tests want. None: 'cuda' if JAX runs
# on a GPU, else 'plain', so that other programs are not traced with kernels.
mode = jax.make_user_context(None)


def current_mode() -> str:
  """Returns the mode of what is traced now."""
  return mode.value or ('cuda' if jax.default_backend() == 'gpu' else 'plain')


def with_kernels(kernels: str, function: F) -> F:
  """Returns a function without kernels if a config's `kernels` is 'plain'."""

  @functools.wraps(function)
  def traced(*inputs: Any) -> Any:
    with mode('plain' if kernels == 'plain' else current_mode()):
      return function(*inputs)

  return cast(F, traced)


def forms(
  *static: str, cpu: Callable[..., Any] | None = None, gpu: str = ''
) -> Callable[[F], F]:
  """Replaces the decorated operation in programs compiled for a CPU or an NVIDIA GPU.

  Args:
    static: names of keyword arguments that are no arrays.
    cpu: the form for a CPU.
    gpu: name of the form in ops_gpu.py. That takes the plain form too, for shapes that
      its kernel does not take.
  """

  def decorate(plain: F) -> F:
    # Jitted, so that JAX traces all forms once for all layers.
    @functools.partial(jax.jit, static_argnames=static)
    @functools.wraps(plain)
    def operation(*inputs: Any, **options: Any) -> Any:
      own = {'cpu': functools.partial(cpu, **options)} if cpu else {}
      if gpu and current_mode() != 'plain':
        # Imported here, since Pallas takes 0.3 s, and other devices need none of it.
        from transformer_jax.model import ops_gpu

        kernel = functools.partial(getattr(ops_gpu, gpu), plain, **options)
        if current_mode() == 'interpret':
          return kernel(*inputs)
        own['cuda'] = kernel
      default = functools.partial(plain, **options)
      if not own:
        return default(*inputs)
      return jax.lax.platform_dependent(*inputs, **own, default=default)

    return cast(F, operation)

  return decorate


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
    product = _linear_transposed(x, _matrix(weight.array, (-1, x.shape[-1]), dtype))
  else:
    product = _linear(x, _matrix(weight, (x.shape[-1], -1), dtype))
  if bias is None:
    return product
  # repeat_rows() comes before the cast, so that the gradient is summed in float32.
  return product + repeat_rows(bias, product).astype(x.dtype)


def _matrix(weight: Array, shape: tuple[int, int], dtype: DTypeLike) -> Array:
  return jnp.asarray(weight, dtype).reshape(shape)


@forms(cpu=ops_cpu.linear)
def _linear(
  x: Float[Array, '*rows I'], weight: Float[Array, 'I O']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight, preferred_element_type=x.dtype)


@forms(cpu=ops_cpu.linear_transposed)
def _linear_transposed(
  x: Float[Array, '*rows I'], weight: Float[Array, 'O I']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight.T, preferred_element_type=x.dtype)


@forms(cpu=ops_cpu.repeat_rows)
def repeat_rows(
  vector: Float[Array, ' O'], x: Float[Array, '*rows O']
) -> Float[Array, '*rows O']:
  """Returns an array of x's shape that has the vector in every row.

  Its gradient is a sum over all rows, in the vector's own dtype.
  """
  return jnp.broadcast_to(vector, x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def float32_einsum(axes: str, a: Array, b: Array) -> Array:
  """Returns an einsum in float32, whatever the operands' dtype.

  The backward pass rounds the incoming gradient to the operands' dtype. JAX alone would
  compute its products in float32, which takes an accelerator at least twice as long.
  """
  return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)


def _float32_einsum_forward(
  axes: str, a: Array, b: Array
) -> tuple[Array, tuple[Array, Array]]:
  return float32_einsum(axes, a, b), (a, b)


def _float32_einsum_backward(
  axes: str, operands: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
  plain = functools.partial(jnp.einsum, axes)
  a, b = jax.vjp(plain, *operands)[1](gradient.astype(operands[0].dtype))
  return a, b


float32_einsum.defvjp(_float32_einsum_forward, _float32_einsum_backward)


@forms(cpu=ops_cpu.weighted_values)
def weighted_values(
  weights: Float[Array, 'B H T M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B H T V']:
  """Returns each head's weighted sum of values: weights times V in equation 1."""
  return jnp.einsum('bhtm,bhmv->bhtv', weights, v)


@forms(cpu=ops_cpu.times_transposed)
def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """Returns x E^T, where E is the embedding matrix `table`."""
  rows = x.reshape(-1, x.shape[-1]).astype(table.dtype)
  product = float32_einsum('nd,wd->nw', rows, table)
  return product.reshape(*x.shape[:-1], -1)


@forms('epsilon', cpu=ops_cpu.smoothed_cross_entropy, gpu='cross_entropy')
def smoothed_cross_entropy(
  x: Float[Array, '*rows D'],
  table: Float[Array, 'W D'],
  labels: Int[Array, '*rows'],
  real: Bool[Array, '*rows'],
  *,
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Returns the label-smoothed and the plain cross-entropy of the logits x E^T.

  Both are sums over the rows where `real` is True, in nats. `epsilon` is epsilon_ls.
  training/step.py has the formula. Only the smoothed sum has a gradient. The backward
  pass reads the logits once, and keeps no other array of their size.
  """
  # Zeros follow the logits up to a multiple of TILE. Without them XLA for GPUs copies
  # the logits' gradient, to add zeros to it.
  z = logits(x, jnp.pad(table, ((0, -len(table) % TILE), (0, 0))))
  normalizer, true = _logsumexp_and_label_logit(z, labels, len(table))
  # Sum z, from the sum of the table's rows: this reads no logits.
  total = (x * repeat_rows(table.sum(0, dtype=jnp.float32), x)).sum(-1)
  off = epsilon / (len(table) - 1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * total
  plain = jax.lax.stop_gradient(normalizer - true)
  over_real = lambda rows: jnp.where(real, rows, 0).sum()
  return over_real(smoothed), over_real(plain)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _logsumexp_and_label_logit(
  logits: Float32[Array, '*rows W'], labels: Int[Array, '*rows'], count: int
) -> tuple[Float32[Array, '*rows'], Float32[Array, '*rows']]:
  """Returns log sum exp z and z_true; z are the first `count` logits of each row."""
  true = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
  z = jnp.where(_tokens(logits) < count, logits, -jnp.inf)
  return jax.nn.logsumexp(z, -1), true


def _logsumexp_forward(
  logits: Array, labels: Array, count: int
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
  terms = _logsumexp_and_label_logit(logits, labels, count)
  return terms, (logits, labels, terms[0])


def _logsumexp_backward(
  count: int, residuals: tuple[Array, Array, Array], gradients: tuple[Array, Array]
) -> tuple[Array, None]:
  logits, labels, normalizer = residuals
  column = lambda x: x[..., None]
  of_normalizer, of_true = map(column, gradients)
  tokens = _tokens(logits)
  # This overflows in the padding if all z are far below 0; `where` then drops it.
  probabilities = jnp.exp(logits - column(normalizer))
  by_logits = jnp.where(tokens < count, probabilities * of_normalizer, 0)
  return by_logits + jnp.where(tokens == column(labels), of_true, 0), None


def _tokens(logits: Array) -> Array:
  return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)


_logsumexp_and_label_logit.defvjp(_logsumexp_forward, _logsumexp_backward)


def update_if(
  condition: Bool[Array, ''], update: Callable[..., tuple[Any, ...]], *state: Any
) -> tuple[Any, ...]:
  """Returns update(*state) if the condition holds, else the state as it is.

  XLA should update in place. On a CPU it does so in a branch, with half as many passes.
  Elsewhere it would copy all arrays after a branch, so that both cases are computed.
  """
  in_branch = lambda condition, *state: jax.lax.cond(
    condition, update, lambda *state: state, *state
  )
  choose = functools.partial(jax.tree.map, functools.partial(jnp.where, condition))
  plain = lambda _, *state: choose(update(*state), state)
  return jax.lax.platform_dependent(condition, *state, cpu=in_branch, default=plain)


@forms('count', cpu=ops_cpu.top_tokens)
def top_tokens(
  logits: Float32[Array, '*rows W'], *, count: int
) -> tuple[Float32[Array, '*rows C'], Int[Array, '*rows C'], Float32[Array, '*rows']]:
  """Returns the top `count` logits of each row, their tokens, and log sum exp z.

  log sum exp z is over all tokens. Logits and tokens equal those of lax.top_k: best
  first, and the lower token first if logits are equal. lax.top_k is slow for a whole
  row, so this divides the tokens into groups of 128. The `count` largest logits lie in
  the `count` groups with the largest maxima.
  """
  size = ops_cpu.GROUP
  *rows, tokens = logits.shape
  normalizer = jax.nn.logsumexp(logits, -1)
  if tokens <= size * count:
    return *jax.lax.top_k(logits, count), normalizer
  missing = [(0, 0)] * len(rows) + [(0, -tokens % size)]
  padded = jnp.pad(logits, missing, constant_values=-jnp.inf)
  groups = padded.reshape(*rows, -1, size)
  # Sorted, so that equal logits keep their order; top_k takes the first of equal ones.
  best = jnp.sort(jax.lax.top_k(groups.max(-1), count)[1])
  candidates = jnp.take_along_axis(groups, best[..., None], -2).reshape(*rows, -1)
  values, index = jax.lax.top_k(candidates, count)
  top = jnp.take_along_axis(best, index // size, -1) * size + index % size
  return values, top, normalizer
