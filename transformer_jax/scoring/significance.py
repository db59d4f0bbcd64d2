"""Whether a difference between runs is more than noise between seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import stdtrit

SAMPLES = 1000  # resampled test sets, as many as sacreBLEU draws by default


class Noise(NamedTuple):
  """Standard deviation between seeds, pooled over the rows with several seeds."""

  deviation: float
  freedom: int  # degrees of freedom


def student_t(freedom: int) -> float:
  """Returns the t for which 95 % of Student's distribution is between -t and t."""
  return float(stdtrit(freedom, 0.975))


def half_interval(deviation: float, freedom: int, seeds: int) -> float:
  """Returns half the 95 % interval of a mean over seeds, by Student's t."""
  return student_t(freedom) * deviation / math.sqrt(seeds)


def noise(groups: Sequence[Sequence[float]]) -> Noise | None:
  """Returns the deviation between seeds, assumed to be the same in all groups.

  A group has the values of all seeds of one row. Returns None if no group has a second
  seed, or if all seeds of each group have the same value.
  """
  freedom = sum(len(values) - 1 for values in groups)
  if not freedom:
    return None
  if all(len({*values}) == 1 for values in groups):
    return None
  squares = sum(
    sum((v - statistics.fmean(values)) ** 2 for v in values) for values in groups
  )
  return Noise(math.sqrt(squares / freedom), freedom)


def margin(noise: Noise, seeds: int, base_seeds: int) -> float:
  """Returns half the 95 % interval of the difference of two means over seeds."""
  error = noise.deviation * math.sqrt(1 / seeds + 1 / base_seeds)
  return student_t(noise.freedom) * error
