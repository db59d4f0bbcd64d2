"""The model's operations, each written plainly, as an accelerator runs it.

On a CPU some of them need another form, to be fast or to be correct. ops_cpu.py has
these forms under the same names. `_on_cpu` puts them into programs that are compiled
for a CPU, even if JAX itself runs on an accelerator.

Products are computed in the dtype of the weights: float32 activations are cast to it.
Results have the activations' dtype. Inputs of a softmax are float32.

layers.py explains the names of axes; C is the number of top tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int

from transformer_jax.model import ops_cpu

Array = jax.Array | np.ndarray


def _on_cpu(form: Callable) -> Callable:
  """Replaces the decorated operation by `form` in programs compiled for a CPU."""

  def decorate(plain: Callable) -> Callable:
    @jax.jit  # so that JAX traces both forms once for all layers
    @functools.wraps(plain)
    def operation(*inputs: Any) -> Any:
      return jax.lax.platform_dependent(*inputs, cpu=form, default=plain)

    return operation

  return decorate


@functools.partial(
  jax.tree_util.register_dataclass, data_fields=['array'], meta_fields=[]
)
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
  return product if bias is None else add_bias(product, bias)


def _matrix(weight: Array, shape: tuple[int, int], dtype: DTypeLike) -> jax.Array:
  return jnp.asarray(weight, dtype).reshape(shape)


@_on_cpu(ops_cpu.linear)
def _linear(
  x: Float[Array, '*rows I'], weight: Float[Array, 'I O']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight, preferred_element_type=x.dtype)


@_on_cpu(ops_cpu.linear_transposed)
def _linear_transposed(
  x: Float[Array, '*rows I'], weight: Float[Array, 'O I']
) -> Float[Array, '*rows O']:
  return jnp.matmul(x.astype(weight.dtype), weight.T, preferred_element_type=x.dtype)


@_on_cpu(ops_cpu.repeat_rows)
def repeat_rows(
  vector: Float[Array, ' O'], x: Float[Array, '*rows O']
) -> Float[Array, '*rows O']:
  """Returns an array of x's shape that has the vector in every row.

  Its gradient is a sum over all rows, in the vector's own dtype.
  """
  return jnp.broadcast_to(vector, x.shape)


def add_bias(
  x: Float[Array, '*rows O'], bias: Float[Array, ' O']
) -> Float[Array, '*rows O']:
  """Returns x + b."""
  # repeat_rows() comes before the cast, so that the gradient is summed in float32.
  return x + repeat_rows(bias, x).astype(x.dtype)


def scores(axes: str, q: Float[Array, '...'], k: Float[Array, '...']) -> jax.Array:
  """Returns Q K^T along the axes of an einsum, in float32 for the softmax."""
  return _einsum_in_float32(axes, q, k)


@_on_cpu(ops_cpu.weighted_values)
def weighted_values(
  weights: Float[Array, 'B H T M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B H T V']:
  """Returns each head's weighted sum of values: weights times V in equation 1."""
  return jnp.einsum('bhtm,bhmv->bhtv', weights, v)


@_on_cpu(ops_cpu.logits)
def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """Returns x E^T, where E is the embedding matrix `table`."""
  rows = x.reshape(-1, x.shape[-1]).astype(table.dtype)
  product = _einsum_in_float32('nd,wd->nw', rows, table)
  return product.reshape(*x.shape[:-1], -1)


def _einsum_in_float32(axes: str, a: Array, b: Array) -> jax.Array:
  """Returns an einsum in float32, whatever the operands' dtype.

  The backward pass rounds the incoming gradient to the operands' dtype. JAX alone would
  compute its products in float32, which takes an accelerator at least twice as long.
  """
  if a.dtype == jnp.float32:
    return jnp.einsum(axes, a, b)
  return _rounding_einsum(axes, a, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounding_einsum(axes, a, b):
  return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)


def _rounding_einsum_forward(axes, a, b):
  return _rounding_einsum(axes, a, b), (a, b)


def _rounding_einsum_backward(axes, operands, gradient):
  plain = functools.partial(jnp.einsum, axes)
  return jax.vjp(plain, *operands)[1](gradient.astype(operands[0].dtype))


_rounding_einsum.defvjp(_rounding_einsum_forward, _rounding_einsum_backward)


def smoothed_cross_entropy(
  x: Float[Array, '*rows D'],
  table: Float[Array, 'W D'],
  bias: Float[Array, ' W'] | None,
  labels: Int[Array, '*rows'],
  real: Bool[Array, '*rows'],
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Returns the label-smoothed and the plain cross-entropy of the logits x E^T + b.

  Both are sums over the rows where `real` is True, in nats. `epsilon` is epsilon_ls.
  training/loss.py has the formula. Only the smoothed sum has a gradient. The backward
  pass reads the logits once, and keeps no other array of their size.
  """
  forms = ops_cpu.smoothed_cross_entropy, _smoothed_cross_entropy
  on_cpu, plain = (functools.partial(form, epsilon=epsilon) for form in forms)
  inputs = x, table, bias, labels, real
  return jax.lax.platform_dependent(*inputs, cpu=on_cpu, default=plain)


def _smoothed_cross_entropy(x, table, bias, labels, real, epsilon):
  z = logits(x, table)
  z = z if bias is None else add_bias(z, bias)
  normalizer, true, total = _terms(z, labels)
  off = epsilon / (z.shape[-1] - 1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * total
  plain = jax.lax.stop_gradient(normalizer - true)
  over_real = lambda rows: jnp.where(real, rows, 0).sum()
  return over_real(smoothed), over_real(plain)


@jax.custom_vjp
def _terms(logits, labels):
  """Returns log sum exp z, z_true and sum z, the terms of loss.py's formula."""
  true = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
  return jax.nn.logsumexp(logits, -1), true, logits.sum(-1)


def _terms_forward(logits, labels):
  terms = _terms(logits, labels)
  return terms, (logits, labels, terms[0])


def _terms_backward(residuals, gradients):
  logits, labels, normalizer = residuals
  column = lambda x: x[..., None]
  of_normalizer, of_true, of_sum = map(column, gradients)
  tokens = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  hit = jnp.where(tokens == column(labels), of_true, 0)
  return jnp.exp(logits - column(normalizer)) * of_normalizer + hit + of_sum, None


_terms.defvjp(_terms_forward, _terms_backward)


def update_if(
  condition: Bool[Array, ''], update: Callable[..., tuple], *state: Any
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


def top_tokens(
  logits: Float32[Array, '*rows W'], count: int
) -> tuple[Float32[Array, '*rows C'], Int[Array, '*rows C'], Float32[Array, '*rows']]:
  """Returns the top `count` logits of each row, their tokens, and log sum exp z.

  log sum exp z is over all tokens. Logits and tokens equal those of lax.top_k: best
  first, and the lower token first if logits are equal. lax.top_k is slow for a whole
  row, so this divides the tokens into groups of 128. The `count` largest logits lie in
  the `count` groups with the largest maxima.
  """
  forms = ops_cpu.top_tokens, _top_tokens
  on_cpu, plain = (functools.partial(form, count=count) for form in forms)
  return jax.lax.platform_dependent(logits, cpu=on_cpu, default=plain)


def _top_tokens(logits: Array, count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
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
