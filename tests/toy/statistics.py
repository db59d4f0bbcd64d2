"""Checks of simulations."""

from collections.abc import Sequence

import numpy as np


def assert_uniform(p: Sequence[float]) -> None:
  """Asserts that a share x of p lies below x, within three standard errors."""
  for x in (0.05, 0.1, 0.5):
    error = (x * (1 - x) / len(p)) ** 0.5
    assert abs(np.mean(np.array(p) < x) - x) < 3 * error, x
