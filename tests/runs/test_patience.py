"""When dev perplexity ends a training, live and read again from metrics.jsonl."""

import json
import math

import pytest

from transformer_jax.machine import files
from transformer_jax.runs.patience import Patience


@pytest.mark.parametrize(
  ('measured', 'ended'),
  [
    ([], False),
    ([3, 2, 1], False),
    ([1, 2], False),
    ([1, 2, 1], True),
    ([2, 3, 1, 2], False),
    # NaN is worse than any number, and spoils no later one.
    ([10, math.nan, 9], False),
    ([10, math.nan, 9, 9.5], False),
    ([10, math.nan, math.nan], True),
    ([math.nan, 8, 9], False),
  ],
)
def test_two_without_a_better_one(measured: list[float], ended: bool):
  live = Patience(2)
  for perplexity in measured:
    live.add(perplexity)
  records = [{'step': n, 'dev_perplexity': x} for n, x in enumerate(measured)]
  lines = [files.as_json(record) for record in [*records, {'step': 9, 'seconds': 1.0}]]
  again = Patience.of(map(json.loads, lines), 2)
  assert live.ended == again.ended == ended


def test_no_patience_is_asked_for():
  endless = Patience(0)
  for _ in range(50):
    endless.add(7.0)
  assert not endless.ended
