"""The layer types of Table 1 (section 4), each [n, d] -> [n, d] on one sequence.

The paper's n^2 d for self-attention counts the two products of softmax(Q K^T) V alone:
the projections that make Q, K and V, and the one behind, are four products of n d^2,
which it does not print. (Section 4 sets a separable convolution, k n d + n d^2, with
k = n equal to self-attention and a feed-forward layer, so that n d^2 is the latter's.)
So `self_attention` has none; with them it is a row of its own. It has one head: h heads
of d / h take as many multiply-adds.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from transformer_jax.model.layers import Array, attention_weights

Vectors = Float[Array, 'n d']  # a sequence


def self_attention(x: Vectors) -> Vectors:
  """softmax(x x^T / sqrt(d)) x: every position sees every other."""
  everywhere = np.ones((1, 1, len(x)), bool)
  return _attend(x[None], x[None], x[None], everywhere)[0]


def projected_self_attention(
  x: Vectors,
  w_q: Float[Array, 'd d'],
  w_k: Float[Array, 'd d'],
  w_v: Float[Array, 'd d'],
  w_o: Float[Array, 'd d'],
) -> Vectors:
  """The same with section 3.2.2's projections: n^2 d and n d^2."""
  q, k, v = (x[None] @ w for w in (w_q, w_k, w_v))
  return _attend(q, k, v, np.ones((1, 1, len(x)), bool))[0] @ w_o


def restricted_self_attention(x: Vectors, r: int) -> Vectors:
  """Every position sees the r around it, itself in their middle; r is odd, 3 or more.

  Blocks of r // 2 positions look at themselves and the two blocks beside them, so that
  1.5 r products are made of which r count, and nothing grows with n^2.
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
  weights = attention_weights(q[:, :, None], k[:, :, None], mask)
  return jnp.einsum('bts,bsd->btd', weights[:, 0], v)


def recurrent(x: Vectors, u: Float[Array, 'd d'], w: Float[Array, 'd d']) -> Vectors:
  """h_t = tanh(h_{t-1} W + x_t U), the inputs' products made all at once."""

  def step(h: jax.Array, x_u: jax.Array) -> tuple[jax.Array, jax.Array]:
    h = jnp.tanh(h @ w + x_u)
    return h, h

  return jax.lax.scan(step, jnp.zeros_like(x[0]), x @ u)[1]


def convolution(x: Vectors, kernel: Float[Array, 'k d d']) -> Vectors:
  """Every position sees the k around it; outside the sequence there are zeros."""
  return _convolve(x, kernel, 1, 'SAME')


def dilated_convolution(
  x: Vectors, kernel: Float[Array, 'k d d'], dilation: int
) -> Vectors:
  """Every position sees itself and k - 1 before it, `dilation` apart.

  It looks back, as ByteNet's decoder does. Looking to both sides would not join all
  positions: with k = 3, dilated by 1, 3, 9 ..., the way from the first to the third is
  one back and three on, and there is nothing before the first.
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
  """A layer of one width d and, where it has one, one reach: its k or r."""

  reach: str  # the symbol, or ''
  weights: Callable[[int, int], list[tuple[int, ...]]]  # (d, reach) -> shapes
  apply: Callable[..., jax.Array]  # (reach, x, *weights)


# The names of paper.TABLE_1, and the projected one.
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
