"""The layer types of Table 1 (section 4), each [n, d] -> [n, d] on one sequence.

The paper's n^2 d for self-attention counts only the two products of softmax(Q K^T) V.
The projections before and after them, four products of n d^2, are not in its table.
(Section 4 says that a separable convolution with k = n, k n d + n d^2, costs as much as
self-attention and a feed-forward layer together, so that n d^2 is the latter's.)
So `self_attention` has no projections, and `projected_self_attention` is another row.
Both have one head: h heads of size d / h take as many multiply-adds.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

Vectors = Float[Array, 'n d']  # a sequence


def self_attention(x: Vectors) -> Vectors:
  """Returns softmax(x x^T / sqrt(d)) x: every position attends to all."""
  everywhere = np.ones((1, 1, len(x)), bool)
  return _attend(x[None], x[None], x[None], everywhere)[0]


def projected_self_attention(
  x: Vectors,
  w_q: Float[Array, 'd d'],
  w_k: Float[Array, 'd d'],
  w_v: Float[Array, 'd d'],
  w_o: Float[Array, 'd d'],
) -> Vectors:
  """Returns self-attention with section 3.2.2's projections: n^2 d + n d^2."""
  q, k, v = (x[None] @ w for w in (w_q, w_k, w_v))
  return _attend(q, k, v, np.ones((1, 1, len(x)), bool))[0] @ w_o


def restricted_self_attention(x: Vectors, r: int) -> Vectors:
  """Lets every position attend to the r positions around it; r is odd, 3 or more.

  Each block of r // 2 positions attends to itself and to the blocks before and after,
  under a mask. That makes 1.5 times the scores that are needed, but not n^2.

  Raises:
    ValueError: r is even, or less than 3.
  """
  if r < 3 or r % 2 == 0:
    raise ValueError(f'r={r}: a neighbourhood with a middle is 3, 5, 7 ... positions')
  n, d = x.shape
  reach = r // 2
  blocks = -(-n // reach)
  padded = jnp.pad(x, ((reach, (blocks + 1) * reach - n), (0, 0)))
  padded = padded.reshape(blocks + 2, reach, d)
  around = jnp.concatenate([padded[:-2], padded[1:-1], padded[2:]], axis=1)
  query, key = np.arange(reach)[:, None], np.arange(-reach, 2 * reach)
  near = np.abs(query - key) <= reach
  position = np.arange(blocks)[:, None] * reach + key
  inside = (position >= 0) & (position < n)
  z = _attend(padded[1:-1], around, around, near[None] & inside[:, None])
  return z.reshape(blocks * reach, d)[:n]


def _attend(
  q: Float[Array, 'B T d'],
  k: Float[Array, 'B S d'],
  v: Float[Array, 'B S d'],
  mask: Bool[np.ndarray, '#B #T S'],
) -> Float[Array, 'B T d']:
  # Not the model's attention, whose products have no forward derivative (measuring.py).
  scores = jnp.einsum('btd,bsd->bts', q * q.shape[-1] ** -0.5, k)
  weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
  return jnp.einsum('bts,bsd->btd', weights, v)


def recurrent(x: Vectors, u: Float[Array, 'd d'], w: Float[Array, 'd d']) -> Vectors:
  """Returns h_t = tanh(h_{t-1} W + x_t U), with all inputs' products at once."""

  def step(h: jax.Array, x_u: jax.Array) -> tuple[jax.Array, jax.Array]:
    h = jnp.tanh(h @ w + x_u)
    return h, h

  return jax.lax.scan(step, jnp.zeros_like(x[0]), x @ u)[1]


def convolution(x: Vectors, kernel: Float[Array, 'k d d']) -> Vectors:
  """Shows every position the k positions around it, padded with zeros."""
  return _convolve(x, kernel, 1, 'SAME')


def dilated_convolution(
  x: Vectors, kernel: Float[Array, 'k d d'], dilation: int
) -> Vectors:
  """Shows every position itself and k - 1 positions before it, `dilation` apart.

  It is causal, as ByteNet's decoder is. Kernels that look both ways would not
  connect all positions: with k = 3, dilated by 1, 3, 9 ..., the path from the first
  position to the third goes one back and three on, but nothing is before the first.
  """
  return _convolve(x, kernel, dilation, [((len(kernel) - 1) * dilation, 0)])


def _convolve(
  x: Vectors,
  kernel: Float[Array, 'k d d'],
  dilation: int,
  padding: str | list[tuple[int, int]],
) -> Vectors:
  return jax.lax.conv_general_dilated(
    x[None],
    kernel,
    window_strides=(1,),
    padding=padding,
    rhs_dilation=(dilation,),
    dimension_numbers=('NWC', 'WIO', 'NWC'),
  )[0]


class LayerType(NamedTuple):
  """A layer of width d and, for some types, with a reach, which is its k or r."""

  reach: str  # the reach's symbol, or ''
  weights: Callable[[int, int], list[tuple[int, ...]]]  # (d, reach) -> shapes
  apply: Callable[..., jax.Array]  # (reach, x, *weights)


# The names are those of paper.TABLE_1, which lacks the projected one.
LAYER_TYPES = {
  'Self-Attention': LayerType('', lambda d, _: [], lambda _, x: self_attention(x)),
  'Self-Attention, projected': LayerType(
    '', lambda d, _: [(d, d)] * 4, lambda _, *xw: projected_self_attention(*xw)
  ),
  'Recurrent': LayerType('', lambda d, _: [(d, d)] * 2, lambda _, *xw: recurrent(*xw)),
  'Convolutional': LayerType(
    'k', lambda d, k: [(k, d, d)], lambda _, *xw: convolution(*xw)
  ),
  'Self-Attention (restricted)': LayerType(
    'r', lambda d, _: [], lambda r, x: restricted_self_attention(x, r)
  ),
}
