"""The sub-layers and layers of section 3; attention has a module of its own.

Shapes, here and in every file that touches an array of the model:

  B  sentences of a batch       D  d_model             W  vocabulary
  S  source positions           H  h, heads            R  rows (beams) of a sentence
  T  target positions           K  d_k    V  d_v       L  positions of a cache
                                                       M  keys to look among

Signatures carry these letters, and the tests check every call against them. Modes are
arguments: a dropout key of None means no dropout, and the decoding cache goes in and
comes out.

`dtype` is that of the weights in products. A sub-layer's output has its input's dtype.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Key

from transformer_jax.model import ops
from transformer_jax.model.attention import KeyValues, MultiHeadAttention

Array = jax.Array | np.ndarray


# 3.1 Encoder and decoder stacks: what surrounds every sub-layer


def _of_each(
  function: Callable[[jax.Array], jax.Array],
  keys: Key[Array, '*parts'],
  out_axis: int = 0,
) -> jax.Array:
  """Applies a function to a key, or to each of several, and stacks the results."""
  return jax.vmap(function, out_axes=out_axis)(keys) if keys.ndim else function(keys)


def split_keys(keys: Key[Array, '*parts'], count: int) -> Key[Array, 'count *parts']:
  """Splits a key into `count` new keys, or each of several keys into so many."""
  return _of_each(lambda key: jax.random.split(key, count), keys, out_axis=1)


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['keys'],
  meta_fields=['rate', 'weights_rate'],
)
@dataclasses.dataclass(frozen=True)
class Dropout:
  """Section 5.4's residual dropout: P_drop, and a key for each place it is applied.

  A place is an index into `keys`. Without keys nothing is dropped. `weights_rate` is
  P_drop_attention (section 6.3), the dropout rate of attention weights. Their key is
  derived from the key of that attention's output.

  A place may have several keys. The rows of an input are then cut into as many equal
  parts. Each part gets its own key, and the dropout that it would get alone.
  """

  rate: float
  keys: Key[Array, 'places *parts'] | None
  weights_rate: float = 0.0

  @classmethod
  def of(
    cls,
    rate: float,
    key: Key[Array, '*parts'] | None,
    places: int,
    weights_rate: float = 0.0,
  ) -> 'Dropout':
    """Makes a key for each of `places` places out of `key`; None: no dropout."""
    keys = split_keys(key, places) if key is not None else None
    return cls(rate, keys, weights_rate)

  def of_layers(self, count: int, places: int) -> list['Dropout']:
    """Returns a Dropout with `places` keys for each of `count` layers.

    They are the last keys. The keys before them are for what comes before the layers.
    """
    if self.keys is None:
      return [self] * count
    last = self.keys[len(self.keys) - count * places :]
    keys = last.reshape(count, places, *last.shape[1:])
    return [dataclasses.replace(self, keys=of_layer) for of_layer in keys]

  def of_weights(self, place: int) -> Callable[[jax.Array], jax.Array]:
    """Returns a function that applies dropout to the attention weights at `place`."""
    if self.keys is None or not self.weights_rate:
      return lambda weights: weights
    derived = _of_each(lambda key: jax.random.fold_in(key, 1), self.keys[place])
    own = Dropout(self.weights_rate, derived[None])
    return lambda weights: own(weights, 0)

  def __call__(self, x: Float[Array, '*shape'], place: int) -> Float[Array, '*shape']:
    """Returns x with elements set to 0 at random, scaled to keep the expectation."""
    # 16 random bits decide on each element, so the rate is rounded to a 65536th.
    drop = round(self.rate * 65536)
    if self.keys is None or not drop:
      return x
    size = x.size // self.keys[place].size

    def bits(key: jax.Array) -> jax.Array:
      words = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
      return jax.lax.bitcast_convert_type(words, jnp.uint16).ravel()[:size]

    keep = _of_each(bits, self.keys[place]).reshape(x.shape) >= drop
    # In float32, because bfloat16 would round the factor.
    scaled = x.astype(jnp.float32) * (65536 / (65536 - drop))
    return jnp.where(keep, scaled, 0).astype(x.dtype)


class LayerNorm(nnx.Module):
  """Layer normalisation (Ba et al. 2016), computed in float32."""

  def __init__(self, d_model: int, epsilon: float):
    self.scale = nnx.Param(jnp.ones(d_model))
    self.bias = nnx.Param(jnp.zeros(d_model))
    self.epsilon = epsilon

  def __call__(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T D']:
    dtype, x = x.dtype, x.astype(jnp.float32)
    scale, bias = (ops.in_every_row(v[...], x) for v in (self.scale, self.bias))
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x).mean(-1, keepdims=True) - jnp.square(mean)
    scale = scale * jax.lax.rsqrt(jnp.maximum(variance, 0) + self.epsilon)
    return ((x - mean) * scale + bias).astype(dtype)


class AddAndNorm(nnx.Module):
  """LayerNorm(x + Sublayer(x)), section 3.1: the norm comes after the sum."""

  def __init__(self, d_model: int, epsilon: float):
    self.norm = LayerNorm(d_model, epsilon)

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    sublayer: Float[Array, 'B T D'],
    dropout: Dropout,
    place: int,
  ) -> Float[Array, 'B T D']:
    return self.norm(x + dropout(sublayer, place))


# 3.3 Position-wise feed-forward networks


class Linear(nnx.Module):
  """x W + b."""

  def __init__(self, d_in: int, d_out: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
    glorot = nnx.initializers.glorot_uniform()
    self.kernel = nnx.Param(glorot(rngs.params(), (d_in, d_out)))
    self.bias = nnx.Param(jnp.zeros(d_out))
    self.dtype = dtype

  def __call__(self, x: Float[Array, 'B T I']) -> Float[Array, 'B T O']:
    product = ops.linear(x, self.kernel[...].astype(self.dtype))
    return ops.add_bias(product, self.bias[...])

  def call_transposed(self, x: Float[Array, 'B T I']) -> Float[Array, 'B T O']:
    """Returns what __call__ does, with a kernel that is stored transposed, [O, I]."""
    product = ops.linear_transposed(x, self.kernel[...].astype(self.dtype))
    return ops.add_bias(product, self.bias[...])


ACTIVATIONS = {'relu': jax.nn.relu, 'swish': jax.nn.silu}


class FeedForward(nnx.Module):
  """max(0, x W_1 + b_1) W_2 + b_2, equation 2; or another activation than max(0, x)."""

  def __init__(
    self,
    d_model: int,
    d_ff: int,
    activation: str,
    *,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
  ):
    self.inner = Linear(d_model, d_ff, dtype=dtype, rngs=rngs)
    self.outer = Linear(d_ff, d_model, dtype=dtype, rngs=rngs)
    self.activation = activation

  def __call__(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T D']:
    return self.outer(ACTIVATIONS[self.activation](self.inner(x)))

  def call_transposed(self, x: Float[Array, 'B T D']) -> Float[Array, 'B T D']:
    """Returns what __call__ does, with kernels that are stored transposed."""
    inner = ACTIVATIONS[self.activation](self.inner.call_transposed(x))
    return self.outer.call_transposed(inner)


# 3.5 Positional encoding


def sinusoids(length: int, d_model: int) -> Float[np.ndarray, 'L D']:
  """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = its cosine."""
  pair = np.arange(d_model) // 2
  angle = np.arange(length)[:, None] / 10000.0 ** (2 * pair / d_model)
  even = np.arange(d_model) % 2 == 0
  return np.where(even, np.sin(angle), np.cos(angle)).astype(np.float32)


# 3.1 again: the layers


class Sizes(NamedTuple):
  """The columns of Table 3 that shape a layer, and what Marian's layers may have."""

  d_model: int
  d_ff: int
  h: int
  d_k: int
  d_v: int
  activation: str  # one of ACTIVATIONS
  biases: bool  # of attention
  norm_epsilon: float

  def attention(self, dtype: DTypeLike, rngs: nnx.Rngs) -> MultiHeadAttention:
    sizes = self.d_model, self.h, self.d_k, self.d_v
    return MultiHeadAttention(*sizes, biases=self.biases, dtype=dtype, rngs=rngs)

  def add_and_norm(self) -> AddAndNorm:
    return AddAndNorm(self.d_model, self.norm_epsilon)

  def feed_forward(self, dtype: DTypeLike, rngs: nnx.Rngs) -> FeedForward:
    sizes = self.d_model, self.d_ff, self.activation
    return FeedForward(*sizes, dtype=dtype, rngs=rngs)


class EncoderLayer(nnx.Module):
  """Self-attention, then the feed-forward network; each is followed by AddAndNorm."""

  PLACES = 2  # of dropout: one for each sub-layer

  def __init__(self, sizes: Sizes, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = sizes.attention(dtype, rngs)
    self.attention_norm = sizes.add_and_norm()
    self.feed_forward = sizes.feed_forward(dtype, rngs)
    self.feed_forward_norm = sizes.add_and_norm()

  def __call__(
    self, x: Float[Array, 'B S D'], mask: Bool[Array, '#B #S S'], dropout: Dropout
  ) -> Float[Array, 'B S D']:
    return self.with_weights(x, mask, dropout)[0]

  def with_weights(
    self, x: Float[Array, 'B S D'], mask: Bool[Array, '#B #S S'], dropout: Dropout
  ) -> tuple[Float[Array, 'B S D'], Float32[Array, 'B H S S']]:
    """Returns what __call__ does, and attention's weights."""
    attended, weights = self.attention.with_weights(x, x, mask, dropout.of_weights(0))
    x = self.attention_norm(x, attended, dropout, 0)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout, 1), weights


class DecoderLayer(nnx.Module):
  """Causal self-attention, attention to the encoder's output, feed-forward network.

  Each is followed by AddAndNorm.
  """

  PLACES = 3  # of dropout: one for each sub-layer

  def __init__(self, sizes: Sizes, *, dtype: DTypeLike, rngs: nnx.Rngs):
    self.attention = sizes.attention(dtype, rngs)
    self.attention_norm = sizes.add_and_norm()
    self.cross = sizes.attention(dtype, rngs)
    self.cross_norm = sizes.add_and_norm()
    self.feed_forward = sizes.feed_forward(dtype, rngs)
    self.feed_forward_norm = sizes.add_and_norm()

  def __call__(
    self,
    x: Float[Array, 'B T D'],
    causal_mask: Bool[Array, '#B T T'],
    memory: Float[Array, 'B S D'],
    memory_mask: Bool[Array, 'B #T S'],
    dropout: Dropout,
  ) -> Float[Array, 'B T D']:
    return self.with_weights(x, causal_mask, memory, memory_mask, dropout)[0]

  def with_weights(
    self,
    x: Float[Array, 'B T D'],
    causal_mask: Bool[Array, '#B T T'],
    memory: Float[Array, 'B S D'],
    memory_mask: Bool[Array, 'B #T S'],
    dropout: Dropout,
  ) -> tuple[
    Float[Array, 'B T D'], Float32[Array, 'B H T T'], Float32[Array, 'B H T S']
  ]:
    """Returns what __call__ does, and the weights of both attentions."""
    drop = dropout.of_weights
    attended, weights = self.attention.with_weights(x, x, causal_mask, drop(0))
    x = self.attention_norm(x, attended, dropout, 0)
    attended, cross = self.cross.with_weights(x, memory, memory_mask, drop(1))
    x = self.cross_norm(x, attended, dropout, 1)
    return self.feed_forward_norm(x, self.feed_forward(x), dropout, 2), weights, cross

  def step(
    self,
    x: Float[Array, 'B R D'],
    position: Int[Array, ''],
    cache: KeyValues,
    visible: Bool[Array, 'B R M'],
    memory: KeyValues,
    memory_mask: Bool[Array, 'B 1 S'],
  ) -> tuple[Float[Array, 'B R D'], KeyValues]:
    """Returns the output at `position` for R rows of each sentence, and the new cache.

    The keys and values of row r are written at index position * R + r of axis M.
    `visible` is True where a row may attend to a cached key.
    """
    R = x.shape[1]
    new = self.attention.key_values_transposed(x)
    put = jax.lax.dynamic_update_slice_in_dim
    cache = KeyValues(
      put(cache.k, new.k, position * R, 3), put(cache.v, new.v, position * R, 2)
    )
    none = Dropout(0.0, None)
    x = self.attention_norm(x, self.attention.attend_cached(x, cache, visible), none, 0)
    x = self.cross_norm(x, self.cross.attend_cached(x, memory, memory_mask), none, 1)
    transformed = self.feed_forward.call_transposed(x)
    return self.feed_forward_norm(x, transformed, none, 2), cache
