"""The best words of rows of logits, without a sort of all of them."""

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.model import products

GROUP = 128  # most words of which the largest logit is looked at first


def best_words(logits: jax.Array, count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
  """lax.top_k of the last axis, equal values included, and its log sum exp.

  Args:
    logits: [..., W], W >= count.

  Returns:
    The values [..., count], best first, their words [..., count] and the logarithm of
    the softmax's denominator [...].
  """
  stored, axis = products.as_stored(logits)
  found = _best(stored, count, axis)
  return jax.tree.map(lambda x: x.reshape(*logits.shape[:-1], *x.shape[1:]), found)


def _best(
  x: jax.Array, count: int, axis: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Of a matrix with the words along `axis`.

  The `count` largest lie in the `count` groups whose own largest are largest; of equal
  ones in the first of them, as do the first of equal values.
  """
  words = x.shape[axis]
  by_rows = lambda matrix: matrix if axis else matrix.T
  size = next((n for n in range(GROUP, GROUP // 2, -1) if words % n == 0), GROUP)
  if words <= size * count:
    normalizer = jax.nn.logsumexp(x, axis)
    return *lax.top_k(by_rows(x), count), normalizer
  whole = x
  if words % size:
    fill = [(0, 0), (0, 0)]
    fill[axis] = (0, -words % size)
    whole = jnp.pad(x, fill, constant_values=-jnp.inf)
  groups = (*whole.shape[:axis], -1, size, *whole.shape[axis + 1 :])
  largest = by_rows(whole.reshape(groups).max(axis + 1))
  chosen = jnp.sort(lax.top_k(largest, count)[1])
  among = chosen[..., None] * size + jnp.arange(size)[None, None]
  among = among.reshape(chosen.shape[0], -1)
  values = by_rows(jnp.take_along_axis(whole, by_rows(among), axis))
  values, places = lax.top_k(values, count)
  # The barrier: XLA would look for the largest in all of x again.
  top = lax.optimization_barrier(largest).max(1)
  total = products.sum_of(jnp.exp(x - jnp.expand_dims(top, axis)), axis)
  return values, jnp.take_along_axis(among, places, 1), top + jnp.log(total)
