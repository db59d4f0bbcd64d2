"""Damaged records are named; patience with dev perplexity ends a training."""

import json
import math
import pathlib
import re

import pytest

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.records import patience_has_ended, read_records


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('{"step": "2"}', 'Expected `int`, got `str` - at `$.step`'),
    ('{"step": 2, "device": "\udcff"}', 'utf-8'),
    # Torn in the middle: the rest of the line is lost, and all after it may be
    ('{"step": 2, "lo', 'truncated'),
  ],
)
def test_a_damaged_line(line: str, message: str, tmp_path: pathlib.Path):
  path = tmp_path / 'metrics.jsonl'
  text = '\n'.join(['{"step": 1}', line, '{"step": 4}', ''])
  path.write_bytes(text.encode(errors='surrogateescape'))
  match = re.escape(f'{path}, line 2: damaged (') + f'.*{re.escape(message)}'
  with pytest.raises(UserError, match=match):
    read_records(path)


def test_a_torn_last_line_is_left_out(tmp_path: pathlib.Path):
  path = tmp_path / 'metrics.jsonl'
  for torn in '{"step": 4, "lo', '\0\0\n':
    path.write_text('{"step": 1}\n{"step": 2, "loss": 3}\n' + torn)
    assert read_records(path) == [{'step': 1}, {'step': 2, 'loss': 3.0}]
  assert read_records(tmp_path / 'none') == []


@pytest.mark.parametrize(
  ('measured', 'ended'),
  [
    ([1, 2], False),
    ([1, 2, 1], True),
    ([2, 3, 1, 2], False),
    # NaN is worse than any number, and spoils no later one.
    ([10, math.nan, math.nan], True),
    ([math.nan, 8, 9], False),
  ],
)
def test_two_without_a_better_one(measured: list[float], ended: bool):
  records = [{'step': n, 'dev_perplexity': x} for n, x in enumerate(measured)]
  config = {'patience': 2, 'checkpoint_every_steps': 1, 'train_steps': 9, 'best_by': ''}
  twice = [record for record in records for _ in range(2)]  # measured again
  assert patience_has_ended(twice, config) == ended
  lines = [files.as_json(record) for record in [*records, {'step': 9, 'seconds': 1.0}]]
  assert patience_has_ended(map(json.loads, lines), config) == ended
  assert not patience_has_ended(records, config | {'patience': 0}), 'it has no end'
