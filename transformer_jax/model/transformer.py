"""The Transformer of section 3: embeddings, stacks, logits, and one step of decoding.

layers.py explains the names of axes. Id 0 (PAD) is padding; the masks come from it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
  Hyperparameters,
  sinusoids,
  split_keys,
)

Tree = Any


class AttentionWeights(NamedTuple):
  """The weights of every layer and head, for each of the three kinds of attention.

  In `decoder` and `cross`, row t is the position that predicts token t of the target.
  Column t of `decoder` is the input at position t: token t - 1, or BOS if t is 0.
  """

  encoder: Float32[Array, 'N B H S S']
  decoder: Float32[Array, 'N B H T T']
  cross: Float32[Array, 'N B H T S']


class Outputs(NamedTuple):
  """The outputs of a pass under teacher forcing: the decoder reads the true target.

  The logits are x E^T. The loss takes x and E, because a CPU computes the logits of a
  few rows at a time. XLA leaves out the outputs that a program does not read.
  """

  x: Float[Array, 'B T D']  # the decoder's output
  table: Float[Array, 'W D']  # the embedding matrix E in the dtype of products
  weights: AttentionWeights | None = None

  @property
  def logits(self) -> Float32[Array, 'B T W']:
    return ops.logits(self.x, self.table)


class Memory(NamedTuple):
  """Keys and values of the source, which all steps of decoding share."""

  layers: list[KeyValues]  # of each layer's cross-attention
  mask: Bool[Array, 'B 1 S']


class Cache(NamedTuple):
  """The key-value cache of decoding, for R rows (beams) of each sentence.

  Keys and values never move. When hypotheses move to other rows, only `slots` changes:
  row r of sentence b uses the key and value that row slots[b, r, l] wrote at position
  l.
  """

  slots: Int[Array, 'B R L']
  layers: list[KeyValues]  # M = L R: row r of position l is at l R + r

  def reorder(self, parents: Int[Array, 'B R']) -> 'Cache':
    """Returns the cache in which row r has the history of row parents[b, r]."""
    slots = jnp.take_along_axis(self.slots, parents[..., None], axis=1)
    return self._replace(slots=slots)

  def grow(self, length: int) -> 'Cache':
    """Returns the cache with room for `length` positions."""

    def extend(x: jax.Array, axis: int, by: int) -> jax.Array:
      return jnp.pad(x, [(0, by * (i == axis)) for i in range(x.ndim)])

    more = length - self.slots.shape[2]
    keys = more * self.slots.shape[1]
    layers = [
      KeyValues(extend(layer.k, 3, keys), extend(layer.v, 2, keys))
      for layer in self.layers
    ]
    return Cache(extend(self.slots, 2, more), layers)


class SearchWeights(NamedTuple):
  """A Transformer's parameters in the form that search takes, for all batches."""

  params: Tree
  table: Float[Array, 'W D']  # the embedding matrix in the dtype of products


def search_weights(params: Tree, dtype: DTypeLike) -> SearchWeights:
  """Returns parameters for a search whose products are computed in `dtype`.

  It casts the layers' matrices to that dtype. It also transposes the matrices that
  Transformer.step() multiplies by, since a step has few rows. It copies vectors, and
  the tables of embeddings and positions, in their own dtype.
  """

  def prepare(path: tuple, x: Array) -> Array | ops.TransposedWeight:
    names = [part.key for part in path]
    if x.ndim < 2 or names[-1].endswith(('embedding', 'positions')):
      return jnp.copy(x)  # training's next update may overwrite the original
    x = x.astype(dtype)
    if names[0] != 'decoder' or names[-2:] in (['cross', 'key'], ['cross', 'value']):
      return x
    inputs = 2 if names[-1] == 'output' else 1  # the first axes of the matrix
    return ops.TransposedWeight(x.transpose(*range(inputs, x.ndim), *range(inputs)))

  prepared = jax.tree_util.tree_map_with_path(prepare, params)
  return SearchWeights(prepared, params['embedding'].astype(dtype))


def _traced_once(method: Callable) -> Callable:
  """Jits a layer's method, so that JAX traces it once for all identical layers.

  Otherwise tracing and differentiating the layers takes most of the start-up time, once
  compiled programs are cached.
  """
  return jax.jit(lambda *inputs: method(*inputs))


class Transformer(nnx.Module):
  """The model of Figure 1.

  Args:
    model: sizes and options.
    dtype: the dtype in which products are computed; parameters stay float32.
    activation_dtype: the dtype of the results of products, and of all sub-layers.
  """

  def __init__(
    self,
    model: Hyperparameters,
    *,
    dtype: DTypeLike,
    activation_dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    normal = nnx.initializers.normal(model.d_model**-0.5)
    table = lambda rows: nnx.Param(normal(rngs.params(), (rows, model.d_model)))
    self.embedding = table(model.target_vocab_size or model.vocab_size)
    if model.target_vocab_size:
      self.source_embedding = table(model.vocab_size)
    if model.positions == 'learned':
      self.source_positions = table(model.max_positions)
      self.target_positions = table(model.max_positions)
    numerics = {'dtype': dtype, 'rngs': rngs}
    layers = range(model.N)
    self.encoder = nnx.List([EncoderLayer(model, **numerics) for _ in layers])
    self.decoder = nnx.List([DecoderLayer(model, **numerics) for _ in layers])
    self.model, self.dtype, self.activation_dtype = model, dtype, activation_dtype

  # 3.4 Embeddings and softmax

  def _positional_encoding(self, stack: str, length: int) -> Float[Array, 'L D']:
    """Returns PE(0), ..., PE(length - 1): sinusoids, or rows of a learned table.

    `stack` is 'source' or 'target'; each has a table of its own.

    Raises:
      UserError: the table has fewer than `length` rows.
    """
    if self.model.positions == 'sinusoid':
      return jnp.asarray(sinusoids(length, self.model.d_model))
    table = self.source_positions if stack == 'source' else self.target_positions
    if length > table.shape[0]:
      raise UserError(f'{length} positions, but max_positions={table.shape[0]}')
    return table[:length]

  def _embed(
    self, table: nnx.Param, ids: Int[Array, 'B T'], encoding: Float[Array, '#B #T D']
  ) -> Float[Array, 'B T D']:
    """Returns sqrt(d_model) times the embeddings (3.4), plus the encoding (3.5)."""
    x = table[...][ids] * self.model.d_model**0.5 + encoding
    return x.astype(self.activation_dtype)

  # 3.1 Encoder and decoder stacks

  def _dropout(self, key: Key[Array, '*slices'] | None, sites: int) -> Dropout:
    """Returns the dropout of a stack with so many sites."""
    keys = None if key is None else split_keys(key, sites)
    return Dropout(self.model.P_drop, keys, self.model.P_drop_attention)

  def encode(
    self, source: Int[Array, 'B S'], key: Key[Array, '*slices'] | None = None
  ) -> tuple[Float[Array, 'B S D'], Float32[Array, 'N B H S S']]:
    """Returns the encoder's output for ids of source tokens, and attention's weights.

    `key` is the random key of dropout. None: nothing is dropped. With several keys, the
    batch is cut into as many equal slices, and each slice has its own key.
    """
    N, sites = len(self.encoder), EncoderLayer.SITES
    dropout = self._dropout(key, 1 + N * sites)
    encoding = self._positional_encoding('source', source.shape[1])[None]
    is_shared = not self.model.target_vocab_size
    table = self.embedding if is_shared else self.source_embedding
    x = dropout(self._embed(table, source, encoding), 0)
    mask = (source != PAD)[:, None]
    run, weights = _traced_once(EncoderLayer.__call__), []
    for layer, own in zip(self.encoder, dropout.of_layers(N, sites), strict=True):
      x, layers_weights = run(layer, x, mask, own)
      weights.append(layers_weights)
    return x, jnp.stack(weights)

  def _decode(
    self,
    encoder_output: Float[Array, 'B S D'],
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, '*slices'] | None,
  ) -> tuple[
    Float[Array, 'B T D'], Float32[Array, 'N B H T T'], Float32[Array, 'N B H T S']
  ]:
    """Returns the decoder's output at each target position, and attentions' weights.

    `target` has the tokens to predict. The decoder's input is `target` shifted by one
    position (section 3.1), with BOS first.
    """
    N, sites, T = len(self.decoder), DecoderLayer.SITES, target.shape[1]
    dropout = self._dropout(key, 1 + N * sites)
    shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    encoding = self._positional_encoding('target', T)[None]
    x = dropout(self._embed(self.embedding, shifted, encoding), 0)
    masks = jnp.tri(T, dtype=bool)[None], (source != PAD)[:, None]
    run, weights, cross = _traced_once(DecoderLayer.__call__), [], []
    for layer, own in zip(self.decoder, dropout.of_layers(N, sites), strict=True):
      x, of_self, of_cross = run(layer, x, masks[0], encoder_output, masks[1], own)
      weights.append(of_self)
      cross.append(of_cross)
    return x, jnp.stack(weights), jnp.stack(cross)

  def __call__(
    self,
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: Key[Array, '*slices'] | None = None,
  ) -> Outputs:
    """Returns the outputs at each target position, under teacher forcing.

    encode() explains `key`.
    """
    keys = (None, None) if key is None else split_keys(key, 2)
    encoder_output, encoder = self.encode(source, keys[0])
    x, decoder, cross = self._decode(encoder_output, source, target, keys[1])
    table = self.embedding[...].astype(self.dtype)
    weights = AttentionWeights(encoder, decoder, cross)
    return Outputs(x, table, weights)

  # 6.1 Inference, one position at a time

  def precompute_cross_attention(self, source: Int[Array, 'B S']) -> Memory:
    """Encodes the source; returns cross-attention's keys, values and padding mask."""
    encoder_output, _ = self.encode(source)
    layers = [layer.cross.key_values(encoder_output) for layer in self.decoder]
    return Memory(layers, (source != PAD)[:, None])

  def empty_cache(self, B: int, R: int, L: int) -> Cache:
    """Returns a cache for R rows of B sentences and up to L positions."""
    h, d_k, d_v = self.model.h, self.model.d_k, self.model.d_v
    zeros = lambda *shape: jnp.zeros(shape, self.activation_dtype)
    layers = [
      KeyValues(zeros(B, h, d_k, L * R), zeros(B, h, L * R, d_v)) for _ in self.decoder
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
    """Returns the logits of the token after `tokens`, and the new cache.

    Args:
      tokens: the decoder's input at `position`; BOS at position 0.
      table: SearchWeights.table.
    """
    B, R, L = cache.slots.shape
    slots = cache.slots.at[:, :, position].set(jnp.arange(R))
    so_far = (jnp.arange(L) <= position)[None, None, :, None]
    visible = (jax.nn.one_hot(slots, R, dtype=bool) & so_far).reshape(B, R, L * R)
    encoding = self._positional_encoding('target', L)[position]
    x = self._embed(self.embedding, tokens, encoding[None, None])
    run, layers = _traced_once(DecoderLayer.step), []
    for layer, own, cross in zip(
      self.decoder, cache.layers, memory.layers, strict=True
    ):
      x, own = run(layer, x, position, own, visible, cross, memory.mask)
      layers.append(own)
    return ops.logits(x, table), Cache(slots, layers)
