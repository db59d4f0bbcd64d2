"""Dropout: its generator's published vectors, its rates, and what it depends on."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy.forms import dropout_key, normal
from transformer_jax.model.dropout import NO_DROPOUT, Dropout, threefry_2x32

ONES = 0xFFFFFFFF, 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344)
# Of Random123 1.14, tests/kat_vectors, with 13 rounds: counter, key, words.
VECTORS = [
  ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
  (ONES, ONES, (0xFD36D048, 0x2D17272C)),
  (*PI, (0xBA3E4725, 0xF27D669E)),
]


@pytest.mark.parametrize(('counter', 'key', 'words'), VECTORS)
def test_the_generators_published_vectors(counter, key, words):
  pair = lambda numbers: tuple(map(jnp.uint32, numbers))
  assert tuple(map(int, threefry_2x32(pair(key), pair(counter)))) == words


@jax.jit
def dropped(x: jax.Array, seed: Any, step: Any, slices: Any, site: Any) -> jax.Array:
  """Returns where x is dropped at a rate of 0.3."""
  key = dropout_key(seed, step, slices)
  return Dropout(0.3, key, site=site)(x) == 0


def decisions(
  shape: tuple[int, ...], seed: int = 1, step: int = 0, slice: int = 0, site: int = 0
) -> np.ndarray:
  return np.asarray(dropped(jnp.ones(shape), seed, step, jnp.array([slice]), site))


def test_rates_and_no_correlations():
  """Neither of neighbours, nor of elements that share a block, sites, steps, slices."""
  shape, rate = (1000, 1000), round(0.3 * 65536) / 65536
  draw = lambda **numbers: decisions(shape, **numbers)
  mask, other_slice = draw(), draw(slice=1)
  for name, (a, b) in {
    'itself': (mask, True),
    'next column': (mask[:, 1:], mask[:, :-1]),
    'next row': (mask[1:], mask[:-1]),
    **{f'quarter {n}': (mask[n * 250 :], mask[: -n * 250]) for n in (1, 2, 3)},
    'site': (mask, draw(site=1)),
    'step': (mask, draw(step=1)),
    'slice': (mask, other_slice),
    'seed': (mask, draw(seed=2)),
    'slice or site': (other_slice, draw(site=1)),
    'seed or step': (draw(seed=0, step=1), draw(seed=1)),
  }.items():
    expected = rate if name == 'itself' else rate**2
    deviation = math.sqrt(expected * (1 - expected) / (0.25 * mask.size))
    assert abs((a & b).mean() - expected) < 5 * deviation, name


@pytest.mark.parametrize('shape', [(6, 5, 7), (6, 2, 3, 4), (6, 1)])
def test_slices_at_once_are_slices_alone(shape: tuple[int, ...]):
  """Of any number of rows, which need not be four times another."""
  numbers = [4, 0, 9]
  mask = np.asarray(dropped(jnp.ones(shape), 1, 2, jnp.array(numbers), 3))
  for own, number in zip(np.split(mask, 3), numbers, strict=True):
    alone = decisions(own.shape, step=2, slice=number, site=3)
    np.testing.assert_array_equal(own, alone)


@pytest.mark.parametrize(('rate', 'dtype'), [(0.1, jnp.bfloat16), (0.3, jnp.float32)])
def test_it_keeps_the_expectation(rate: float, dtype: Any):
  """Exactly in the mean: 1 / 0.9 rounded to bfloat16 would be 0.16 per cent off."""
  x = normal(501, 401).astype(dtype)
  result = Dropout(rate, dropout_key(3))(x)
  assert result.dtype == dtype
  exact, own = np.asarray(x, np.float64), np.asarray(result, np.float64)
  kept = own != 0
  assert abs(1 - kept.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / x.size)
  scale = (own * exact)[kept].sum() / np.square(exact[kept]).sum()
  assert scale == pytest.approx(1 / (1 - rate), rel=5e-4)  # rounding x moves 3e-4


def test_nothing_is_dropped_without_a_key_or_a_rate():
  assert Dropout(0.25, dropout_key(), 0.25).drops_attention
  x = jnp.ones((3, 4))
  for dropout in (NO_DROPOUT, Dropout(0.5, None, 0.5), Dropout(0.0, dropout_key())):
    np.testing.assert_array_equal(dropout(x), x)
    np.testing.assert_array_equal(dropout.of_attention(x), x)
    assert not dropout.drops_attention and dropout.stream()[1] == 0
