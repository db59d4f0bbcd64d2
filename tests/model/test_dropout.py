"""Dropout: its generator's published vectors, its rates, and what it depends on."""

import functools
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
# Of Random123 1.14, tests/kat_vectors: rounds, counter, key, words.
VECTORS = [
  (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
  (13, ONES, ONES, (0xFD36D048, 0x2D17272C)),
  (13, *PI, (0xBA3E4725, 0xF27D669E)),
  (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
  (20, ONES, ONES, (0x1CB996FC, 0xBB002BE7)),
  (20, *PI, (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(('rounds', 'counter', 'key', 'words'), VECTORS)
def test_the_generators_published_vectors(rounds: int, counter, key, words):
  pair = lambda numbers: tuple(map(jnp.uint32, numbers))
  assert tuple(map(int, threefry_2x32(pair(key), pair(counter), rounds))) == words


@jax.jit
def dropped(x: jax.Array, seed: Any, step: Any, slices: Any, site: Any) -> jax.Array:
  """Returns where x is dropped at a rate of 0.3."""
  key = dropout_key(seed, step, slices)
  return Dropout(0.3, key, site=site)(x) == 0


def decisions(
  shape: tuple[int, ...], seed: int = 1, step: int = 0, slice: int = 0, site: int = 0
) -> np.ndarray:
  return np.asarray(dropped(jnp.ones(shape), seed, step, jnp.array([slice]), site))


@pytest.mark.parametrize('parts', [1, pytest.param(100, marks=pytest.mark.slow)])
def test_rates_and_no_correlations(parts: int):
  """Neither of neighbours, nor of elements that share a block, sites, steps, slices."""
  rows, columns, rate = 1000, 1000, round(0.3 * 65536) / 65536
  sums: dict[str, list[float]] = {}
  for step in range(parts):
    draw = functools.partial(decisions, (rows, columns))
    mask = draw(step=step)
    pairs = {
      'itself': (mask, True),
      'next column': (mask[:, 1:], mask[:, :-1]),
      'next row': (mask[1:], mask[:-1]),
      **{f'quarter {n}': (mask[n * 250 :], mask[: -n * 250]) for n in (1, 2, 3)},
      'site': (mask, draw(step=step, site=1)),
      'step': (mask, draw(step=step + 1)),
      'slice': (mask, draw(step=step, slice=1)),
      'seed': (mask, draw(step=step, seed=2)),
      'slice or site': (draw(step=step, slice=1), draw(step=step, site=1)),
      'seed or step': (draw(seed=step, step=step + 1), draw(seed=step + 1, step=step)),
    }
    for name, (a, b) in pairs.items():
      sums.setdefault(name, []).append((a & b).mean())
  for name, means in sums.items():
    expected = rate if name == 'itself' else rate**2
    deviation = math.sqrt(expected * (1 - expected) / (parts * 0.25 * rows * columns))
    assert abs(np.mean(means) - expected) < 5 * deviation, name


@pytest.mark.parametrize('shape', [(6, 5, 7), (6, 2, 3, 4), (6, 1), (6,)])
def test_slices_at_once_are_slices_alone(shape: tuple[int, ...]):
  """Of any number of rows, which need not be four times another."""
  numbers = [4, 0, 9] if len(shape) > 1 else [4]
  mask = np.asarray(dropped(jnp.ones(shape), 1, 2, jnp.array(numbers), 3))
  each = len(shape) > 1 and 2
  for index, number in enumerate(numbers):
    own = slice(index * each, (index + 1) * each) if each else slice(None)
    alone = decisions(mask[own].shape, step=2, slice=number, site=3)
    np.testing.assert_array_equal(mask[own], alone)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('rate', [0.1, 0.3])
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


def test_weights_of_attention_are_dropped_at_a_site_of_their_own():
  """Each is dropped or divided by what is kept, and not where the output is dropped."""
  dropout = Dropout(0.25, dropout_key(3), 0.25).after(5)
  assert dropout.drops_attention
  x = jnp.ones((4, 5, 100, 100))
  weights, output = dropout.of_attention(x), dropout(x)
  assert {*np.unique(weights)} == {0, np.float32(4 / 3)}
  np.testing.assert_array_equal(output, Dropout(0.25, dropout_key(3), site=5)(x))
  both = ((np.asarray(weights) == 0) & (np.asarray(output) == 0)).mean()
  assert abs(both - 0.25**2) < 0.005


def test_nothing_is_dropped_without_a_key_or_a_rate():
  x = jnp.ones((3, 4))
  for dropout in (NO_DROPOUT, Dropout(0.5, None, 0.5), Dropout(0.0, dropout_key())):
    np.testing.assert_array_equal(dropout(x), x)
    np.testing.assert_array_equal(dropout.of_attention(x), x)
    assert not dropout.drops_attention and dropout.stream()[1] == 0
