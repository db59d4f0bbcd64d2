"""The model's operations, each written plainly, as an accelerator runs it.

On a CPU a few of them are much faster in another form. ops_cpu.py has those under the
same names, and `_faster_on_cpu` chooses: nothing else in this room asks what JAX runs
on, or knows that a CPU stores logits by words and not by rows.

Products multiply in the dtype of the weights, so float32 activations may meet bfloat16
weights. Results have the activations' dtype; what goes into a softmax is float32.

layers.py has the glossary of shapes; F are the features that a product makes of D.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from transformer_jax.model import ops_cpu

Array = jax.Array | np.ndarray


def _faster_on_cpu(form: Callable) -> Callable:
  """Has `form` run in place of the decorated operation where JAX runs on a CPU."""

  def choosing(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def operation(*inputs: Any) -> Any:
      return (form if jax.default_backend() == 'cpu' else plain)(*inputs)

    return operation

  return choosing


@_faster_on_cpu(ops_cpu.linear)
def linear(
  x: Float[Array, '*rows D'], weight: Float[Array, 'D F']
) -> Float[Array, '*rows F']:
  """Returns x W."""
  return jnp.matmul(x.astype(weight.dtype), weight, preferred_element_type=x.dtype)


@_faster_on_cpu(ops_cpu.linear_transposed)
def linear_transposed(
  x: Float[Array, '*rows D'], weight: Float[Array, 'F D']
) -> Float[Array, '*rows F']:
  """Returns x W^T, of a weight that is stored transposed."""
  return jnp.matmul(x.astype(weight.dtype), weight.T, preferred_element_type=x.dtype)


@_faster_on_cpu(ops_cpu.in_every_row)
def in_every_row(
  vector: Float[Array, ' F'], x: Float[Array, '*rows F']
) -> Float[Array, '*rows F']:
  """Returns the vector in the shape of x, to be added as a bias is.

  Its gradient is a sum over all rows, in the vector's own dtype.
  """
  return jnp.broadcast_to(vector, x.shape)


def add_bias(
  x: Float[Array, '*rows F'], bias: Float[Array, ' F']
) -> Float[Array, '*rows F']:
  """Returns x + b."""
  # Cast after it is broadcast: its gradient is then summed in float32.
  return x + in_every_row(bias, x).astype(x.dtype)


@_faster_on_cpu(ops_cpu.sum_of_squares)
def sum_of_squares(x: Float[Array, '*shape']) -> Float[Array, '']:
  """Returns the sum of all elements' squares."""
  return (x * x).sum()


def scores(axes: str, q: Float[Array, '...'], k: Float[Array, '...']) -> jax.Array:
  """Returns Q K^T along the axes of an einsum, in float32 for the softmax."""
  return _einsum_in_float32(axes, q, k)


@_faster_on_cpu(ops_cpu.weighted_values)
def weighted_values(
  weights: Float[Array, 'B H R M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B H R V']:
  """Returns each head's values, summed by the weights of attention."""
  return jnp.einsum('bhrm,bhmv->bhrv', weights, v)


@_faster_on_cpu(ops_cpu.logits)
def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """Returns x E^T, of the embedding matrix E."""
  flat = x.reshape(-1, x.shape[-1]).astype(table.dtype)
  product = _einsum_in_float32('nd,wd->nw', flat, table)
  return product.reshape(*x.shape[:-1], -1)


def _einsum_in_float32(axes: str, a: Array, b: Array) -> jax.Array:
  """einsum with a float32 result, whatever the operands' dtype.

  Its gradient is rounded to the operands' dtype. JAX would leave it in float32 and make
  the other operand float32 too, which an accelerator multiplies at half the speed or
  less.
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


@_faster_on_cpu(ops_cpu.cross_entropy)
def cross_entropy(
  x: Float[Array, '*rows D'],
  table: Float[Array, 'W D'],
  bias: Float[Array, ' W'] | None,
  labels: Int[Array, '*rows'],
  real: Bool[Array, '*rows'],
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Returns the label-smoothed and the plain cross-entropy of the logits x E^T + b.

  Both are sums over the rows where `real` is True, in nats, by the closed form of
  training/loss.py. Only the smoothed sum has a gradient. The gradient takes one pass
  over the logits, and nothing else of their size is kept.
  """
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
  """Returns what a smoothed cross-entropy is made of: log sum exp z, z_true, sum z."""
  true = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
  return jax.nn.logsumexp(logits, -1), true, logits.sum(-1)


def _terms_forward(logits, labels):
  terms = _terms(logits, labels)
  return terms, (logits, labels, terms[0])


def _terms_backward(residuals, gradients):
  logits, labels, normalizer = residuals
  column = lambda x: x[..., None]
  of_normalizer, of_true, of_sum = map(column, gradients)
  words = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  hit = jnp.where(words == column(labels), of_true, 0)
  return jnp.exp(logits - column(normalizer)) * of_normalizer + hit + of_sum, None


_terms.defvjp(_terms_forward, _terms_backward)


@_faster_on_cpu(ops_cpu.best_words)
def best_words(
  logits: Float32[Array, '*rows W'], count: int
) -> tuple[Float32[Array, '*rows C'], Int[Array, '*rows C'], Float32[Array, '*rows']]:
  """Returns the `count` best words of each row, and log sum exp of all of them.

  As lax.top_k has them: values, best first, and words; of equal values the first word
  comes first. top_k itself is slow for whole rows, so the words are taken in groups.
  The `count` largest logits lie in the `count` groups with the largest maxima. Of equal
  maxima the first groups are taken, so that equal logits keep their order.
  """
  words, size = logits.shape[-1], ops_cpu.GROUP
  normalizer = jax.nn.logsumexp(logits, -1)
  if words <= size * count:
    return *jax.lax.top_k(logits, count), normalizer
  *rows, _ = logits.shape
  missing = [(0, 0)] * len(rows) + [(0, -words % size)]
  whole = jnp.pad(logits, missing, constant_values=-jnp.inf)
  groups = whole.reshape(*rows, -1, size)
  chosen = jnp.sort(jax.lax.top_k(groups.max(-1), count)[1])
  among = jnp.take_along_axis(groups, chosen[..., None], -2)
  values, places = jax.lax.top_k(among.reshape(*rows, -1), count)
  found = jnp.take_along_axis(chosen, places // size, -1) * size + places % size
  return values, found, normalizer
