"""Records of steps, and the notice that a loss has risen for good."""

import json
import math

import numpy as np
import pytest

from transformer_jax.training import metrics
from transformer_jax.training.metrics import Divergence, Meter, Values


def test_divergence_without_nan_is_told():
  """Not of a bad record or a few, nor of a worse loss, but of one that stays away."""
  losses = [9.0, 5.0, 4.0, 5.5, 4.1, 4.9, 4.9, 4.9, 4.9, 4.9, 4.9] + [5.2] * 4
  told = Divergence()
  for step, loss in enumerate(losses):
    assert told.add({'step': step, 'loss': loss}) is None
  message = told.add({'step': 15, 'loss': 7.5})
  assert message.startswith('step 15: the loss, 7.500, has been more than 1.0 nats')
  assert 'its best, 4.000 at step 2, for 5 records' in message
  assert told.add({'step': 16, 'loss': 7.5}) is None
  assert told.add({'step': 17, 'loss': 4.0}) is None


def test_a_record_waits_for_a_step_that_counts():
  meter = Meter(lambda _: 0.1, (2,), 9, 10, 0, 0)
  nothing = Values(np.nan, np.nan, 5, np.nan, 1)
  assert meter.add(1, nothing) is None and meter.add(2, nothing) is None
  assert meter.add(3, Values(6.0, 5.0, 2, 1.0, 0)) is None
  record = meter.add(4, nothing)
  assert (record['loss'], record['steps'], record['skipped']) == (3.0, 4, 3)
  assert record['perplexity'] == math.exp(5.0 / 2), 'of what is not smoothed'
  assert 'NaN' not in json.dumps(record)


def test_only_steps_take_seconds(monkeypatch: pytest.MonkeyPatch):
  """What lies between add() and resume(), such as measuring dev, does not count."""
  now = [0.0]
  monkeypatch.setattr(metrics.time, 'perf_counter', lambda: now[0])
  meter, good = Meter(float, (2,), 9, 10, 0, 0), Values(6.0, 5.0, 2, 1.0, 0)
  now[0] = 3.0
  assert meter.add(1, good) is None
  now[0] = 100.0
  meter.resume()
  now[0] = 104.0
  assert meter.add(2, good)['seconds'] == 7.0


def test_skips_that_no_record_told_of_are_told_by_the_next():
  """Steps 3 and 4 were skipped, and the run was stopped with 4 saved."""
  meter = Meter(lambda update: float(update), (2,), 9, 10, 3, 2)
  assert meter.add(5, Values(6.0, 5.0, 2, 1.0, 0)) is None
  record = meter.add(6, Values(6.0, 5.0, 2, 1.5, 0))
  assert record['gradient_norm'] == 1.5
  assert (record['steps'], record['skipped'], record['learning_rate']) == (4, 2, 2)


def test_the_rate_that_is_logged_is_the_one_that_was_applied():
  """Skipped steps are no updates to Equation 3, those before a restart neither."""
  good, bad = Values(6.0, 5.0, 2, 1.0, 0), Values(np.nan, np.nan, 5, np.nan, 1)
  meter = Meter(lambda update: float(update), (1,), 9, 10, 2, 0)
  rates = [meter.add(step, good)['learning_rate'] for step in (4, 5)]
  assert rates == [1, 2], 'updates from 0: steps 1 to 3 made one, 4 the second'
  assert meter.add(6, bad) is None
  assert meter.add(7, good)['learning_rate'] == 3
