"""Whether a difference is more than noise, between seeds or over sentences."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

SAMPLES = 1000  # random test sets, as many as sacreBLEU resamples by default
SEED = 12345  # sacreBLEU's


class Noise(NamedTuple):
  """Standard deviation between seeds, pooled over the rows with several seeds."""

  deviation: float
  freedom: int  # degrees of freedom


def noise(groups: Sequence[Sequence[float]]) -> Noise | None:
  """Returns the deviation between seeds, assumed to be the same in all groups.

  A group has the values of all seeds of one row. Returns None if no group has a second
  seed, or if all seeds of each group have the same value.
  """
  freedom = sum(len(values) - 1 for values in groups)
  if all(len({*values}) == 1 for values in groups):
    return None
  squares = sum(
    sum((v - statistics.fmean(values)) ** 2 for v in values) for values in groups
  )
  return Noise(math.sqrt(squares / freedom), freedom)


def margin(noise: Noise, *seeds: int, level: float = 0.95) -> float:
  """Returns half the interval of a mean over this many seeds, by Student's t.

  With two numbers of seeds it is that of the difference of two means.
  """
  error = noise.deviation * math.sqrt(sum(1 / count for count in seeds))
  return float(stdtrit(noise.freedom, (1 + level) / 2)) * error


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
