"""Products with a weight matrix, in the forms that XLA does right and fast on a CPU.

There the YNN library is to multiply (parallel.multiply_by_ynn says why); of products of
two matrices it takes those whose left side is not transposed, and others go to Eigen,
which also is slow where the right side is. So on a CPU no side is transposed but by a
copy. A sum over rows XLA does itself, down one column after the other; it becomes a
product with ones. On other platforms everything is the plain product. docs/speed.md has
what was measured.

Operands are of the dtype of weights. Results are float32 on a CPU, where processors may
multiply bfloat16 several times faster but XLA does all else with it more slowly, and of
the dtype of activations elsewhere.

layers.py has the glossary of shapes; also N rows of F features, made of D.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, Float32

Array = jax.Array | np.ndarray


def on_cpu() -> bool:
  return jax.default_backend() == 'cpu'


def activations(dtype: DTypeLike) -> jnp.dtype:
  """What is between products is of this dtype, where their operands are of `dtype`."""
  return jnp.dtype(jnp.float32 if on_cpu() else dtype)


def linear(
  x: Float[Array, '*rows D'], weight: Float[Array, 'D F']
) -> Float[Array, '*rows F']:
  """x W."""
  if not on_cpu():
    return x @ weight
  rows = _as_rows(x, weight.dtype)
  product = _linear(rows, weight)[: x.size // x.shape[-1]]
  return product.reshape(*x.shape[:-1], -1)


def _as_rows(x: Float[Array, '*rows D'], dtype: DTypeLike) -> Float[Array, 'N D']:
  """At least two for operands in bfloat16: YNN takes no product with a vector."""
  rows = x.reshape(-1, x.shape[-1])
  missing = int(len(rows) == 1 and dtype == jnp.bfloat16)
  return jnp.pad(rows, ((0, missing), (0, 0)))


_float32 = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _linear(x: Float[Array, 'N D'], weight: Float[Array, 'D F']) -> jax.Array:
  return _float32(x.astype(weight.dtype), weight)


def _linear_forward(x, weight):
  x = x.astype(weight.dtype)
  return _float32(x, weight), (x, weight)


def _linear_backward(residuals, gradient):
  x, weight = residuals
  gradient = gradient.astype(weight.dtype)
  towards_x = _float32(gradient, transposed_weight(weight))
  return towards_x, _float32(transposed(x), gradient).astype(weight.dtype)


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
  if axis or not on_cpu():
    return x.sum(axis)
  # Added part to part first, which XLA does together with whatever makes x.
  parts = math.gcd(len(x), 8)
  folded = sum(x.reshape(parts, -1, x.shape[1]))
  return jnp.ones(len(folded), x.dtype) @ folded


def logits(
  x: Float[Array, '*rows D'], table: Float[Array, 'W D']
) -> Float32[Array, '*rows W']:
  """x E^T. A CPU stores them by words, not by rows: see as_stored()."""
  if on_cpu():
    flat = _as_rows(x, table.dtype)
    # Not to become x E^T again: XLA fails on that in bfloat16, x being transposed.
    product = copied(_by_words(table, flat)).T[: x.size // x.shape[-1]]
  else:
    flat = x.reshape(-1, x.shape[-1])
    product = in_float32('nd,wd->nw', flat, table)
  return product.reshape(*x.shape[:-1], -1)


def in_float32(axes: str, a: Array, b: Array) -> jax.Array:
  """einsum with a result in float32, for a softmax, whatever the operands are in.

  Its gradient is rounded to the operands' dtype. JAX leaves it in float32 and makes the
  other operand float32 too, which an accelerator multiplies at half the speed or less.
  """
  if a.dtype == jnp.float32:
    return jnp.einsum(axes, a, b)
  return _in_float32(axes, a, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_float32(axes, a, b):
  return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)


def _in_float32_forward(axes, a, b):
  return _in_float32(axes, a, b), (a, b)


def _in_float32_backward(axes, operands, gradient):
  plain = functools.partial(jnp.einsum, axes)
  return jax.vjp(plain, *operands)[1](gradient.astype(operands[0].dtype))


_in_float32.defvjp(_in_float32_forward, _in_float32_backward)


@jax.custom_vjp
def _by_words(table: Float[Array, 'W D'], x: Float[Array, 'N D']) -> jax.Array:
  return _float32(table, transposed(x.astype(table.dtype)))


def _by_words_forward(table, x):
  x = x.astype(table.dtype)
  return _by_words(table, x), (table, x)


def _by_words_backward(residuals, gradient):
  table, x = residuals
  gradient = gradient.astype(table.dtype)
  towards_x = copied(_float32(transposed_weight(table), gradient)).T
  return _float32(gradient, x).astype(table.dtype), towards_x


_by_words.defvjp(_by_words_forward, _by_words_backward)


def as_stored(logits: Float32[Array, '*rows W']) -> tuple[Array, int]:
  """logits() as the matrix that lies in memory, and which of its axes is the words'.

  The transpositions here and in logits() cancel.
  """
  rows = logits.reshape(-1, logits.shape[-1])
  return (rows.T, 0) if on_cpu() else (rows, 1)


def transposed(x: Float[Array, 'N D']) -> Float[Array, 'D N']:
  """x^T, as a copy that XLA on a CPU takes for no transposition.

  Where it does take an operand for one, by its layout, before any other pass, it makes
  operands in bfloat16 float32 again: hence the way through a vector.
  """
  return copied(x.T.ravel()).reshape(x.shape[::-1])


def transposed_weight(weight: Float[Array, 'D F']) -> Float[Array, 'F D']:
  """transposed() of what comes from memory and not from the cache, 16 rows at a time.

  XLA alone goes down column after column, and fetches a line for every element. Not
  for activations: it makes equal copies of one once, but equal loops each time.
  """
  # As integers: XLA would make all of `result` float32, and bfloat16 again, for a part.
  bits = weight.view(f'uint{8 * weight.dtype.itemsize}')
  rows = min(len(bits), 16)

  def put(number: jax.Array, result: jax.Array) -> jax.Array:
    # The last part lies partly over the one before it, where D is no multiple.
    part = jax.lax.dynamic_slice_in_dim(bits, number * rows, rows)
    return jax.lax.dynamic_update_slice_in_dim(result, part.T, number * rows, 1)

  empty = jnp.zeros(bits.shape[::-1], bits.dtype)
  result = jax.lax.fori_loop(0, -(-len(bits) // rows), put, empty)
  return result.view(weight.dtype)


def copied(x: jax.Array) -> jax.Array:
  """x; keeps XLA on a CPU from making a transposition of it part of a product."""
  return jax.lax.optimization_barrier(x) if on_cpu() else x
