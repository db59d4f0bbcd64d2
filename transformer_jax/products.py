"""Products with a weight matrix, in the forms that XLA does right and fast on a CPU.

There the YNN library is to multiply (parallel.multiply_by_ynn says why); of products of
two matrices it takes those whose left side is not transposed, and others go to Eigen,
which also is slow where the right side is. So on a CPU no side is transposed but by a
copy. A sum over rows XLA does itself, down one column after the other; it becomes a
product with ones. On other platforms everything is the plain product. docs/speed.md has
what was measured.

layers.py has the glossary of shapes; also N rows of F features, made of D.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32

Array = jax.Array | np.ndarray


def on_cpu() -> bool:
  return jax.default_backend() == 'cpu'


def linear(
  x: Float[Array, '*rows D'], weight: Float[Array, 'D F']
) -> Float[Array, '*rows F']:
  """x W."""
  if not on_cpu():
    return x @ weight
  return _linear(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _linear(x: Float[Array, 'N D'], weight: Float[Array, 'D F']) -> jax.Array:
  return x @ weight


def _linear_forward(x, weight):
  return x @ weight, (x, weight)


def _linear_backward(residuals, gradient):
  x, weight = residuals
  return gradient @ copied(weight.T), copied(x.T) @ gradient


_linear.defvjp(_linear_forward, _linear_backward)


def for_rows(
  vector: Float[Array, ' F'], x: Float[Array, '*rows F']
) -> Float[Array, '*rows F']:
  """The vector in every row of an array like x, as a bias is added."""
  if not on_cpu():
    return jnp.broadcast_to(vector, x.shape)
  return _for_rows(vector, x.size // x.shape[-1]).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _for_rows(vector: Float[Array, ' F'], rows: int) -> jax.Array:
  return jnp.broadcast_to(vector, (rows, vector.size))


_for_rows.defvjp(
  lambda vector, rows: (_for_rows(vector, rows), None),
  lambda rows, _, gradient: (sum_of(gradient, 0),),
)


def sum_of(x: jax.Array, axis: int) -> jax.Array:
  """A matrix summed along one axis."""
  if axis == 0 and on_cpu():
    return jnp.ones(x.shape[0], x.dtype) @ x
  return x.sum(axis)


def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """x E^T. A CPU stores them by words, not by rows: see as_stored()."""
  flat = x.reshape(-1, x.shape[-1])
  if on_cpu():
    product = _by_words(table, flat).T
  else:
    product = jnp.einsum('nd,wd->nw', flat, table, preferred_element_type=jnp.float32)
  return product.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _by_words(table: Float[Array, 'W D'], x: Float[Array, 'N D']) -> jax.Array:
  return jnp.matmul(table, copied(x.T), preferred_element_type=jnp.float32)


def _by_words_backward(residuals, gradient):
  table, x = residuals
  towards_x = copied(copied(table.T) @ gradient).T
  return (gradient @ x).astype(table.dtype), towards_x.astype(x.dtype)


_by_words.defvjp(lambda table, x: (_by_words(table, x), (table, x)), _by_words_backward)


def as_stored(logits: Float32[Array, '*rows W']) -> tuple[Array, int]:
  """logits() as the matrix that lies in memory, and which of its axes is the words'.

  The transpositions here and in logits() cancel.
  """
  rows = logits.reshape(-1, logits.shape[-1])
  return (rows.T, 0) if on_cpu() else (rows, 1)


def copied(x: jax.Array) -> jax.Array:
  """x; keeps XLA on a CPU from making a transposition of it part of a product."""
  return jax.lax.optimization_barrier(x) if on_cpu() else x
