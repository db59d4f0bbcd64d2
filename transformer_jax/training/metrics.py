"""What a run writes about its steps, and how it notices that it has gone astray."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Values(NamedTuple):
  """What one update was, as numbers of the host; sums are over its target tokens."""

  loss: float  # nats, label-smoothed
  negative_log_likelihood: float  # nats
  tokens: int
  gradient_norm: float
  skipped: int  # 1 if loss or gradient was not finite, so that nothing was updated


class Meter:
  """Sums up steps into records, at every multiple of each number of `every`.

  Args:
    rate: learning rate of an update, counted from 0; a step that was skipped is none.
    every: nothing that a checkpoint has seen may be missing from the records, so its
      cadence is among them.
    last: the last step, which has a record too.
    epoch: steps of an epoch.
    skipped: steps that were, before the first that is added.
  """

  def __init__(
    self,
    rate: Callable[[int], float],
    every: tuple[int, ...],
    last: int,
    epoch: int,
    skipped: int,
  ):
    self._lost = skipped
    self._rate, self._every, self._last, self._epoch = rate, every, last, epoch
    self._clear()
    self.resume()

  def _clear(self) -> None:
    self._sums, self._steps, self._skipped, self._seconds = np.zeros(3), 0, 0, 0.0

  def resume(self) -> None:
    """Lets time count again: what happened since the last add() does not."""
    self._since = time.perf_counter()

  def add(self, step: int, values: Values, due: bool = False) -> dict | None:
    """Takes in a step; a record of those since the last one when it is `due` or time.

    There is none while all of them were skipped.
    """
    if values.skipped:
      self._skipped += 1
      self._lost += 1
    else:
      self._sums += [values.loss, values.negative_log_likelihood, values.tokens]
    self._steps += 1
    now = time.perf_counter()
    self._seconds += now - self._since
    self._since = now
    due = due or step == self._last or not all(step % every for every in self._every)
    smoothed, plain, tokens = self._sums
    if not due or not tokens:
      return None
    record = {
      'step': step,
      'epoch': round(step / self._epoch, 3),
      'loss': smoothed / tokens,
      'perplexity': math.exp(min(plain / tokens, 700.0)),
      'learning_rate': float(self._rate(step - 1 - self._lost)),
      'gradient_norm': float(values.gradient_norm),
      'target_tokens': int(tokens),
      'steps': self._steps,
      'skipped': self._skipped,
      'seconds': self._seconds,
    }
    if values.skipped:
      del record['gradient_norm']  # no number that JSON knows
    self._clear()
    return record


class Divergence:
  """Notices a loss that has left its best for good, which no NaN tells of.

  A record's loss is a mean over many batches and wanders by hundredths of a nat; to be
  `far` above the best one is to give the words exp(far) times less probability.
  """

  def __init__(self, far: float = 1.0, records: int = 5):
    """`far` in nats per token, for so many `records` on end."""
    self._far, self._records = far, records
    self._best, self._at, self._above = math.inf, 0, 0

  def add(self, record: dict) -> str | None:
    """What to say about it, if anything: once for so many records above."""
    if record['loss'] < self._best:
      self._best, self._at = record['loss'], record['step']
    self._above = self._above + 1 if record['loss'] > self._best + self._far else 0
    if not self._above or self._above % self._records:
      return None
    return (
      f'step {record["step"]}: the loss, {record["loss"]:.3f}, has been more than '
      f'{self._far} nats above its best, {self._best:.3f} at step {self._at}, for '
      f'{self._above} records: this run has diverged'
    )
