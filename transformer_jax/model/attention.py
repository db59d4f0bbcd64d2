"""Multi-head attention (section 3.2), for whole sentences and for cached decoding.

layers.py has the glossary of shapes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32

from transformer_jax.model import ops

Array = jax.Array | np.ndarray
glorot = nnx.initializers.glorot_uniform


def attention_weights(
  q: Float[Array, 'B T H K'], k: Float[Array, 'B S H K'], mask: Bool[Array, '#B #T S']
) -> Float32[Array, 'B H T S']:
  """Returns softmax(Q K^T / sqrt(d_k)), the left factor of equation 1.

  `mask` is True where a query may attend to a key. A query that may attend to no key
  has uniform weights, not NaN.
  """
  return _masked_softmax(ops.scores('bthk,bshk->bhts', _scaled(q), k), mask)


def _scaled(q: Array) -> Array:
  """Q / sqrt(d_k)."""
  return q * q.shape[-1] ** -0.5


def _masked_softmax(
  scores: Float32[Array, 'B H T S'], mask: Bool[Array, '#B #T S']
) -> Float32[Array, 'B H T S']:
  return jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))


def _add(x: Array, bias: nnx.Param | None) -> Array:
  return x if bias is None else ops.add_bias(x, bias[...])


class KeyValues(NamedTuple):
  """The keys and values of M positions, laid out for cached decoding."""

  k: Float[Array, 'B H K M']
  v: Float[Array, 'B H M V']


class MultiHeadAttention(nnx.Module):
  """Section 3.2.2: W^Q, W^K [D, H, K], W^V [D, H, V], W^O [H, V, D].

  The paper has no biases. With `biases` there are four vectors, as Marian has them.
  """

  def __init__(
    self,
    d_model: int,
    h: int,
    d_k: int,
    d_v: int,
    *,
    biases: bool = False,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    inward = glorot(in_axis=0, out_axis=(1, 2))
    outward = glorot(in_axis=(0, 1), out_axis=2)
    self.query = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.key = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.value = nnx.Param(inward(rngs.params(), (d_model, h, d_v)))
    self.output = nnx.Param(outward(rngs.params(), (h, d_v, d_model)))
    vector = lambda size: nnx.Param(jnp.zeros(size)) if biases else None
    self.query_bias, self.key_bias = vector(h * d_k), vector(h * d_k)
    self.value_bias, self.output_bias = vector(h * d_v), vector(d_model)
    self.dtype = dtype

  def _split_heads(
    self, x: Float[Array, 'B T D'], weight: nnx.Param, bias: nnx.Param | None
  ) -> jax.Array:
    """Returns x W_i + b_i of each head i: [B, T, H, K or V]."""
    D, *heads = weight.shape
    flat = weight[...].astype(self.dtype).reshape(D, -1)
    return _add(ops.linear(x, flat), bias).reshape(*x.shape[:-1], *heads)

  def _join_heads(self, heads: Float[Array, 'B T H V']) -> Float[Array, 'B T D']:
    """Returns Concat(heads) W^O, and its bias if there is one."""
    flat = self.output[...].astype(self.dtype).reshape(-1, self.output.shape[-1])
    joined = ops.linear(heads.reshape(*heads.shape[:2], -1), flat)
    return _add(joined, self.output_bias)

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    memory: Float[Array, 'B S D'],
    mask: Bool[Array, '#B #T S'],
  ) -> Float[Array, 'B T D']:
    """Attends from x to memory; the same array for self-attention."""
    return self.with_weights(x, memory, mask)[0]

  def with_weights(
    self,
    x: Float[Array, 'B T D'],
    memory: Float[Array, 'B S D'],
    mask: Bool[Array, '#B #T S'],
    drop: Callable[[jax.Array], jax.Array] = lambda weights: weights,
  ) -> tuple[Float[Array, 'B T D'], Float32[Array, 'B H T S']]:
    """Returns the output of __call__, and the attention weights of every head.

    `drop` applies dropout to the weights that multiply the values. The returned weights
    are those before dropout.
    """
    q = self._split_heads(x, self.query, self.query_bias)
    k = self._split_heads(memory, self.key, self.key_bias)
    v = self._split_heads(memory, self.value, self.value_bias)
    weights = attention_weights(q, k, mask)
    heads = jnp.einsum('bhts,bshv->bthv', drop(weights).astype(v.dtype), v)
    return self._join_heads(heads), weights

  # Section 6.1: one position at a time

  def key_values(self, memory: Float[Array, 'B M D']) -> KeyValues:
    """Returns the keys and values that attend_cached() takes."""
    return self._key_values(memory, self._split_heads)

  def key_values_transposed(self, x: Float[Array, 'B R D']) -> KeyValues:
    """Returns what key_values() does, of weights as search_weights() has them."""
    return self._key_values(x, self._split_transposed)

  def _key_values(
    self, memory: Float[Array, 'B M D'], split: Callable[..., jax.Array]
  ) -> KeyValues:
    k = split(memory, self.key, self.key_bias)
    v = split(memory, self.value, self.value_bias)
    return KeyValues(k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))

  def attend_cached(
    self, x: Float[Array, 'B R D'], cached: KeyValues, mask: Bool[Array, '#B #R M']
  ) -> Float[Array, 'B R D']:
    """Returns what __call__ does, for R rows that share keys and values.

    The weights are stored transposed, as search_weights() has them.
    """
    q = self._split_transposed(x, self.query, self.query_bias)
    scores = ops.scores('brhk,bhkm->bhrm', _scaled(q), cached.k)
    weights = _masked_softmax(scores, mask).astype(cached.v.dtype)
    heads = ops.weighted_values(weights, cached.v)
    return self._join_transposed(heads.transpose(0, 2, 1, 3))

  def _split_transposed(
    self, x: Float[Array, 'B R D'], weight: nnx.Param, bias: nnx.Param | None
  ) -> jax.Array:
    """Returns what _split_heads() does, of a weight stored as [H, K or V, D]."""
    *heads, D = weight.shape
    flat = weight[...].astype(self.dtype).reshape(-1, D)
    return _add(ops.linear_transposed(x, flat), bias).reshape(*x.shape[:-1], *heads)

  def _join_transposed(self, heads: Float[Array, 'B R H V']) -> Float[Array, 'B R D']:
    """Returns what _join_heads() does, of a weight stored as [D, H, V]."""
    flat = self.output[...].astype(self.dtype).reshape(self.output.shape[0], -1)
    joined = ops.linear_transposed(heads.reshape(*heads.shape[:2], -1), flat)
    return _add(joined, self.output_bias)
