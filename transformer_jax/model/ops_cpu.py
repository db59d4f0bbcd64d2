"""The forms that a CPU needs of operations in ops.py.

XLA for CPUs has two libraries that multiply matrices, YNN and Eigen. YNN computes
products whose left matrix is not transposed, and Eigen the others. Eigen has a fault:
with as many threads as devices its products may be wrong (docs/speed.md). So neither
this file nor a gradient ever transposes a left matrix. Only YNN uses the processor's
instructions for bfloat16. Other operations are faster in float32, so results are
float32. CONTRIBUTING.md lists what was tried.

layers.py explains the names of axes. Here N and M are numbers of rows, and W of
tokens.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, PyTree

from transformer_jax.model.ops import GROUP, with_vjp

CACHE_BYTES = 1 << 24  # of the processor; larger arrays are read from memory
LOGITS_BYTES = 5 << 20  # of the logits that the loss makes at a time
VECTOR_FLOATS = 16  # float32 numbers that a processor reads at once
SUM_GROUPS = 16  # partial sums of a sum over tokens

_matmul = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)


def linear(
  x: Float[Array, '*rows I'], weight: Float[Array, 'I O']
) -> Float[Array, '*rows O']:
  """Returns x W as one product of matrices."""
  product = _product(_as_rows(x, weight.dtype), weight)[: x.size // x.shape[-1]]
  return product.reshape(*x.shape[:-1], -1).astype(x.dtype)


def _product_forward(
  a: Float[Array, 'N I'], b: Float[Array, 'I O']
) -> tuple[Float32[Array, 'N O'], tuple[Array, ...]]:
  """Returns a b; the product is computed in b's dtype."""
  rounded = a.astype(b.dtype)
  return _matmul(rounded, b), (rounded, b, jnp.zeros(0, a.dtype))


def _product_backward(
  residuals: tuple[Array, ...], gradient: Float32[Array, 'N O']
) -> tuple[Array, Array]:
  """Returns both gradients.

  No product has a transposed left matrix, and the gradient of a is not rounded.
  """
  a, b, empty_like_a = residuals
  gradient = gradient.astype(b.dtype)
  # In float32 YNN takes a transposed right matrix, which is faster than a copy.
  transposed_b = b.T if b.dtype == jnp.float32 else _transpose(b)
  gradient_a = _matmul(gradient, transposed_b).astype(empty_like_a.dtype)
  if gradient.size + b.size < a.size:  # transposes whichever is smaller
    gradient_b = _transpose(_materialize(_matmul(_transpose(gradient), a)))
  else:
    gradient_b = _matmul(_transpose(a), gradient)
  return gradient_a, gradient_b.astype(b.dtype)


_product = with_vjp(_product_forward, _product_backward)


def _as_rows(x: Float[Array, '*rows D'], dtype: DTypeLike) -> Float[Array, 'N D']:
  """Returns x as a matrix to multiply in `dtype`.

  In bfloat16 a single row gets a second row of zeros: YNN takes no vector.
  """
  rows = x.reshape(-1, x.shape[-1])
  missing = int(len(rows) == 1 and dtype == jnp.bfloat16)
  return jnp.pad(rows, ((0, missing), (0, 0)))


def repeat_rows(
  vector: Float[Array, ' O'], x: Float[Array, '*rows O']
) -> Float[Array, '*rows O']:
  """Returns the vector in the shape of x; its gradient is a product with ones."""
  return _repeat_rows(x.size // x.shape[-1], vector).reshape(x.shape)


_repeat_rows = with_vjp(
  lambda rows, vector: (jnp.broadcast_to(vector, (rows, vector.size)), None),
  lambda rows, _, gradient: (_sum_rows(gradient),),
  static=1,
)


def _sum_rows(x: Float[Array, 'N O']) -> Float[Array, ' O']:
  """Returns x.sum(0); XLA alone would read one column after the other.

  It first adds blocks of rows, at most eight: XLA fuses this with the operation that
  computes x. A product with ones then adds the remaining rows.
  """
  folded = _fold(jnp.add, x)
  return jnp.ones(len(folded), x.dtype) @ folded


def _fold(
  combine: Callable[[Array, Array], Array], x: Float[Array, 'N O']
) -> Float[Array, 'M O']:
  """Cuts the rows into at most eight equal blocks and combines these by element."""
  return functools.reduce(combine, x.reshape(math.gcd(len(x), 8), -1, x.shape[1]))


def _sum_rows_in_groups(x: Float[Array, 'N O']) -> Float[Array, ' O']:
  """Returns x.sum(0) as a sum of SUM_GROUPS sums.

  One running sum of 37,000 small terms and a large one would be wrong by 2e-4.
  """
  folded = _fold(jnp.add, x)
  group = np.arange(len(folded)) * SUM_GROUPS // len(folded)
  members = group == np.arange(SUM_GROUPS)[:, None]
  return (jnp.asarray(members, x.dtype) @ folded).sum(0)


def weighted_values(
  weights: Float[Array, 'B H T M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B H T V']:
  """Returns weights V; the barrier keeps the transposition that follows separate."""
  return lax.optimization_barrier(jnp.einsum('bhtm,bhmv->bhtv', weights, v))


def linear_transposed(
  x: Float[Array, '*rows I'], weight: Float[Array, 'O I']
) -> Float[Array, '*rows O']:
  """Returns times_transposed() in x's dtype."""
  return times_transposed(x, weight).astype(x.dtype)


def times_transposed(
  x: Float[Array, '*rows I'], weight: Float[Array, 'O I']
) -> Float32[Array, '*rows O']:
  """Returns x W^T as (W x^T)^T, stored as [O, rows].

  YNN would copy W^T, the right matrix, in each product.
  """
  rows = _as_rows(x, weight.dtype).astype(weight.dtype)
  # Without the barrier XLA would make one product x W^T of this.
  product = lax.optimization_barrier(_product(weight, _transpose(rows)))
  return product.T[: x.size // x.shape[-1]].reshape(*x.shape[:-1], -1)


def _transpose(x: Float[Array, 'N D']) -> Float[Array, 'D N']:
  """Returns x^T as a copy that XLA does not recognise as a transposition.

  XLA first casts operands that have the layout of a transposition from bfloat16 to
  float32. Flattening x^T to a vector hides that layout.
  """
  if x.size * x.dtype.itemsize > CACHE_BYTES:
    return _transpose_by_rows(x)
  return lax.optimization_barrier(x.T.ravel()).reshape(x.shape[::-1])


def _transpose_by_rows(x: Float[Array, 'N D']) -> Float[Array, 'D N']:
  """Returns x^T; transposes 16 rows at a time.

  XLA alone reads one column after the other, and fetches a line of memory for each
  element: base's embedding takes 163 ms instead of 37.
  """
  # As integers: XLA would cast the whole bfloat16 result to float32 for each 16 rows.
  bits = x.view('uint16') if x.dtype == jnp.bfloat16 else x

  def put(number: Array, result: Array) -> Array:
    # The last 16 overlap those before them if N is not a multiple of 16.
    rows = lax.dynamic_slice_in_dim(bits, number * 16, 16)
    return lax.dynamic_update_slice_in_dim(result, rows.T, number * 16, 1)

  empty = jnp.zeros(bits.shape[::-1], bits.dtype)
  return lax.fori_loop(0, -(-len(bits) // 16), put, empty).view(x.dtype)


def smoothed_cross_entropy(*inputs: Array, epsilon: float) -> tuple[Array, Array]:
  """Returns ops.smoothed_cross_entropy(), computed for one chunk of rows at a time.

  A chunk's logits stay in the processor's cache, unless the table is too large. The
  forward pass also computes their gradient, so it keeps no logits. XLA leaves the
  gradient out where nothing reads it.
  """
  return _cross_entropy(epsilon, *inputs)


def _cross_entropy_forward(
  epsilon: float,
  x: Float[Array, '*rows D'],
  table: Float[Array, 'W D'],
  labels: Int[Array, '*rows'],
  real: Bool[Array, '*rows'],
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
  """Returns both sums, and the smoothed one's gradients w.r.t. x and table."""
  count, size = _chunk_sizes(labels.size, *table.shape)

  def cut(y: Array) -> Array:
    missing = [(0, count * size - len(y)), *[(0, 0)] * (y.ndim - 1)]
    return jnp.pad(y, missing).reshape(count, size, *y.shape[1:])

  rows = cut(x.reshape(-1, x.shape[-1]))
  chunks = rows, cut(labels.ravel()), cut(real.ravel().astype(jnp.float32))
  transposed_table = _transpose(table)

  def add(totals: PyTree, chunk: tuple[Array, Array, Array]) -> tuple[PyTree, Array]:
    rows, labels, weights = chunk
    rows = _materialize(rows.astype(table.dtype))
    sums, by_logits = _chunk_sums(table, rows, labels, weights, epsilon)
    by_table = _matmul(by_logits, rows)
    # Without the barrier XLA would make one product, with a transposed left matrix.
    by_rows = lax.optimization_barrier(_matmul(transposed_table, by_logits)).T
    return jax.tree.map(jnp.add, totals, (sums, by_table)), by_rows

  zeros = (jnp.float32(0), jnp.float32(0)), jnp.zeros(table.shape)
  (sums, by_table), by_rows = lax.scan(add, zeros, chunks)
  by_x = by_rows.reshape(-1, x.shape[-1])[: labels.size].reshape(x.shape)
  return sums, (by_x.astype(x.dtype), by_table.astype(table.dtype))


def _cross_entropy_backward(
  epsilon: float, gradient: tuple[Array, Array], sums: tuple[Array, Array]
) -> tuple[Array | None, ...]:
  scaled = jax.tree.map(lambda g: (sums[0] * g).astype(g.dtype), gradient)
  return *scaled, None, None


_cross_entropy = with_vjp(_cross_entropy_forward, _cross_entropy_backward, static=1)


def _chunk_sizes(rows: int, tokens: int, width: int) -> tuple[int, int]:
  """Returns how many chunks the rows are cut into, and how many rows a chunk has."""
  # Each chunk adds to the table's gradient, so the cache must hold that too. If it
  # cannot, a chunk has up to `width` rows: its logits are as large as that gradient.
  limit = LOGITS_BYTES // (4 * tokens) if 4 * tokens * width <= CACHE_BYTES else width
  limit = max(limit // VECTOR_FLOATS, 1) * VECTOR_FLOATS
  if rows <= limit:
    return 1, max(rows, 2)  # a vector would not do, see _as_rows()
  size = -(-rows // -(-rows // limit))
  size = -(-size // VECTOR_FLOATS) * VECTOR_FLOATS
  return -(-rows // size), size


def _chunk_sums(
  table: Float[Array, 'W D'],
  x: Float[Array, 'N D'],
  labels: Int[Array, ' N'],
  weights: Float32[Array, ' N'],
  epsilon: float,
) -> tuple[tuple[Array, Array], Float[Array, 'W N']]:
  """Returns both sums of a chunk, and the smoothed one's gradient w.r.t. its logits."""
  off = epsilon / (len(table) - 1)
  z = lax.optimization_barrier(_matmul(table, _transpose(x)))
  top = lax.optimization_barrier(_fold(jnp.maximum, z)).max(0)
  exponentials = _materialize(jnp.exp(z - top[None]))
  total = _sum_rows_in_groups(exponentials)
  normalizer = top + jnp.log(total)
  true = jnp.take_along_axis(z, labels[None], 0)[0]
  # The sum of a row's logits, from the sum of the table's rows.
  logit_sum = x.astype(jnp.float32) @ _sum_rows(table.astype(jnp.float32))
  smoothed = normalizer - (1 - epsilon - off) * true - off * logit_sum
  tokens = lax.broadcasted_iota(jnp.int32, z.shape, 0)
  target = jnp.where(tokens == labels[None], 1 - epsilon, off)
  by_logits = exponentials * (weights / total)[None] - target * weights[None]
  sums = jnp.vdot(weights, smoothed), jnp.vdot(weights, normalizer - true)
  return sums, _materialize(by_logits.astype(table.dtype))


def _materialize(x: Float[Array, 'N O']) -> Float[Array, 'N O']:
  """Returns x, computed once and stored row by row; XLA alone might do neither."""
  return lax.optimization_barrier(x.ravel()).reshape(x.shape)


def top_tokens(
  logits: Float32[Array, '*rows W'], count: int
) -> tuple[Float32[Array, '*rows C'], Int[Array, '*rows C'], Float32[Array, '*rows']]:
  """Returns ops.top_tokens(), by groups, from logits stored as [W, rows]."""
  x = logits.reshape(-1, logits.shape[-1]).T  # as they are in memory
  if len(x) <= GROUP * count:
    values, top = lax.top_k(x.T, count)
    normalizer = jax.nn.logsumexp(x, 0)
  else:
    values, top, normalizer = _top_in_groups(x, count)
  rows = logits.shape[:-1]
  return values.reshape(*rows, -1), top.reshape(*rows, -1), normalizer.reshape(rows)


def _top_in_groups(
  x: Float32[Array, 'W N'], count: int
) -> tuple[Float32[Array, 'N C'], Int[Array, 'N C'], Float32[Array, ' N']]:
  tokens, rows = x.shape
  # A size that divides the vocabulary, if there is one, saves a padded copy.
  size = next((n for n in range(GROUP, GROUP // 2, -1) if tokens % n == 0), GROUP)
  missing = ((0, -tokens % size), (0, 0))
  padded = jnp.pad(x, missing, constant_values=-jnp.inf) if tokens % size else x
  maxima = padded.reshape(-1, size, rows).max(1).T
  best = jnp.sort(lax.top_k(maxima, count)[1])
  members = (best[..., None] * size + jnp.arange(size)[None, None]).reshape(rows, -1)
  values, index = lax.top_k(jnp.take_along_axis(padded, members.T, 0).T, count)
  # Without the barrier XLA would look for the largest in all of x again.
  top = lax.optimization_barrier(maxima).max(1)
  total = _sum_rows_in_groups(jnp.exp(x - top[None]))
  return values, jnp.take_along_axis(members, index, 1), top + jnp.log(total)
