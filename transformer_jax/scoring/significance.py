"""Whether a difference is more than noise over sentences."""

from collections.abc import Callable

import numpy as np

SAMPLES = 1000  # random test sets, as many as sacreBLEU resamples by default
EXCHANGES = 10_000  # of paired_p: 1,000 do not tell p of 0.08 from p of 0.06
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
  exchanged = rng.integers(2, size=(EXCHANGES, len(ours)), dtype=bool)
  sums = ours.sum(0), theirs.sum(0)
  difference = lambda moved: abs(score(sums[0] + moved) - score(sums[1] - moved))
  actual = difference(0) - 1e-9  # rounding must not break ties
  parts = (part @ (theirs - ours) for part in np.array_split(exchanged, 10))
  beyond = sum(difference(moved) >= actual for part in parts for moved in part)
  return (beyond + 1) / (EXCHANGES + 1)
