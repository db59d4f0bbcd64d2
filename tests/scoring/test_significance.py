"""Noise between seeds and over sentences, against simulation."""

import numpy as np
import pytest

from transformer_jax.scoring import significance


def test_seeds_that_are_all_equal_tell_of_no_noise():
  """Else any difference would be beyond it."""
  assert significance.noise([[0.0, 0.0], [0.4]]) is None
  assert significance.noise([[0.1, 0.1, 0.1]]) is None, 'however it is rounded'


def test_noise_pools_what_varies_within_groups():
  groups = [[1.0, 2.0, 3.0], [10.0, 14.0], [99.0]]
  result = significance.noise(groups)
  assert result.freedom == 3
  assert result.deviation == pytest.approx(((2 + 8) / 3) ** 0.5)


def test_margin_holds_95_percent_of_the_differences():
  rng = np.random.default_rng(1)
  held = 0
  for _ in range(2000):
    base, row = rng.normal(20, 0.3, 3), rng.normal(20, 0.3, 1)
    noise = significance.noise([base, row])
    held += abs(row.mean() - base.mean()) <= significance.margin(noise, 1, 3)
  assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_paired_p_is_uniform_where_nothing_differs():
  rng = np.random.default_rng(1)
  pairs = rng.exponential(size=(400, 2, 30, 1))
  score = lambda sums: np.log(sums[0])
  p = np.array([significance.paired_p(*pair, score) for pair in pairs])
  for x in (0.05, 0.1, 0.5):  # below each is a share x, within three standard errors
    assert abs(np.mean(p < x) - x) < 3 * (x * (1 - x) / len(p)) ** 0.5, x
