"""When a training ends early: dev perplexity has not improved for too long; no JAX."""

import math
from collections.abc import Iterable


class Patience:
  """Says when a measure of dev has not improved for too long.

  Args:
    most: so many measurements in a row may be no better than the best; 0: any number.
  """

  def __init__(self, most: int):
    self.most, self._best, self._worse = most, math.inf, 0

  @classmethod
  def of(cls, records: Iterable[dict], most: int) -> 'Patience':
    """As the records of metrics.jsonl leave it."""
    patience = cls(most)
    for record in records:
      if 'dev_perplexity' in record:
        perplexity = record['dev_perplexity']
        patience.add(math.nan if perplexity is None else perplexity)  # JSON has no NaN
    return patience

  def add(self, perplexity: float) -> None:
    """Takes the next measurement; NaN is worse than any number."""
    if perplexity < self._best:
      self._best, self._worse = perplexity, 0
    else:
      self._worse += 1

  @property
  def ended(self) -> bool:
    return 0 < self.most <= self._worse
