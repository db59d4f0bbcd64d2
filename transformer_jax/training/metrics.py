"""Sums over steps, made into the records of metrics.jsonl; and a watch on the loss."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def perplexity(nats: float) -> float:
  """exp(nats) of a mean per token, capped where math.exp() would overflow."""
  return math.exp(min(nats, 700.0))


class Values(NamedTuple):
  """One step's sums over its target tokens, as numbers of the host."""

  loss: float  # nats, label-smoothed
  negative_log_likelihood: float  # nats
  tokens: int
  gradient_norm: float
  skipped: int  # 1 if loss or gradient's norm was not finite: nothing was changed


class Meter:
  """Makes records, each about the steps since the one before.

  Args:
    rate: the learning rate of an update, counted from 0; skipped steps do not count.
    every: intervals in steps; a record is due at every multiple of each. One is the
      checkpoint interval, so a run resumed from a checkpoint has all earlier records.
    last: the last step, which has a record too.
    epoch: the number of steps of an epoch.
    skipped: how many steps have been skipped before the first one added.
    unrecorded: how many of these no record has counted yet.
  """

  def __init__(
    self,
    rate: Callable[[int], float],
    every: tuple[int, ...],
    last: int,
    epoch: int,
    skipped: int,
    unrecorded: int,
  ):
    self._skipped_in_all = skipped
    self._rate, self._every, self._last, self._epoch = rate, every, last, epoch
    self._clear()
    self._steps = self._skipped = unrecorded
    self.resume()

  def _clear(self) -> None:
    self._sums, self._steps, self._skipped, self._seconds = np.zeros(3), 0, 0, 0.0

  def resume(self) -> None:
    """Starts the clock: the time since the last add() does not count."""
    self._since = time.perf_counter()

  def add(self, step: int, values: Values, due: bool = False) -> dict | None:
    """Adds a step; returns a record when there is one at this step, or it is `due`.

    While all steps since the last record were skipped, there is none.
    """
    if values.skipped:
      self._skipped += 1
      self._skipped_in_all += 1
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
      'perplexity': perplexity(plain / tokens),
      'learning_rate': float(self._rate(step - 1 - self._skipped_in_all)),
      'gradient_norm': float(values.gradient_norm),
      'target_tokens': int(tokens),
      'steps': self._steps,
      'skipped': self._skipped,
      'seconds': self._seconds,
    }
    if values.skipped:
      del record['gradient_norm']  # JSON has neither NaN nor infinity
    self._clear()
    return record


class Divergence:
  """Notices a loss that has risen and stays high, though it is finite.

  A record's loss is a mean over many batches, which varies by hundredths of a nat. One
  that is `far` above the best gives the right words exp(far) times less probability.
  """

  def __init__(self, far: float = 1.0, records: int = 5):
    """The run has diverged if `records` losses in a row are `far` nats above the best.

    Losses are in nats per token.
    """
    self._far, self._records = far, records
    self._best, self._at, self._above = math.inf, 0, 0

  def add(self, record: dict) -> str | None:
    """A sentence when the run has diverged, else None; once per `records` records."""
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
