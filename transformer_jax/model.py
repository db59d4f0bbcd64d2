"""The Transformer of section 3: embeddings, stacks, logits, and one step of decoding.

layers.py has the glossary of shapes. Ids of 0 are padding; masks are made from them in
here. Modes are arguments: a dropout key of None means no dropout.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Key

from transformer_jax.layers import (
  Array,
  DecoderLayer,
  Dropout,
  EncoderLayer,
  KeysValues,
  LayerCache,
  Sizes,
  sinusoids,
)
from transformer_jax.vocabulary import BOS, PAD


class Memory(NamedTuple):
  """What decoding needs of a source: cross-attention's keys and values, per layer."""

  keys_values: list[KeysValues]
  mask: Bool[Array, 'B 1 S']


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
    dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    if positions not in ('sinusoid', 'learned'):
      raise ValueError(f"positions={positions!r}: 'sinusoid' or 'learned'")
    normal = nnx.initializers.normal(d_model**-0.5)
    self.embedding = nnx.Param(normal(rngs.params(), (vocab_size, d_model)))
    if positions == 'learned':
      self.source_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
      self.target_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
    sizes = Sizes(d_model, d_ff, h, d_k, d_v)
    self.encoder = nnx.List(
      [EncoderLayer(sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.decoder = nnx.List(
      [DecoderLayer(sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.h, self.d_k, self.d_v, self.d_model, self.P_drop = h, d_k, d_v, d_model, P_drop
    self.positions, self.dtype = positions, dtype

  # 3.4 Embeddings and softmax

  def _position_rows(self, stack: str, length: int) -> Float[Array, 'L D']:
    if self.positions == 'sinusoid':
      return jnp.asarray(sinusoids(length, self.d_model))
    table = self.source_positions if stack == 'source' else self.target_positions
    if length > table.shape[0]:
      raise ValueError(f'{length} positions, but max_positions={table.shape[0]}')
    return table[:length]

  def _embed(
    self, ids: Int[Array, 'B T'], rows: Float[Array, '#B #T D']
  ) -> Float[Array, 'B T D']:
    """Section 3.4 and 3.5: sqrt(d_model) times the embedding, plus the position's."""
    return (self.embedding[...][ids] * self.d_model**0.5 + rows).astype(self.dtype)

  def _logits(self, x: Float[Array, 'B T D']) -> Float32[Array, 'B T W']:
    """By the transposed embedding matrix."""
    table = self.embedding[...].astype(self.dtype)
    # One axis of positions: XLA's CPU products over two take half as long again.
    flat = x.reshape(-1, self.d_model)
    logits = jnp.einsum('nd,wd->nw', flat, table, preferred_element_type=jnp.float32)
    return logits.reshape(*x.shape[:-1], -1)

  def encode(
    self, source: Int[Array, 'B S'], key: Key[Array, ''] | None = None
  ) -> Float[Array, 'B S D']:
    """Ids to what the encoder makes of them."""
    dropout = Dropout(self.P_drop, key, 1 + 2 * len(self.encoder))
    mask = (source != PAD)[:, None]
    rows = self._position_rows('source', source.shape[1])
    x = dropout(self._embed(source, rows[None]))
    for layer in self.encoder:
      x = layer(x, mask, dropout)
    return x

  def decode(
    self,
    encoded: Float[Array, 'B S D'],
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, ''] | None = None,
  ) -> Float32[Array, 'B T W']:
    """The logits of each target position under teacher forcing.

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
    self,
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, ''] | None = None,
  ) -> Float32[Array, 'B T W']:
    """The logits of each target position, in float32."""
    keys = (None, None) if key is None else jax.random.split(key)
    return self.decode(self.encode(source, keys[0]), source, target, keys[1])

  # 6.1 Inference, one position at a time

  def remember(self, source: Int[Array, 'B S']) -> Memory:
    """Each decoder layer's cross-attention keys and values, once a sentence."""
    encoded = self.encode(source)
    keys_values = [layer.cross.keys_values(encoded) for layer in self.decoder]
    return Memory(keys_values, (source != PAD)[:, None])

  def empty_cache(self, B: int, R: int, L: int) -> list[LayerCache]:
    """A cache for R rows of B sentences and up to L positions."""
    zeros = lambda d: jnp.zeros((B, R, L, self.h, d), self.dtype)
    return [LayerCache(zeros(self.d_k), zeros(self.d_v)) for _ in self.decoder]

  def step(
    self,
    tokens: Int[Array, 'B R'],
    position: Int[Array, ''],
    cache: list[LayerCache],
    memory: Memory,
  ) -> tuple[Float32[Array, 'B R W'], list[LayerCache]]:
    """The logits that follow `tokens` at `position`, and the cache with them in it."""
    rows = self._position_rows('target', cache[0].k.shape[2])
    x = self._embed(tokens, rows[position][None, None])
    after = []
    for layer, layer_cache, kv in zip(
      self.decoder, cache, memory.keys_values, strict=True
    ):
      x, layer_cache = layer.step(x, position, layer_cache, kv, memory.mask)
      after.append(layer_cache)
    return self._logits(x), after
