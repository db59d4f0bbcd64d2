"""Records of steps, warnings of divergence, and the log."""

import itertools
import json
import math
import pathlib
import struct
import time

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from transformer_jax.runs.run import Run
from transformer_jax.training import metrics
from transformer_jax.training.metrics import Divergence, Log, Meter
from transformer_jax.training.step import Sums

GOOD = Sums(6.0, 5.0, 2, 1.5, 0, [0, 0])
SKIPPED = Sums(np.nan, np.nan, 5, np.nan, 1, [0, 0])


def test_divergence_without_nan_is_reported():
  """A few bad records, or a worse loss, are no divergence; it is said once."""
  losses = [9.0, 5.0, 4.0, 5.5, 4.1, 4.9, 4.9, 4.9, 4.9, 4.9, 4.9] + [5.2] * 4
  divergence = Divergence(60)
  for step, loss in enumerate(losses):
    assert divergence.add({'step': step, 'loss': loss}) is None
  message = divergence.add({'step': 15, 'loss': 7.5})
  assert 'its best, 4.000 at step 2, for 5 records' in message
  assert divergence.add({'step': 16, 'loss': 7.5}) is None and divergence.message
  assert divergence.add({'step': 17, 'loss': 4.0}) is None and not divergence.message


def test_a_run_that_is_worse_than_at_its_start():
  for losses, what in (
    ([7.0, 6.2, 6.14, 6.28], ''),
    ([7.0, 6.2, 6.14, 6.4], 'worse than after the first 100 updates, 6.2'),
    ([90.0, 50.0, 40.0], 'worse than guessing 4,000 pieces'),
    ([8.9, 8.8, 8.7], ''),  # a slow start
  ):
    divergence, said = Divergence(4000), []
    for n, loss in enumerate(losses, 1):
      for part in 0.2, -0.2:  # two records of 50 updates each
        record = {'step': 100 * n, 'loss': loss + part, 'steps': 50}
        said.append(divergence.add(record))
    assert what in divergence.message and bool(what) == bool(divergence.message)
    assert len([text for text in said if text]) == bool(what)


def test_a_record(monkeypatch):
  """A record covers the steps since the last record, without the time before resume().

  It waits for a step that was not skipped. Its rate is the one that was applied:
  skipped steps do not advance Equation 3, nor did those before a restart.
  """
  monkeypatch.setattr(time, 'perf_counter', itertools.count(step=0.5).__next__)
  skips = [{'step': 1, 'loss': 3.0}, {'step': 1, 'skipped_pairs': [7]}]
  skips.append({'step': 3, 'skipped_pairs': [7]})
  meter = Meter(lambda update: float(update), (2, 5), 11, 30, skips)
  meter.resume()
  assert meter.add(4, SKIPPED) is None
  expected = {'step': 5, 'epoch': 0.167, 'loss': 3.0, 'perplexity': math.exp(5.0 / 2)}
  expected |= {'learning_rate': 1.0, 'gradient_norm': 1.5, 'target_tokens': 2}
  assert meter.add(5, GOOD) == expected | {'steps': 3, 'skipped': 2, 'seconds': 1.0}
  assert meter.add(6, SKIPPED) is None and meter.add(7, GOOD) is None
  record = meter.add(8, SKIPPED)
  assert (record['loss'], record['steps'], record['skipped']) == (3.0, 3, 2)
  assert 'gradient_norm' not in record and record['learning_rate'] == 2.0
  assert meter.add(9, GOOD) is None
  assert meter.add(9, GOOD, due=True)['target_tokens'] == 4
  huge = GOOD._replace(negative_log_likelihood=1e5)
  assert meter.add(11, huge)['perplexity'] == math.exp(300), 'the last step is due'


def record(step: int) -> dict:
  return {'step': step, 'loss': 1.5, 'target_tokens': 10, 'steps': 1, 'seconds': 0.5}


def test_what_a_user_reads(tmp_path: pathlib.Path, monkeypatch, capsys):
  monkeypatch.setattr(time, 'perf_counter', itertools.count(step=60).__next__)
  monkeypatch.setattr(metrics, 'TIMED', 2)
  run = Run(tmp_path)
  with Log(run, 4, 9) as log:
    log.begin()
    for step in 5, 6, 7, 8:
      log.advance({**record(step), 'seconds': 100.0, 'steps': 2} if step == 6 else None)
    log.log_checkpoint(6)
  assert capsys.readouterr().err == (
    'going on from step 4: the first step begins after 60 s\n'
    'step 6/9 loss 1.5000 0 target tokens/s, 2 min left\n'
    'the updates will take about 5 min in all\n'
    'step 6: checkpoint saved\n'
  )
  assert run.records()[1:] == [{'step': 6, 'saved': True}]


@pytest.mark.parametrize('checkpoint', [3, 0])
def test_records_and_events_are_cut_back_on_resume(checkpoint: int, tmp_path):
  """Killed while it wrote a line, with a checkpoint or without one."""
  run = Run(tmp_path)
  lines = ''.join(json.dumps(record(step)) + '\n' for step in range(1, 6))
  run.metrics.write_text(lines + '{"step": 6, "lo')
  with Log(run, checkpoint, 9) as log:
    for step in range(checkpoint + 1, 10):
      log.advance(record(step))
    log.show(9, [('one', 'eins', 'ein')])
  assert [r['step'] for r in run.records() if 'saved' not in r] == [*range(1, 10)]
  assert run.newest_saved() == checkpoint, 'though its process did not say so'
  (path,) = (tmp_path / 'events').iterdir()
  content, events = path.read_bytes(), []
  while content:
    (length,) = struct.unpack('<Q', content[:8])
    events.append(Event.FromString(content[12 : 12 + length]))
    content = content[16 + length :]
  _, begin, *events, shown = events
  assert shown.step == 9 and 'translation: eins' in str(shown.summary)
  assert (begin.step, begin.session_log.status) == (checkpoint + 1, 1)
  for step, event in enumerate(events, checkpoint + 1):
    shown = {value.tag: value.simple_value for value in event.summary.value}
    expected = record(step) | {'target_tokens_per_second': 20}
    assert {'step': event.step} | shown == expected
