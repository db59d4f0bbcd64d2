"""Residual dropout (section 5.4), from a counter-based random generator.

Whether an element is dropped is a function of its seed, step, slice, dropout site and
index alone. So it is the same on every platform, on any number of devices, and however
many slices are computed at once. It is computed where it is used, from these numbers.

The generator is Threefry-2x32 with 13 rounds (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"). Its authors found no flaw in 13 rounds or more; their
default is 20. It adds, rotates and xors 32-bit integers, which all processors do fast;
Philox takes a CPU seven times as long.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, UInt32

Pair = tuple[UInt32[Array, '...'], UInt32[Array, '...']]

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA  # of the key schedule
ROUNDS = 13
SITE_BITS = 16  # bits of a word that hold the site; the others hold the slice


def threefry_2x32(key: Pair, counter: Pair) -> Pair:
  """Returns two random words for each counter; key and counter broadcast."""
  x, y = (word + part for word, part in zip(counter, key, strict=True))
  schedule = *key, key[0] ^ key[1] ^ np.uint32(PARITY)
  for number in range(ROUNDS):
    turn = ROTATIONS[number // 4 % 2][number % 4]
    x = x + y
    y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
    if number % 4 == 3:
      group = number // 4 + 1
      x = x + schedule[group % 3]
      y = y + schedule[(group + 1) % 3] + np.uint32(group)
  return x, y


def keep_four(words: Pair, drop: int) -> tuple[Bool[Array, '...'], ...]:
  """Returns four masks of the words' shape, one from each 16 bits.

  A mask is False with probability `drop` / 65536.
  """
  least = np.uint32(drop << 16)
  halves = (half for word in words for half in (word << np.uint32(16), word))
  return tuple(half >= least for half in halves)


class DropoutKey(NamedTuple):
  """All that dropout depends on, but the site. Slices are numbered over the batch.

  The rows of the batch are cut into as many equal slices as `slices` has numbers. Each
  slice gets the same dropout as if it were computed alone.
  """

  seed: Int[Array, '']
  step: Int[Array, '']
  slices: Int[Array, ' slices']


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dropout:
  """Residual dropout at one site: one place where the model drops elements.

  Attributes:
    rate: P_drop.
    key: the numbers that decide. None: nothing is dropped.
    attention_rate: P_drop_attention.
    site: the site's number. An array where layers share one trace.
  """

  rate: float = dataclasses.field(metadata={'static': True})
  key: DropoutKey | None
  attention_rate: float = dataclasses.field(default=0.0, metadata={'static': True})
  site: int | Int[Array, ''] = 0

  def after(self, sites: int) -> 'Dropout':
    """Returns the dropout at the site that is `sites` later."""
    return dataclasses.replace(self, site=self.site + sites)

  def stream(self) -> tuple[UInt32[Array, 'slices 3'], int]:
    """Returns seed, step and stream of each slice, and the rate in 65536ths.

    A kernel draws what is dropped from these numbers, as _keep() does.
    """
    drop = _rate_in_65536ths(self.rate)
    if self.key is None or not drop:
      return jnp.zeros((1, 3), jnp.uint32), 0
    return _streams(self.key, 2 * self.site), drop

  @property
  def drops_attention(self) -> bool:
    """Whether weights are dropped in the attention whose output is this site."""
    return self.key is not None and _rate_in_65536ths(self.attention_rate) > 0

  def of_attention(self, weights: Float[Array, '*shape']) -> Float[Array, '*shape']:
    """Returns attention weights with random elements set to 0, the others scaled."""
    return self._drop(weights, self.attention_rate, 2 * self.site + 1)

  def __call__(self, x: Float[Array, '*shape']) -> Float[Array, '*shape']:
    """Returns x with random elements set to 0; a scale keeps the expectation."""
    return self._drop(x, self.rate, 2 * self.site)

  def _drop(
    self, x: Float[Array, '*shape'], rate: float, number: int | Int[Array, '']
  ) -> Float[Array, '*shape']:
    drop = _rate_in_65536ths(rate)
    if self.key is None or not drop:
      return x
    keep = _keep(self.key, number, x.shape, drop)
    # In float32, because bfloat16 would round the factor.
    scaled = x.astype(jnp.float32) * (65536 / (65536 - drop))
    return jnp.where(keep, scaled, 0).astype(x.dtype)


NO_DROPOUT = Dropout(0.0, None)


def _rate_in_65536ths(rate: float) -> int:
  """Returns the rate in 65536ths, since 16 random bits decide on each element."""
  return round(rate * 65536)


def _streams(
  key: DropoutKey, number: int | Int[Array, '']
) -> UInt32[Array, 'slices 3']:
  """Returns seed, step, and a number of the site and each slice.

  The barrier keeps XLA from hoisting what depends on seed and step alone out of the
  loop over slices. On a CPU the rest of the fusion would take four times as long.
  """
  seed, step, slices, number = (
    jnp.asarray(x).astype(jnp.uint32) for x in (*key, number)
  )
  stream = slices << np.uint32(SITE_BITS) | number
  words = jnp.full_like(stream, seed), jnp.full_like(stream, step), stream
  return jax.lax.optimization_barrier(jnp.stack(words, 1))


def _keep(
  key: DropoutKey, number: int | Int[Array, ''], shape: tuple[int, ...], drop: int
) -> Bool[Array, '*shape']:
  """Returns the mask of one site.

  A block of two words decides on the same column of four rows, one from each quarter of
  a slice's rows. So a quarter's mask is computed and stored without gaps.
  """
  slices, columns = len(key.slices), shape[-1]
  rows = np.prod(shape[:-1], dtype=int) // slices
  blocks = slices, -(-rows // 4), columns
  row, column = (jax.lax.broadcasted_iota(np.uint32, blocks, n) for n in (1, 2))
  seed, step, stream = _streams(key, number).T[..., None, None]
  counter = row * np.uint32(columns) + column, stream
  quarters = keep_four(threefry_2x32((seed, step), counter), drop)
  return jnp.concatenate(quarters, 1)[:, :rows].reshape(shape)
