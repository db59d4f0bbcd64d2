"""The Transformer of section 3: embeddings, stacks, logits, and one step of decoding.

layers.py explains the names of axes. Id 0 (PAD) is padding; the masks come from it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, PyTree

from transformer_jax.config import Model
from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.model import ops
from transformer_jax.model.attention import KeyValues
from transformer_jax.model.dropout import NO_DROPOUT, Dropout, DropoutKey
from transformer_jax.model.layers import DecoderLayer, EncoderLayer, sinusoids


class AttentionWeights(NamedTuple):
  """The weights of every layer and head, for each of the three kinds of attention.

  In `decoder` and `cross`, row t is the position that predicts token t of the target.
  Column t of `decoder` is the input at position t: token t - 1, or BOS if t is 0.
  """

  encoder: Float32[Array, 'N B H S S']
  decoder: Float32[Array, 'N B H T T']
  cross: Float32[Array, 'N B H T S']


class Outputs(NamedTuple):
  """The decoder's output and the softmax matrix; the loss forms the logits x E^T."""

  x: Float[Array, 'B T D']
  table: Float[Array, 'W D']  # the embedding matrix E in the dtype of products

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

  params: PyTree
  table: Float[Array, 'W D']  # the embedding matrix in the dtype of products


def search_weights(params: PyTree, dtype: DTypeLike) -> SearchWeights:
  """Returns parameters for a search whose products are computed in `dtype`.

  The layers' matrices have that dtype. Those that Transformer.step() multiplies by are
  transposed, since a step has few rows.
  """

  def prepare(path: tuple[Any, ...], x: Array) -> Array | ops.TransposedWeight:
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


class Transformer(nnx.Module):
  """The model of Figure 1.

  Args:
    model: sizes and options.
    dtype: the dtype in which products are computed; parameters stay float32.
    activation_dtype: the dtype of the results of products, and of all sub-layers.
  """

  def __init__(
    self, model: Model, *, dtype: DTypeLike, activation_dtype: DTypeLike, rngs: nnx.Rngs
  ):
    normal = nnx.initializers.normal(model.d_model**-0.5)
    table = lambda rows: nnx.Param(normal(rngs.params(), (rows, model.d_model)))
    self.embedding = table(model.target_vocab_size or model.vocab_size)
    if model.target_vocab_size:
      self.source_embedding = table(model.vocab_size)
    if model.positions == 'learned':
      self.source_positions = table(model.max_positions)
      self.target_positions = table(model.max_positions)
    stack = lambda kind: nnx.List(
      [kind(model, dtype=dtype, rngs=rngs) for _ in range(model.N)]
    )
    self.encoder, self.decoder = stack(EncoderLayer), stack(DecoderLayer)
    self.model, self.dtype, self.activation_dtype = model, dtype, activation_dtype

  # 3.4 Embeddings and softmax

  def _positional_encoding(self, stack: str, length: int) -> Float[Array, 'L D']:
    """Returns PE(0), ..., PE(length - 1); `stack` is 'source' or 'target'."""
    if self.model.positions == 'sinusoid':
      return jnp.asarray(sinusoids(length, self.model.d_model))
    table = self.source_positions if stack == 'source' else self.target_positions
    if length > table.shape[0]:
      raise UserError(f'{length} positions, but max_positions={table.shape[0]}')
    return table[:length]

  def _embed(
    self,
    table: nnx.Param[Array],
    ids: Int[Array, 'B T'],
    encoding: Float[Array, '#B #T D'],
  ) -> Float[Array, 'B T D']:
    """Returns sqrt(d_model) times the embeddings (3.4), plus the encoding (3.5)."""
    x = table[...][ids] * self.model.d_model**0.5 + encoding
    return x.astype(self.activation_dtype)

  # 3.1 Encoder and decoder stacks

  def _dropout(self, key: DropoutKey | None) -> Dropout:
    return Dropout(self.model.P_drop, key, self.model.P_drop_attention)

  def encode(
    self, source: Int[Array, 'B S'], key: DropoutKey | None = None
  ) -> tuple[Float[Array, 'B S D'], Bool[Array, 'B 1 S']]:
    """Returns the encoder's output, and the mask that hides padding.

    Nothing is dropped without `key`.
    """
    dropout = self._dropout(key)
    x, mask = self._encoder_input(source)
    x = dropout(x)
    for n, layer in enumerate(self.encoder):
      x = layer(x, mask, dropout.after(1 + n * EncoderLayer.SITES))
    return x, mask

  def _encoder_input(
    self, source: Int[Array, 'B S']
  ) -> tuple[Float[Array, 'B S D'], Bool[Array, 'B 1 S']]:
    """Returns the embedded source, and the mask that hides padding."""
    is_shared = not self.model.target_vocab_size
    table = self.embedding if is_shared else self.source_embedding
    encoding = self._positional_encoding('source', source.shape[1])[None]
    return self._embed(table, source, encoding), (source != PAD)[:, None]

  def _decoder_input(
    self, target: Int[Array, 'B T']
  ) -> tuple[Float[Array, 'B T D'], Bool[Array, '1 T T']]:
    """Returns the embedded input of the decoder, and the causal mask.

    The input is `target` shifted by one position (section 3.1), with BOS first.
    """
    T = target.shape[1]
    shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    encoding = self._positional_encoding('target', T)[None]
    return self._embed(self.embedding, shifted, encoding), jnp.tri(T, dtype=bool)[None]

  def __call__(
    self,
    source: Int[Array, 'B S'],
    target: Int[Array, 'B T'],
    key: DropoutKey | None = None,
  ) -> Outputs:
    """Returns the outputs at each target position, under teacher forcing."""
    encoder_output, source_mask = self.encode(source, key)
    dropout = self._dropout(key).after(1 + len(self.encoder) * EncoderLayer.SITES)
    x, causal = self._decoder_input(target)
    x = dropout(x)
    for n, layer in enumerate(self.decoder):
      layer_dropout = dropout.after(1 + n * DecoderLayer.SITES)
      x = layer(x, causal, encoder_output, source_mask, layer_dropout)
    return Outputs(x, self.embedding[...].astype(self.dtype))

  def attention_weights(
    self, source: Int[Array, 'B S'], target: Int[Array, 'B T']
  ) -> AttentionWeights:
    """Returns the weights of every head under teacher forcing, without dropout."""
    encoder, pairs = [], []
    x, source_mask = self._encoder_input(source)
    for layer in self.encoder:
      k = layer.attention.key_values(x).k
      encoder.append(layer.attention.weights(x, k, source_mask))
      x = layer(x, source_mask, NO_DROPOUT)
    y, causal = self._decoder_input(target)
    for layer in self.decoder:
      pairs.append(layer.weights(y, causal, x, source_mask))
      y = layer(y, causal, x, source_mask, NO_DROPOUT)
    decoder, cross = zip(*pairs, strict=True)
    return AttentionWeights(*map(jnp.stack, (encoder, decoder, cross)))

  # 6.1 Inference, one position at a time

  def precompute_cross_attention(self, source: Int[Array, 'B S']) -> Memory:
    """Encodes the source; returns cross-attention's keys, values and padding mask."""
    encoder_output, mask = self.encode(source)
    layers = [layer.cross.key_values(encoder_output) for layer in self.decoder]
    return Memory(layers, mask)

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
    layers = []
    for layer, layer_cache, cross in zip(
      self.decoder, cache.layers, memory.layers, strict=True
    ):
      x, new = layer.step(x, position, layer_cache, visible, cross, memory.mask)
      layers.append(new)
    return ops.logits(x, table), Cache(slots, layers)
