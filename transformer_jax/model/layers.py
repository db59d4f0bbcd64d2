"""The sub-layers and layers of section 3, except attention (attention.py).

Names of axes in every signature of the model (the tests check each call against them):

  B  sentences of a batch        D  d_model            W  vocabulary
  S  source positions            H  h, heads           I  inputs of a matrix
  T  target positions            K  d_k                O  its outputs
  M  positions attended to       V  d_v                R  rows of a sentence: its beams
  N  layers of a stack                                 L  positions of a cache

Layers have no mode for training or decoding. Dropout is an argument, and so is the
cache of decoding. Products are computed in `dtype`, to which weights are cast. A
sub-layer's output has the dtype of its input. Layers are jitted, so that JAX traces and
differentiates all layers of a stack once; otherwise start-up would take longer.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int

from transformer_jax.config import Model
from transformer_jax.model import ops
from transformer_jax.model.attention import KeyValues, MultiHeadAttention
from transformer_jax.model.dropout import NO_DROPOUT, Dropout

# 3.1 Encoder and decoder stacks: what surrounds every sub-layer


@ops.forms(gpu='add_and_norm')
def add_and_norm(
  x: Float[Array, 'B T D'],
  sublayer: Float[Array, 'B T D'],
  scale: Float[Array, ' D'],
  bias: Float[Array, ' D'],
  dropout: Dropout,
) -> Float[Array, 'B T D']:
  """Returns LayerNorm(x + Dropout(sublayer)) (Ba et al. 2016), computed in float32."""
  total = x + dropout(sublayer)
  z = total.astype(jnp.float32)
  scale, bias = (ops.repeat_rows(v, z) for v in (scale, bias))
  mean = z.mean(-1, keepdims=True)
  variance = jnp.square(z).mean(-1, keepdims=True) - jnp.square(mean)
  scale = scale * jax.lax.rsqrt(jnp.maximum(variance, 0) + ops.NORM_EPSILON)
  return ((z - mean) * scale + bias).astype(total.dtype)


class AddAndNorm(nnx.Module):
  """LayerNorm(x + Dropout(Sublayer(x))): the norm comes after the sum."""

  def __init__(self, d_model: int):
    ones, zeros = nnx.Param(jnp.ones(d_model)), nnx.Param(jnp.zeros(d_model))
    self.norm = nnx.Dict(scale=ones, bias=zeros)

  def __call__(
    self, x: Float[Array, 'B T D'], sublayer: Float[Array, 'B T D'], dropout: Dropout
  ) -> Float[Array, 'B T D']:
    return add_and_norm(x, sublayer, self.norm.scale[...], self.norm.bias[...], dropout)


# 3.3 Position-wise feed-forward networks


class Linear(nnx.Module):
  """x W + b."""

  def __init__(self, d_in: int, d_out: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
    glorot = nnx.initializers.glorot_uniform()
    self.kernel = nnx.Param(glorot(rngs.params(), (d_in, d_out)))
    self.bias = nnx.Param(jnp.zeros(d_out))
    self.dtype = dtype

  def __call__(self, x: Float[Array, 'B T I']) -> Float[Array, 'B T O']:
    return ops.linear(x, self.kernel.get_value(), self.bias[...], dtype=self.dtype)


class FeedForward(nnx.Module):
  """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, equation 2."""

  def __init__(self, model: Model, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.inner = Linear(model.d_model, model.d_ff, dtype=dtype, rngs=rngs)
    self.outer = Linear(model.d_ff, model.d_model, dtype=dtype, rngs=rngs)

  def __call__(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T D']:
    return self.outer(jax.nn.relu(self.inner(x)))


# 3.5 Positional encoding


def sinusoids(length: int, d_model: int) -> Float[np.ndarray, 'L D']:
  """Returns PE(pos, j) for `length` positions.

  PE(pos, 2i) = sin(pos / 10000^(2i / d_model)); PE(pos, 2i+1) is that angle's cosine.
  """
  pair = np.arange(d_model) // 2
  angle = np.arange(length)[:, None] / 10000.0 ** (2 * pair / d_model)
  even = np.arange(d_model) % 2 == 0
  return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


# 3.1 Encoder and decoder stacks: their layers


class EncoderLayer(nnx.Module):
  """Self-attention, then the feed-forward network, each in an AddAndNorm."""

  SITES = 2  # of dropout: the output of each sub-layer

  def __init__(self, model: Model, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = MultiHeadAttention(model, dtype=dtype, rngs=rngs)
    self.attention_norm = AddAndNorm(model.d_model)
    self.feed_forward = FeedForward(model, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(model.d_model)

  @jax.jit
  def __call__(
    self, x: Float[Array, 'B S D'], mask: Bool[Array, '#B #S S'], dropout: Dropout
  ) -> Float[Array, 'B S D']:
    attended = self.attention(x, None, mask, dropout)
    x = self.attention_norm(x, attended, dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout.after(1))


class DecoderLayer(nnx.Module):
  """Causal self-attention, cross-attention, feed-forward, each in an AddAndNorm."""

  SITES = 3  # of dropout: the output of each sub-layer

  def __init__(self, model: Model, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = MultiHeadAttention(model, dtype=dtype, rngs=rngs)
    self.attention_norm = AddAndNorm(model.d_model)
    self.cross = MultiHeadAttention(model, dtype=dtype, rngs=rngs)
    self.cross_norm = AddAndNorm(model.d_model)
    self.feed_forward = FeedForward(model, dtype=dtype, rngs=rngs)
    self.feed_forward_norm = AddAndNorm(model.d_model)

  @jax.jit
  def __call__(
    self,
    x: Float[Array, 'B T D'],
    mask: Bool[Array, '#B T M'],
    memory: Float[Array, 'B S D'] | KeyValues,
    source_mask: Bool[Array, 'B #T S'],
    dropout: Dropout,
    cached: KeyValues | None = None,
  ) -> Float[Array, 'B T D']:
    """Runs the three sub-layers.

    Args:
      mask: the mask of self-attention.
      memory: the encoder's output, or its cross.key_values().
      cached: the cache's keys and values for self-attention. None: those of x.
    """
    attended = self.attention(x, cached, mask, dropout)
    x = self.attention_norm(x, attended, dropout)
    dropout = dropout.after(1)
    attended = self.cross(x, memory, source_mask, dropout)
    x = self.cross_norm(x, attended, dropout)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout.after(1))

  def weights(
    self,
    x: Float[Array, 'B T D'],
    causal_mask: Bool[Array, '#B T T'],
    encoder_output: Float[Array, 'B S D'],
    source_mask: Bool[Array, 'B #T S'],
  ) -> tuple[Float32[Array, 'B H T T'], Float32[Array, 'B H T S']]:
    """Returns the weights of self-attention and of cross-attention."""
    key_values = self.attention.key_values(x)
    attended = self.attention(x, key_values, causal_mask)
    queries = self.attention_norm(x, attended, NO_DROPOUT)
    keys = self.cross.key_values(encoder_output).k
    return (
      self.attention.weights(x, key_values.k, causal_mask),
      self.cross.weights(queries, keys, source_mask),
    )

  @jax.jit
  def step(
    self,
    x: Float[Array, 'B R D'],
    position: Int[Array, ''],
    cache: KeyValues,
    visible: Bool[Array, 'B R M'],
    memory: KeyValues,
    source_mask: Bool[Array, 'B 1 S'],
  ) -> tuple[Float[Array, 'B R D'], KeyValues]:
    """Returns the output at `position` for R rows of each sentence, and the new cache.

    Args:
      cache: keys and values of the earlier positions. The step writes those of row r at
        index position * R + r of axis M.
      visible: True where a row may attend to an index of axis M.
      memory: cross.key_values() of the encoder's output.
    """
    index = position * x.shape[1]
    new = self.attention.key_values(x)
    write = jax.lax.dynamic_update_slice_in_dim
    cache = KeyValues(write(cache.k, new.k, index, 3), write(cache.v, new.v, index, 2))
    return self(x, visible, memory, source_mask, NO_DROPOUT, cache), cache
