"""The Transformer of section 3: embeddings, stacks, logits, and one step of decoding.

layers.py has the glossary of shapes. Ids of 0 are padding, and masks are made of them
here. Modes are arguments: a dropout key of None means no dropout.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Key

from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.model import ops
from transformer_jax.model.attention import KeyValues
from transformer_jax.model.layers import (
  Array,
  DecoderLayer,
  Dropout,
  EncoderLayer,
  Sizes,
  sinusoids,
  split_keys,
)


class Memory(NamedTuple):
  """What all steps of decoding share: made once for a batch of sources."""

  layers: list[KeyValues]  # of each layer's cross-attention
  mask: Bool[Array, 'B 1 S']


class Cache(NamedTuple):
  """The key-value cache of decoding, for R rows (beams) of each sentence.

  Keys and values stay where they were written. When hypotheses change places only
  `slots` does: slots[b, r, l] is the row whose key at position l belongs to row r.
  """

  slots: Int[Array, 'B R L']
  layers: list[KeyValues]  # M = L R: row r of position l is at l R + r

  def reorder(self, parents: Int[Array, 'B R']) -> 'Cache':
    """Returns the cache in which row r is what row parents[r] was."""
    slots = jnp.take_along_axis(self.slots, parents[..., None], axis=1)
    return self._replace(slots=slots)

  def grow(self, length: int) -> 'Cache':
    """Returns the cache with room for `length` positions."""

    def extend(x: jax.Array, axis: int, by: int) -> jax.Array:
      return jnp.pad(x, [(0, by * (i == axis)) for i in range(x.ndim)])

    more = length - self.slots.shape[2]
    places = more * self.slots.shape[1]
    layers = [
      KeyValues(extend(layer.k, 3, places), extend(layer.v, 2, places))
      for layer in self.layers
    ]
    return Cache(extend(self.slots, 2, more), layers)


class Outputs(NamedTuple):
  """The factors of the logits x E^T + b.

  The loss takes them and not the logits, of which a CPU makes a few rows at a time.
  """

  x: Float[Array, 'B T D']  # the decoder's output
  table: Float[Array, 'W D']  # the embedding matrix in the dtype of products
  bias: Float[Array, ' W'] | None


class Weights(NamedTuple):
  """The attention weights of every layer and head, for each of the three attentions.

  In `decoder` and `cross`, row t is the position that predicts word t of the target.
  Column t of `decoder` is the input at that position: word t - 1, or BOS if t is 0.
  """

  encoder: Float32[Array, 'N B H S S']
  decoder: Float32[Array, 'N B H T T']
  cross: Float32[Array, 'N B H T S']


def _traced_once(method: Callable) -> Callable:
  """Jits a layer's method, so that JAX traces it once for all identical layers.

  Otherwise, if the compiled programs are cached, tracing and differentiating the layers
  takes most of the start-up time.
  """
  return jax.jit(lambda *inputs: method(*inputs))


class Transformer(nnx.Module):
  """Figure 1. Arguments are the columns of Table 3, and these:

  Args:
    P_drop_attention: dropout of attention's weights; the paper's parser has it (6.3).
    positions: 'sinusoid', or 'learned' (row E) with a table of `max_positions` rows
      for each stack. 'sinusoid' ignores `max_positions`.
    vocab_size: W, rows of the one matrix that embeds both sides and makes the logits.
    target_vocab_size: W where the sides have vocabularies of their own: then that
      matrix is the target's, and the source has another of `vocab_size` rows. 0: they
      share one.
    activation: of the feed-forward networks: 'relu', or 'swish' as in some of Marian's
      models.
    biases: whether attention and the logits have biases, as Marian's models do.
    norm_epsilon: is added to the variance in every LayerNorm.
    dtype: of the weights in products; parameters stay float32.
    activation_dtype: of what lies between products.

  Raises:
    UserError: `positions` is neither of the two.
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
    P_drop_attention: float,
    positions: str,
    max_positions: int,
    vocab_size: int,
    target_vocab_size: int,
    activation: str,
    biases: bool,
    norm_epsilon: float,
    dtype: DTypeLike,
    activation_dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    if positions not in ('sinusoid', 'learned'):
      raise UserError(f"positions={positions!r}: 'sinusoid' or 'learned'")
    normal = nnx.initializers.normal(d_model**-0.5)
    rows = target_vocab_size or vocab_size
    self.embedding = nnx.Param(normal(rngs.params(), (rows, d_model)))
    self.is_tied = not target_vocab_size
    if target_vocab_size:
      self.source_embedding = nnx.Param(normal(rngs.params(), (vocab_size, d_model)))
    if positions == 'learned':
      self.source_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
      self.target_positions = nnx.Param(normal(rngs.params(), (max_positions, d_model)))
    self.logits_bias = nnx.Param(jnp.zeros(rows)) if biases else None
    sizes = Sizes(d_model, d_ff, h, d_k, d_v, activation, biases, norm_epsilon)
    self.encoder = nnx.List(
      [EncoderLayer(sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.decoder = nnx.List(
      [DecoderLayer(sizes, dtype=dtype, rngs=rngs) for _ in range(N)]
    )
    self.h, self.d_k, self.d_v, self.d_model = h, d_k, d_v, d_model
    self.P_drop, self.P_drop_attention = P_drop, P_drop_attention
    self.positions = positions
    self.dtype, self.activation_dtype = dtype, activation_dtype

  # 3.4 Embeddings and softmax

  def _positional_encoding(self, stack: str, length: int) -> Float[Array, 'L D']:
    """Returns PE(0), ..., PE(length - 1): sinusoids, or a stack's learned table.

    Raises:
      UserError: the table has fewer than `length` rows.
    """
    if self.positions == 'sinusoid':
      return jnp.asarray(sinusoids(length, self.d_model))
    table = self.source_positions if stack == 'source' else self.target_positions
    if length > table.shape[0]:
      raise UserError(f'{length} positions, but max_positions={table.shape[0]}')
    return table[:length]

  def _embed(
    self, table: nnx.Param, ids: Int[Array, 'B T'], encoding: Float[Array, '#B #T D']
  ) -> Float[Array, 'B T D']:
    """Returns sqrt(d_model) times the embeddings (3.4), plus the positions' (3.5)."""
    x = table[...][ids] * self.d_model**0.5 + encoding
    return x.astype(self.activation_dtype)

  def _logits(
    self, x: Float[Array, 'B T D'], table: Float[Array, 'W D']
  ) -> Float32[Array, 'B T W']:
    logits = ops.logits(x, table)
    if self.logits_bias is None:
      return logits
    return ops.add_bias(logits, self.logits_bias[...])

  def _dropout(self, key: Key[Array, '*parts'] | None, places: int) -> Dropout:
    return Dropout.of(self.P_drop, key, places, self.P_drop_attention)

  def encode(
    self, source: Int[Array, 'B S'], key: Key[Array, '*parts'] | None = None
  ) -> Float[Array, 'B S D']:
    """Returns the encoder's output for ids of source words."""
    x, mask, dropout = self._encoder_input(source, key)
    run = _traced_once(EncoderLayer.__call__)
    parts = dropout.of_layers(len(self.encoder), EncoderLayer.PLACES)
    for layer, part in zip(self.encoder, parts, strict=True):
      x = run(layer, x, mask, part)
    return x

  def _encoder_input(
    self, source: Int[Array, 'B S'], key: Key[Array, '*parts'] | None
  ) -> tuple[Float[Array, 'B S D'], Bool[Array, 'B 1 S'], Dropout]:
    """Returns what the first layer takes, and the stack's dropout."""
    dropout = self._dropout(key, 1 + EncoderLayer.PLACES * len(self.encoder))
    mask = (source != PAD)[:, None]
    encoding = self._positional_encoding('source', source.shape[1])
    table = self.embedding if self.is_tied else self.source_embedding
    x = dropout(self._embed(table, source, encoding[None]), 0)
    return x, mask, dropout

  def _decode(
    self,
    encoded: Float[Array, 'B S D'],
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, '*parts'] | None,
  ) -> Float[Array, 'B T D']:
    """Returns the decoder's output at each target position, under teacher forcing.

    `target` is what shall come out; _decoder_input() shifts it by one position.
    """
    x, causal, dropout = self._decoder_input(target, key)
    memory_mask = (source != PAD)[:, None]
    run = _traced_once(DecoderLayer.__call__)
    parts = dropout.of_layers(len(self.decoder), DecoderLayer.PLACES)
    for layer, part in zip(self.decoder, parts, strict=True):
      x = run(layer, x, causal, encoded, memory_mask, part)
    return x

  def _decoder_input(
    self, target: Int[Array, 'B T'], key: Key[Array, '*parts'] | None
  ) -> tuple[Float[Array, 'B T D'], Bool[Array, '1 T T'], Dropout]:
    """Returns what the first layer takes, and the stack's dropout."""
    dropout = self._dropout(key, 1 + DecoderLayer.PLACES * len(self.decoder))
    T = target.shape[1]
    shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    encoding = self._positional_encoding('target', T)[None]
    x = dropout(self._embed(self.embedding, shifted, encoding), 0)
    return x, jnp.tri(T, dtype=bool)[None], dropout

  def __call__(
    self,
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, '*parts'] | None = None,
  ) -> Float32[Array, 'B T W']:
    """Returns the logits of each target position, under teacher forcing.

    Without a dropout `key` nothing is dropped.
    """
    x, table, _ = self.outputs(source, target, key)
    return self._logits(x, table)

  def outputs(
    self,
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, '*parts'] | None = None,
  ) -> Outputs:
    """Returns the factors of the logits that __call__ returns.

    Of several keys, each is for an equal part of the sentences (layers.Dropout).
    """
    keys = (None, None) if key is None else split_keys(key, 2)
    x = self._decode(self.encode(source, keys[0]), source, target, keys[1])
    bias = None if self.logits_bias is None else self.logits_bias[...]
    return Outputs(x, self.embedding[...].astype(self.dtype), bias)

  def attention(self, source: Int[Array, 'B S'], target: Int[Array, 'B T']) -> Weights:
    """Returns the attention weights of one pass under teacher forcing."""
    found: tuple[list, list, list] = ([], [], [])
    x, mask, none = self._encoder_input(source, None)
    run = _traced_once(EncoderLayer.with_weights)
    for layer in self.encoder:
      x, weights = run(layer, x, mask, none)
      found[0].append(weights)
    encoded = x
    x, causal, none = self._decoder_input(target, None)
    run = _traced_once(DecoderLayer.with_weights)
    for layer in self.decoder:
      x, *both = run(layer, x, causal, encoded, mask, none)
      for weights, of_layers in zip(both, found[1:], strict=True):
        of_layers.append(weights)
    return Weights(*map(jnp.stack, found))

  # 6.1 Inference, one position at a time

  def precompute_cross_attention(self, source: Int[Array, 'B S']) -> Memory:
    """Returns cross-attention's keys and values, and the mask that hides padding."""
    encoded = self.encode(source)
    layers = [layer.cross.key_values(encoded) for layer in self.decoder]
    return Memory(layers, (source != PAD)[:, None])

  def empty_cache(self, B: int, R: int, L: int) -> Cache:
    """Returns a cache for R rows of B sentences and up to L positions."""
    zeros = lambda *shape: jnp.zeros((B, self.h, *shape), self.activation_dtype)
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
    table: Float[Array, 'W D'],
  ) -> tuple[Float32[Array, 'B R W'], Cache]:
    """Returns the logits that follow `tokens` at `position`, and the new cache.

    `table` is the embedding matrix as SearchWeights have it.
    """
    B, R, L = cache.slots.shape
    slots = cache.slots.at[:, :, position].set(jnp.arange(R))
    so_far = (jnp.arange(L) <= position)[None, None, :, None]
    visible = (jax.nn.one_hot(slots, R, dtype=bool) & so_far).reshape(B, R, L * R)
    encoding = self._positional_encoding('target', L)[position]
    x = self._embed(self.embedding, tokens, encoding[None, None])
    run, updated = _traced_once(DecoderLayer.step), []
    for layer, own, cross in zip(
      self.decoder, cache.layers, memory.layers, strict=True
    ):
      x, own = run(layer, x, position, own, visible, cross, memory.mask)
      updated.append(own)
    return self._logits(x, table), Cache(slots, updated)
