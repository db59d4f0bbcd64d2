"""The sub-layers and layers of section 3, in the paper's order.

Shapes, here and in every file that touches an array of the model:

  B  sentences of a batch       D  d_model             W  vocabulary
  S  source positions           H  h, heads            R  rows (beams) of a sentence
  T  target positions           K  d_k    V  d_v       L  positions of a cache

Signatures carry these letters, and the tests check every call against them. Modes are
arguments: a dropout key of None means no dropout, and the decoding cache goes in and
comes out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int

Array = jax.Array | np.ndarray
glorot = nnx.initializers.glorot_uniform


# 3.1 Encoder and decoder stacks: what surrounds every sub-layer


class Dropout:
  """Section 5.4's residual dropout, a fresh key at each place it is applied.

  Args:
    rate: P_drop.
    key: of one forward pass, or None to drop nothing.
    places: how often it will be applied at the most.
  """

  def __init__(self, rate: float, key: jax.Array | None, places: int):
    # 16 random bits decide on an element, so the rate is the nearest 65536th.
    self._drop = round(rate * 65536)
    self._keys = iter(jax.random.split(key, places) if key is not None and rate else [])
    self._active = key is not None and self._drop > 0

  def __call__(self, x: Float[Array, '*shape']) -> Float[Array, '*shape']:
    if not self._active:
      return x
    words = jax.random.bits(next(self._keys), (-(-x.size // 2),), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(words, jnp.uint16).ravel()[: x.size]
    keep = bits.reshape(x.shape) >= self._drop
    return jnp.where(keep, x * (65536 / (65536 - self._drop)), 0).astype(x.dtype)


class AddAndNorm(nnx.Module):
  """LayerNorm(x + Sublayer(x)), section 3.1: the norm comes after the sum."""

  def __init__(self, d_model: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.norm = nnx.LayerNorm(d_model, epsilon=1e-6, dtype=dtype, rngs=rngs)

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    sublayer: Float[Array, 'B T D'],
    dropout: Dropout,
  ) -> Float[Array, 'B T D']:
    return self.norm(x + dropout(sublayer))


# 3.2 Attention


def attention_weights(
  q: Float[Array, 'B T H K'], k: Float[Array, 'B S H K'], mask: Bool[Array, '#B #T S']
) -> Float[Array, 'B H T S']:
  """softmax(Q K^T / sqrt(d_k)), equation 1's left factor, in float32.

  `mask` is where T may look; a row that may look nowhere is uniform, not NaN.
  """
  q = q * q.shape[-1] ** -0.5
  scores = jnp.einsum('bthk,bshk->bhts', q, k, preferred_element_type=jnp.float32)
  return jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))


KeysValues = tuple[Float[Array, 'B S H K'], Float[Array, 'B S H V']]


class MultiHeadAttention(nnx.Module):
  """Section 3.2.2: W^Q, W^K [D, H, K], W^V [D, H, V], W^O [H, V, D]; no biases."""

  def __init__(
    self,
    d_model: int,
    h: int,
    d_k: int,
    d_v: int,
    *,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    inward = glorot(in_axis=0, out_axis=(1, 2))
    outward = glorot(in_axis=(0, 1), out_axis=2)
    self.query = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.key = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.value = nnx.Param(inward(rngs.params(), (d_model, h, d_v)))
    self.output = nnx.Param(outward(rngs.params(), (h, d_v, d_model)))
    self.dtype = dtype

  def queries(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T H K']:
    return jnp.einsum('btd,dhk->bthk', x, self.query[...].astype(self.dtype))

  def keys_values(self, x: Float[Array, 'B S D']) -> KeysValues:
    return (
      jnp.einsum('bsd,dhk->bshk', x, self.key[...].astype(self.dtype)),
      jnp.einsum('bsd,dhv->bshv', x, self.value[...].astype(self.dtype)),
    )

  def mix(
    self, weights: Float[Array, 'B H T S'], v: Float[Array, 'B S H V']
  ) -> Float[Array, 'B T D']:
    """Equation 1's right factor, then W^O."""
    heads = jnp.einsum('bhts,bshv->bthv', weights.astype(self.dtype), v)
    return jnp.einsum('bthv,hvd->btd', heads, self.output[...].astype(self.dtype))

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    memory: Float[Array, 'B S D'],
    mask: Bool[Array, '#B #T S'],
  ) -> Float[Array, 'B T D']:
    k, v = self.keys_values(memory)
    return self.mix(attention_weights(self.queries(x), k, mask), v)


# 3.3 Position-wise feed-forward networks


class FeedForward(nnx.Module):
  """max(0, x W_1 + b_1) W_2 + b_2, equation 2."""

  def __init__(self, d_model: int, d_ff: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
    init = glorot()
    self.inner = nnx.Linear(d_model, d_ff, kernel_init=init, dtype=dtype, rngs=rngs)
    self.outer = nnx.Linear(d_ff, d_model, kernel_init=init, dtype=dtype, rngs=rngs)

  def __call__(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T D']:
    return self.outer(jax.nn.relu(self.inner(x)))


# 3.5 Positional encoding


def sinusoids(length: int, d_model: int) -> Float[np.ndarray, 'L D']:
  """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = its cosine."""
  pair = np.arange(d_model) // 2
  angle = np.arange(length)[:, None] / 10000.0 ** (2 * pair / d_model)
  even = np.arange(d_model) % 2 == 0
  return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


# 3.1 again: the layers


class Sizes(NamedTuple):
  """The columns of Table 3 that shape a layer."""

  d_model: int
  d_ff: int
  h: int
  d_k: int
  d_v: int

  def attention(self, dtype: DTypeLike, rngs: nnx.Rngs) -> MultiHeadAttention:
    sizes = self.d_model, self.h, self.d_k, self.d_v
    return MultiHeadAttention(*sizes, dtype=dtype, rngs=rngs)


class EncoderLayer(nnx.Module):
  def __init__(self, sizes: Sizes, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = sizes.attention(dtype, rngs)
    self.attention_norm = AddAndNorm(sizes.d_model, dtype=dtype, rngs=rngs)
    self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(sizes.d_model, dtype=dtype, rngs=rngs)

  def __call__(
    self, x: Float[Array, 'B S D'], mask: Bool[Array, '#B #S S'], dropout: Dropout
  ) -> Float[Array, 'B S D']:
    x = self.attention_norm(x, self.attention(x, x, mask), dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout)


class LayerCache(NamedTuple):
  """Keys and values of the positions decoded so far in one layer."""

  k: Float[Array, 'B R L H K']
  v: Float[Array, 'B R L H V']


class DecoderLayer(nnx.Module):
  def __init__(self, sizes: Sizes, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = sizes.attention(dtype, rngs)
    self.attention_norm = AddAndNorm(sizes.d_model, dtype=dtype, rngs=rngs)
    self.cross = sizes.attention(dtype, rngs)
    self.cross_norm = AddAndNorm(sizes.d_model, dtype=dtype, rngs=rngs)
    self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(sizes.d_model, dtype=dtype, rngs=rngs)

  def _after_attention(
    self,
    x: Float[Array, 'B T D'],
    attended: Float[Array, 'B T D'],
    memory_kv: KeysValues,
    memory_mask: Bool[Array, 'B #T S'],
    dropout: Dropout,
  ) -> Float[Array, 'B T D']:
    x = self.attention_norm(x, attended, dropout)
    k, v = memory_kv
    weights = attention_weights(self.cross.queries(x), k, memory_mask)
    x = self.cross_norm(x, self.cross.mix(weights, v), dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout)

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    causal_mask: Bool[Array, '#B T T'],
    memory: Float[Array, 'B S D'],
    memory_mask: Bool[Array, 'B #T S'],
    dropout: Dropout,
  ) -> Float[Array, 'B T D']:
    attended = self.attention(x, x, causal_mask)
    memory_kv = self.cross.keys_values(memory)
    return self._after_attention(x, attended, memory_kv, memory_mask, dropout)

  def step(
    self,
    x: Float[Array, 'B R D'],
    position: Int[Array, ''],
    cache: LayerCache,
    memory_kv: KeysValues,
    memory_mask: Bool[Array, 'B 1 S'],
  ) -> tuple[Float[Array, 'B R D'], LayerCache]:
    """One position of R rows a sentence, which share the sentence's memory_kv."""
    k, v = self.attention.keys_values(x)
    put = jax.lax.dynamic_update_index_in_dim
    cache = LayerCache(put(cache.k, k, position, 2), put(cache.v, v, position, 2))
    B, R, L, H, K = cache.k.shape
    seen = (jnp.arange(L) <= position)[None, None]
    q = self.attention.queries(x).reshape(B * R, 1, H, K)
    weights = attention_weights(q, cache.k.reshape(B * R, L, H, K), seen)
    attended = self.attention.mix(weights, cache.v.reshape(B * R, L, H, -1))
    attended = attended.reshape(x.shape)
    none = Dropout(0.0, None, 0)
    return self._after_attention(x, attended, memory_kv, memory_mask, none), cache
