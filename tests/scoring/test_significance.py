"""Noise over sentences, against simulation."""

import numpy as np

from transformer_jax.scoring import significance


def test_paired_p_is_uniform_where_nothing_differs(monkeypatch):
  monkeypatch.setattr(significance, 'EXCHANGES', 1000)
  rng = np.random.default_rng(1)
  pairs = rng.exponential(size=(100, 2, 30, 1))
  score = lambda sums: np.log(sums[0])
  p = np.array([significance.paired_p(*pair, score) for pair in pairs])
  for x in (0.05, 0.1, 0.5):  # below each is a share x, within three standard errors
    assert abs(np.mean(p < x) - x) < 3 * (x * (1 - x) / len(p)) ** 0.5, x
