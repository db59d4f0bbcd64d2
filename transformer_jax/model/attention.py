"""Multi-head attention (section 3.2). layers.py explains the names of axes."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32

from transformer_jax.config import Model
from transformer_jax.model import ops
from transformer_jax.model.ops import Array


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
    memory: KeyValues,
    mask: Bool[Array, '#B #T M'],
    drop: Callable[[jax.Array], jax.Array] = lambda weights: weights,
  ) -> Float[Array, 'B T D']:
    """Attends from the T positions of x to the M positions of `memory`.

    Args:
      memory: key_values() of x itself in self-attention, and of the encoder's output in
        the decoder's cross-attention.
      mask: True where a position of x may attend to a position of `memory`.
      drop: applies dropout to the weights before they multiply the values.
    """
    weights = drop(self.weights(x, memory.k, mask)).astype(memory.v.dtype)
    heads = ops.weighted_values(weights, memory.v).swapaxes(1, 2)
    return self._linear(heads.reshape(*x.shape[:2], -1), self.output)

  def weights(
    self,
    x: Float[Array, 'B T D'],
    k: Float[Array, 'B H K M'],
    mask: Bool[Array, '#B #T M'],
  ) -> Float32[Array, 'B H T M']:
    """Returns the weights of all heads, without dropout."""
    q = self._split_heads(self._linear(x, self.query))
    return attention_weights(q, k, mask)

  def key_values(self, x: Float[Array, 'B M D']) -> KeyValues:
    """Returns K W_i^K and V W_i^V of each head i, where K = V = x."""
    k = self._split_heads(self._linear(x, self.key))
    v = self._split_heads(self._linear(x, self.value))
    return KeyValues(k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))

  def _linear(
    self, x: Float[Array, 'B T I'], weight: nnx.Param
  ) -> Float[Array, 'B T O']:
    """Returns x W. The axes of heads in W are flattened into one."""
    return ops.linear(x, weight.get_value(), dtype=self.dtype)

  def _split_heads(self, x: Float[Array, 'B T O']) -> Float[Array, 'B T H K']:
    return x.reshape(*x.shape[:2], self.h, -1)
