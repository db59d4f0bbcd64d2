"""The Transformer, in the order of section 3 of the paper.

Shapes, here and in every file that touches an array of the model:

  B  sentences of a batch       D  d_model             W  vocabulary
  S  source positions           H  h, heads            R  rows (beams) of a sentence
  T  target positions           K  d_k    V  d_v       L  positions of a cache

Modes are arguments: a dropout key of None means no dropout, and the decoding cache
goes in and comes out. Ids of 0 are padding; masks are made from them in here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from transformer_jax.vocabulary import BOS, PAD

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

  def __call__(self, x: jax.Array) -> jax.Array:
    if not self._active:
      return x
    words = jax.random.bits(next(self._keys), (-(-x.size // 2),), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(words, jnp.uint16).ravel()[: x.size]
    keep = bits.reshape(x.shape) >= self._drop
    return jnp.where(keep, x * (65536 / (65536 - self._drop)), 0).astype(x.dtype)


class AddAndNorm(nnx.Module):
  """LayerNorm(x + Sublayer(x)), section 3.1: the norm comes after the sum."""

  def __init__(self, d_model: int, *, dtype: jnp.dtype, rngs: nnx.Rngs):
    self.norm = nnx.LayerNorm(d_model, epsilon=1e-6, dtype=dtype, rngs=rngs)

  def __call__(self, x: jax.Array, sublayer: jax.Array, dropout: Dropout) -> jax.Array:
    return self.norm(x + dropout(sublayer))


# 3.2 Attention


def attention_weights(q: jax.Array, k: jax.Array, mask: jax.Array) -> jax.Array:
  """softmax(Q K^T / sqrt(d_k)), equation 1's left factor, in float32.

  Args:
    q: [B, T, H, K].
    k: [B, S, H, K].
    mask: [B or 1, T or 1, S] bool, where T may look.

  Returns:
    [B, H, T, S]. A row that may look nowhere is uniform, not NaN.
  """
  q = q * q.shape[-1] ** -0.5
  scores = jnp.einsum('bthk,bshk->bhts', q, k, preferred_element_type=jnp.float32)
  return jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))


class MultiHeadAttention(nnx.Module):
  """Section 3.2.2: W^Q, W^K [D, H, K], W^V [D, H, V], W^O [H, V, D]; no biases."""

  def __init__(
    self,
    d_model: int,
    h: int,
    d_k: int,
    d_v: int,
    *,
    dtype: jnp.dtype,
    rngs: nnx.Rngs,
  ):
    inward = glorot(in_axis=0, out_axis=(1, 2))
    outward = glorot(in_axis=(0, 1), out_axis=2)
    self.query = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.key = nnx.Param(inward(rngs.params(), (d_model, h, d_k)))
    self.value = nnx.Param(inward(rngs.params(), (d_model, h, d_v)))
    self.output = nnx.Param(outward(rngs.params(), (h, d_v, d_model)))
    self.dtype = dtype

  def queries(self, x: jax.Array) -> jax.Array:
    """[B, T, D] -> [B, T, H, K]."""
    return jnp.einsum('btd,dhk->bthk', x, self.query[...].astype(self.dtype))

  def keys_values(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[B, S, D] -> [B, S, H, K], [B, S, H, V]."""
    return (
      jnp.einsum('bsd,dhk->bshk', x, self.key[...].astype(self.dtype)),
      jnp.einsum('bsd,dhv->bshv', x, self.value[...].astype(self.dtype)),
    )

  def mix(self, weights: jax.Array, v: jax.Array) -> jax.Array:
    """Equation 1's right factor and W^O: [B, H, T, S], [B, S, H, V] -> [B, T, D]."""
    heads = jnp.einsum('bhts,bshv->bthv', weights.astype(self.dtype), v)
    return jnp.einsum('bthv,hvd->btd', heads, self.output[...].astype(self.dtype))

  def __call__(self, x: jax.Array, memory: jax.Array, mask: jax.Array) -> jax.Array:
    k, v = self.keys_values(memory)
    return self.mix(attention_weights(self.queries(x), k, mask), v)


# 3.3 Position-wise feed-forward networks


class FeedForward(nnx.Module):
  """max(0, x W_1 + b_1) W_2 + b_2, equation 2."""

  def __init__(self, d_model: int, d_ff: int, *, dtype: jnp.dtype, rngs: nnx.Rngs):
    init = glorot()
    self.inner = nnx.Linear(d_model, d_ff, kernel_init=init, dtype=dtype, rngs=rngs)
    self.outer = nnx.Linear(d_ff, d_model, kernel_init=init, dtype=dtype, rngs=rngs)

  def __call__(self, x: jax.Array) -> jax.Array:
    return self.outer(jax.nn.relu(self.inner(x)))


# 3.5 Positional encoding


def sinusoids(length: int, d_model: int) -> np.ndarray:
  """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos: [length, D]."""
  pair = np.arange(d_model) // 2
  angle = np.arange(length)[:, None] / 10000.0 ** (2 * pair / d_model)
  even = np.arange(d_model) % 2 == 0
  return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


# 3.1 again: the layers


class EncoderLayer(nnx.Module):
  def __init__(
    self,
    d_model: int,
    d_ff: int,
    h: int,
    d_k: int,
    d_v: int,
    *,
    dtype: jnp.dtype,
    rngs: nnx.Rngs,
  ):
    self.attention = MultiHeadAttention(d_model, h, d_k, d_v, dtype=dtype, rngs=rngs)
    self.attention_norm = AddAndNorm(d_model, dtype=dtype, rngs=rngs)
    self.feed_forward = FeedForward(d_model, d_ff, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(d_model, dtype=dtype, rngs=rngs)

  def __call__(self, x: jax.Array, mask: jax.Array, dropout: Dropout) -> jax.Array:
    x = self.attention_norm(x, self.attention(x, x, mask), dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout)


class LayerCache(NamedTuple):
  """Keys and values of the positions decoded so far in one layer."""

  k: jax.Array  # [B, R, L, H, K]
  v: jax.Array  # [B, R, L, H, V]


class DecoderLayer(nnx.Module):
  def __init__(
    self,
    d_model: int,
    d_ff: int,
    h: int,
    d_k: int,
    d_v: int,
    *,
    dtype: jnp.dtype,
    rngs: nnx.Rngs,
  ):
    self.attention = MultiHeadAttention(d_model, h, d_k, d_v, dtype=dtype, rngs=rngs)
    self.attention_norm = AddAndNorm(d_model, dtype=dtype, rngs=rngs)
    self.cross = MultiHeadAttention(d_model, h, d_k, d_v, dtype=dtype, rngs=rngs)
    self.cross_norm = AddAndNorm(d_model, dtype=dtype, rngs=rngs)
    self.feed_forward = FeedForward(d_model, d_ff, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(d_model, dtype=dtype, rngs=rngs)

  def _after_attention(
    self,
    x: jax.Array,
    attended: jax.Array,
    memory_kv: tuple[jax.Array, jax.Array],
    memory_mask: jax.Array,
    dropout: Dropout,
  ) -> jax.Array:
    x = self.attention_norm(x, attended, dropout)
    k, v = memory_kv
    weights = attention_weights(self.cross.queries(x), k, memory_mask)
    x = self.cross_norm(x, self.cross.mix(weights, v), dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout)

  def __call__(
    self,
    x: jax.Array,
    causal_mask: jax.Array,
    memory: jax.Array,
    memory_mask: jax.Array,
    dropout: Dropout,
  ) -> jax.Array:
    attended = self.attention(x, x, causal_mask)
    memory_kv = self.cross.keys_values(memory)
    return self._after_attention(x, attended, memory_kv, memory_mask, dropout)

  def step(
    self,
    x: jax.Array,
    position: jax.Array,
    cache: LayerCache,
    memory_kv: tuple[jax.Array, jax.Array],
    memory_mask: jax.Array,
  ) -> tuple[jax.Array, LayerCache]:
    """One position of R rows a sentence, [B, R, D]; they share memory_kv's B."""
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


class Memory(NamedTuple):
  """What decoding needs of a source: cross-attention's keys and values, per layer."""

  keys_values: list[tuple[jax.Array, jax.Array]]  # [B, S, H, K], [B, S, H, V]
  mask: jax.Array  # [B, 1, S] bool


class Transformer(nnx.Module):
  """Figure 1. Arguments are the columns of Table 3.

  Args:
    positions: 'sinusoid', or 'learned' (row E) with a table of `max_positions` rows
      for each stack; other than 'learned' ignores `max_positions`.
    vocab_size: W, rows of the one matrix that embeds both sides and makes the logits.
    dtype: of activations and matrix products; parameters stay float32.
  """

  def __init__(
    self,
    *,
    N: int,
    d_model: int,
    d_ff: int,
    h: int,
    d_k: int,
    d_v: int,
    P_drop: float,
    positions: str,
    max_positions: int,
    vocab_size: int,
    dtype: jnp.dtype,
    rngs: nnx.Rngs,
  ):
    if positions not in ('sinusoid', 'learned'):
      raise ValueError(f"positions={positions!r}: 'sinusoid' or 'learned'")
    normal = nnx.initializers.normal(d_model**-0.5)
    self.embedding = nnx.Param(normal(rngs.params(), (vocab_size, d_model)))
    if positions == 'learned':
      self.source_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
      self.target_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
    sizes = (d_model, d_ff, h, d_k, d_v)
    self.encoder = nnx.List(
      [EncoderLayer(*sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.decoder = nnx.List(
      [DecoderLayer(*sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.h, self.d_k, self.d_v, self.d_model, self.P_drop = h, d_k, d_v, d_model, P_drop
    self.positions, self.dtype = positions, dtype

  # 3.4 Embeddings and softmax

  def _position_rows(self, stack: str, length: int) -> jax.Array:
    if self.positions == 'sinusoid':
      return jnp.asarray(sinusoids(length, self.d_model))
    table = self.source_positions if stack == 'source' else self.target_positions
    if length > table.shape[0]:
      raise ValueError(f'{length} positions, but max_positions={table.shape[0]}')
    return table[:length]

  def _embed(self, ids: jax.Array, rows: jax.Array) -> jax.Array:
    """Section 3.4 and 3.5: sqrt(d_model) times the embedding, plus the position's."""
    return (self.embedding[...][ids] * self.d_model**0.5 + rows).astype(self.dtype)

  def _logits(self, x: jax.Array) -> jax.Array:
    """[..., D] -> [..., W] float32, by the transposed embedding matrix."""
    table = self.embedding[...].astype(self.dtype)
    # One axis of positions: XLA's CPU products over two take half as long again.
    flat = x.reshape(-1, self.d_model)
    logits = jnp.einsum('nd,wd->nw', flat, table, preferred_element_type=jnp.float32)
    return logits.reshape(*x.shape[:-1], -1)

  def encode(self, source: jax.Array, key: jax.Array | None = None) -> jax.Array:
    """[B, S] ids -> [B, S, D]."""
    dropout = Dropout(self.P_drop, key, 1 + 2 * len(self.encoder))
    mask = (source != PAD)[:, None]
    rows = self._position_rows('source', source.shape[1])
    x = dropout(self._embed(source, rows[None]))
    for layer in self.encoder:
      x = layer(x, mask, dropout)
    return x

  def decode(
    self,
    encoded: jax.Array,
    source: jax.Array,
    target: jax.Array,
    key: jax.Array | None = None,
  ) -> jax.Array:
    """Teacher forcing: [B, S, D], [B, S], [B, T] ids -> [B, T, W] logits in float32.

    `target` is what shall come out; the shift by one position happens here.
    """
    dropout = Dropout(self.P_drop, key, 1 + 3 * len(self.decoder))
    T = target.shape[1]
    shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    x = dropout(self._embed(shifted, self._position_rows('target', T)[None]))
    causal = jnp.tri(T, dtype=bool)[None]
    memory_mask = (source != PAD)[:, None]
    for layer in self.decoder:
      x = layer(x, causal, encoded, memory_mask, dropout)
    return self._logits(x)

  def __call__(
    self, source: jax.Array, target: jax.Array, key: jax.Array | None = None
  ) -> jax.Array:
    """[B, S], [B, T] ids -> [B, T, W] logits of each target position, in float32."""
    keys = (None, None) if key is None else jax.random.split(key)
    return self.decode(self.encode(source, keys[0]), source, target, keys[1])

  # 6.1 Inference, one position at a time

  def remember(self, source: jax.Array) -> Memory:
    """[B, S] ids -> each decoder layer's cross-attention keys and values, once."""
    encoded = self.encode(source)
    keys_values = [layer.cross.keys_values(encoded) for layer in self.decoder]
    return Memory(keys_values, (source != PAD)[:, None])

  def empty_cache(self, B: int, R: int, L: int) -> list[LayerCache]:
    """A cache for R rows of B sentences and up to L positions."""
    zeros = lambda d: jnp.zeros((B, R, L, self.h, d), self.dtype)
    return [LayerCache(zeros(self.d_k), zeros(self.d_v)) for _ in self.decoder]

  def step(
    self,
    tokens: jax.Array,
    position: jax.Array,
    cache: list[LayerCache],
    memory: Memory,
  ) -> tuple[jax.Array, list[LayerCache]]:
    """The logits that follow `tokens` [B, R] at `position`: [B, R, W] in float32."""
    rows = self._position_rows('target', cache[0].k.shape[2])
    x = self._embed(tokens, rows[position][None, None])
    after = []
    for layer, layer_cache, kv in zip(
      self.decoder, cache, memory.keys_values, strict=True
    ):
      x, layer_cache = layer.step(x, position, layer_cache, kv, memory.mask)
      after.append(layer_cache)
    return self._logits(x), after
