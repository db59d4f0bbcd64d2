"""Multi-head attention (section 3.2). layers.py explains the names of axes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32

from transformer_jax.config import Model
from transformer_jax.model import ops
from transformer_jax.model.dropout import NO_DROPOUT, Dropout

Weight = Array | ops.TransposedWeight


class KeyValues(NamedTuple):
  """The keys and values of each head at the M positions that queries attend to."""

  k: Float[Array, 'B H K M']
  v: Float[Array, 'B H M V']


def attention_weights(
  q: Float[Array, 'B T H K'], k: Float[Array, 'B H K M'], mask: Bool[Array, '#B #T M']
) -> Float32[Array, 'B H T M']:
  """Returns softmax(Q K^T / sqrt(d_k)): in equation 1, the factor before V.

  `mask` is True where a query may attend to a key. A query that may attend to no key
  gets equal weights for all keys, not NaN.
  """
  d_k = q.shape[-1]
  scores = ops.float32_einsum('bthk,bhkm->bhtm', q * d_k**-0.5, k)
  return jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))


@ops.forms('h', 'dtype', gpu='attention')
def attend(
  x: Float[Array, 'B T D'],
  memory: Float[Array, 'B M D'] | KeyValues | None,
  matrices: tuple[Weight, Weight, Weight],
  mask: Bool[Array, '#B #T M'],
  dropout: Dropout,
  *,
  h: int,
  dtype: DTypeLike,
) -> Float[Array, 'B T O']:
  """Returns Concat(head_1, ..., head_h) of queries from x.

  Args:
    memory: the positions that keys and values are computed from, or the keys and values
      themselves. None: x.
    matrices: W^Q, W^K and W^V of all heads.
    dropout: the dropout of the sub-layer's output. Its attention_rate is for weights.
  """
  query, key, value = matrices
  if not isinstance(memory, KeyValues):
    memory = _key_values(x if memory is None else memory, key, value, h, dtype)
  weights = attention_weights(_project(x, query, h, dtype), memory.k, mask)
  return _concatenate(dropout.of_attention(weights), memory.v)


def _key_values(
  x: Float[Array, 'B M D'], key: Weight, value: Weight, h: int, dtype: DTypeLike
) -> KeyValues:
  k, v = (_project(x, weight, h, dtype) for weight in (key, value))
  return KeyValues(k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))


def _project(
  x: Float[Array, 'B T D'], weight: Weight, h: int, dtype: DTypeLike
) -> Float[Array, 'B T H K']:
  return ops.linear(x, weight, dtype=dtype).reshape(*x.shape[:2], h, -1)


def _concatenate(
  weights: Float32[Array, 'B H T M'], v: Float[Array, 'B H M V']
) -> Float[Array, 'B T O']:
  """Returns the heads side by side, as W^O takes them."""
  heads = ops.weighted_values(weights.astype(v.dtype), v).swapaxes(1, 2)
  return heads.reshape(*heads.shape[:2], -1)


class MultiHeadAttention(nnx.Module):
  """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2).

  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), and by equation 1
  Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V.

  Each parameter holds the matrices of all heads: W^Q and W^K [D, H, K], W^V [D, H, V],
  W^O [H, V, D]. There are no biases.
  """

  def __init__(self, model: Model, *, dtype: DTypeLike, rngs: nnx.Rngs):
    glorot = nnx.initializers.glorot_uniform
    split, join = glorot(0, (1, 2)), glorot((0, 1), 2)
    d_model, h, d_k, d_v = model.d_model, model.h, model.d_k, model.d_v
    self.query = nnx.Param(split(rngs.params(), (d_model, h, d_k)))
    self.key = nnx.Param(split(rngs.params(), (d_model, h, d_k)))
    self.value = nnx.Param(split(rngs.params(), (d_model, h, d_v)))
    self.output = nnx.Param(join(rngs.params(), (h, d_v, d_model)))
    self.h, self.dtype = h, dtype

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    memory: Float[Array, 'B M D'] | KeyValues | None,
    mask: Bool[Array, '#B #T M'],
    dropout: Dropout = NO_DROPOUT,
  ) -> Float[Array, 'B T D']:
    """Attends from the T positions of x to the M positions of `memory`.

    Args:
      memory: the encoder's output in the decoder's cross-attention, or key_values()
        of the M positions. None: x, which is self-attention.
      mask: True where a position of x may attend to a position of `memory`.
      dropout: the dropout of the output. Its attention_rate is for the weights.
    """
    matrices = self.query.get_value(), self.key.get_value(), self.value.get_value()
    heads = attend(x, memory, matrices, mask, dropout, h=self.h, dtype=self.dtype)
    return ops.linear(heads, self.output.get_value(), dtype=self.dtype)

  def weights(
    self,
    x: Float[Array, 'B T D'],
    k: Float[Array, 'B H K M'],
    mask: Bool[Array, '#B #T M'],
  ) -> Float32[Array, 'B H T M']:
    """Returns the weights of all heads, without dropout."""
    q = _project(x, self.query.get_value(), self.h, self.dtype)
    return attention_weights(q, k, mask)

  def key_values(self, x: Float[Array, 'B M D']) -> KeyValues:
    """Returns K W_i^K and V W_i^V of each head i, where K = V = x."""
    matrices = self.key.get_value(), self.value.get_value()
    return _key_values(x, *matrices, self.h, self.dtype)
