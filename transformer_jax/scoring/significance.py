"""Whether a difference is more than noise over sentences."""

from collections.abc import Callable

import numpy as np

SAMPLES = 1000  # random test sets, as many as sacreBLEU resamples by default
SEED = 12345  # sacreBLEU's


def paired_p(
  ours: np.ndarray, theirs: np.ndarray, score: Callable[[np.ndarray], float]
) -> float:
  """Returns the two-sided p of a difference, by approximate randomisation.

  If two systems do not differ, exchanging their outputs of a sentence changes nothing.
  p is the fraction of random exchanges whose difference is at least as large as the
  actual one, which counts as one of them.

  Args:
    ours, theirs: counts [sentence, count] of two systems.
    score: takes the sum of counts over sentences.
  """
  rng = np.random.default_rng(SEED)
  exchanged = rng.integers(2, size=(SAMPLES, len(ours)), dtype=bool)
  sums = ours.sum(0), theirs.sum(0)
  difference = lambda moved: abs(score(sums[0] + moved) - score(sums[1] - moved))
  actual = difference(np.zeros_like(sums[0])) - 1e-9  # equal but for rounding
  beyond = sum(difference(moved) >= actual for moved in exchanged @ (theirs - ours))
  return (beyond + 1) / (SAMPLES + 1)
