"""The Transformer of section 3: embeddings, stacks, logits, and one step of decoding.

layers.py has the glossary of shapes. Ids of 0 are padding; masks are made from them in
here. Modes are arguments: a dropout key of None means no dropout.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Key

from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.model import products
from transformer_jax.model.layers import (
  Array,
  DecoderLayer,
  Dropout,
  EncoderLayer,
  KeyValues,
  Sizes,
  sinusoids,
)

Tree = Any


class Memory(NamedTuple):
  """What decoding needs at each step of a source and of the model, made before it."""

  layers: list[KeyValues]  # cross-attention's keys and values
  mask: Bool[Array, 'B 1 S']
  table: Float[Array, 'W D']  # the embedding matrix as the logits' product takes it


class Cache(NamedTuple):
  """Keys and values of all positions and rows decoded so far, which never move.

  What moves when hypotheses change places are `slots`: of a row and a position, the row
  whose key there is its own.
  """

  slots: Int[Array, 'B R L']
  layers: list[KeyValues]  # M = L R: row r of position l at l R + r

  def reorder(self, parents: Int[Array, 'B R']) -> 'Cache':
    """Row r becomes what row parents[r] was."""
    slots = jnp.take_along_axis(self.slots, parents[..., None], axis=1)
    return self._replace(slots=slots)

  def grow(self, length: int) -> 'Cache':
    """With places for `length` positions."""
    more = length - self.slots.shape[2]
    end = lambda x, axis, n: jnp.pad(x, [(0, n * (i == axis)) for i in range(x.ndim)])
    places = more * self.slots.shape[1]
    layers = [KeyValues(end(x.k, 3, places), end(x.v, 2, places)) for x in self.layers]
    return Cache(end(self.slots, 2, more), layers)


def cast_weights(params: Tree, dtype: DTypeLike) -> Tree:
  """A Transformer's parameters, with the layers' matrices in `dtype`.

  Searches would cast them anew for each batch. What is added or looked up stays.
  """

  def cast(path: tuple, x: Array) -> Array:
    looked_up = path[-1].key.endswith(('embedding', 'positions'))
    return x if x.ndim < 2 or looked_up else x.astype(dtype)

  return jax.tree_util.tree_map_with_path(cast, params)


def _traced_once(method: Callable) -> Callable:
  """method(layer, ...); JAX traces and differentiates the first of equal ones for all.

  That is most of what a start with compiled programs at hand takes.
  """
  return jax.jit(lambda *inputs: method(*inputs))


class Transformer(nnx.Module):
  """Figure 1. Arguments are the columns of Table 3.

  Args:
    positions: 'sinusoid', or 'learned' (row E) with a table of `max_positions` rows
      for each stack; other than 'learned' ignores `max_positions`.
    vocab_size: W, rows of the one matrix that embeds both sides and makes the logits.
    dtype: of what matrix products take, and of activations but on a CPU, where they
      are float32 (products.py); parameters stay float32.
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
    x = self.embedding[...][ids] * self.d_model**0.5 + rows
    return x.astype(products.activations(self.dtype))

  def _table(self) -> Float[Array, 'W D']:
    """The embedding matrix, whose transpose makes the logits."""
    return self.embedding[...].astype(self.dtype)

  def encode(
    self, source: Int[Array, 'B S'], key: Key[Array, ''] | None = None
  ) -> Float[Array, 'B S D']:
    """Ids to what the encoder makes of them."""
    N = len(self.encoder)
    dropout = Dropout.of(self.P_drop, key, 1 + 2 * N)
    mask = (source != PAD)[:, None]
    rows = self._position_rows('source', source.shape[1])
    x = dropout(self._embed(source, rows[None]), 0)
    run = _traced_once(EncoderLayer.__call__)
    for layer, part in zip(self.encoder, dropout.parts(N, 2), strict=True):
      x = run(layer, x, mask, part)
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
    N = len(self.decoder)
    dropout = Dropout.of(self.P_drop, key, 1 + 3 * N)
    T = target.shape[1]
    shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    x = dropout(self._embed(shifted, self._position_rows('target', T)[None]), 0)
    causal = jnp.tri(T, dtype=bool)[None]
    memory_mask = (source != PAD)[:, None]
    run = _traced_once(DecoderLayer.__call__)
    for layer, part in zip(self.decoder, dropout.parts(N, 3), strict=True):
      x = run(layer, x, causal, encoded, memory_mask, part)
    return products.logits(x, self._table())

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

  def precompute_cross_attention(self, source: Int[Array, 'B S']) -> Memory:
    """What the steps need of a source."""
    encoded = self.encode(source)
    layers = [layer.cross.key_values(encoded) for layer in self.decoder]
    return Memory(layers, (source != PAD)[:, None], self._table())

  def empty_cache(self, B: int, R: int, L: int) -> Cache:
    """A cache for R rows of B sentences and up to L positions."""
    dtype = products.activations(self.dtype)
    zeros = lambda *shape: jnp.zeros((B, self.h, *shape), dtype)
    layers = [
      KeyValues(zeros(self.d_k, L * R), zeros(L * R, self.d_v)) for _ in self.decoder
    ]
    return Cache(jnp.zeros((B, R, L), jnp.int32), layers)

  def step(
    self,
    tokens: Int[Array, 'B R'],
    position: Int[Array, ''],
    cache: Cache,
    memory: Memory,
  ) -> tuple[Float32[Array, 'B R W'], Cache]:
    """The logits that follow `tokens` at `position`, and the cache with them in it."""
    B, R, L = cache.slots.shape
    slots = cache.slots.at[:, :, position].set(jnp.arange(R))
    so_far = (jnp.arange(L) <= position)[None, None, :, None]
    seen = (jax.nn.one_hot(slots, R, dtype=bool) & so_far).reshape(B, R, L * R)
    rows = self._position_rows('target', L)
    x = self._embed(tokens, rows[position][None, None])
    after, run = [], _traced_once(DecoderLayer.step)
    for layer, among, source in zip(
      self.decoder, cache.layers, memory.layers, strict=True
    ):
      x, among = run(layer, x, position, among, seen, source, memory.mask)
      after.append(among)
    return products.logits(x, memory.table), Cache(slots, after)
