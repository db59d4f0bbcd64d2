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
      if record.get('dev_perplexity') is not None:
        patience.add(record['dev_perplexity'])
    return patience

  def add(self, perplexity: float) -> None:
    better = perplexity < self._best
    self._best = min(perplexity, self._best)
    self._worse = 0 if better else self._worse + 1

  @property
  def ended(self) -> bool:
    return 0 < self.most <= self._worse
