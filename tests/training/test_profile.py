"""`train --profile`: the trace has the updates that it names, and their program."""

import gzip
import json
import pathlib

import pytest

from toy.runs import Toy, finished

pytestmark = pytest.mark.slow


def test_the_trace_has_the_training_steps(tmp_path: pathlib.Path):
  folder = tmp_path / 'trace'
  toy = Toy(tmp_path, train_steps=9, checkpoint_every_steps=9)
  output = finished(toy.train(f'--profile={folder}')).output
  assert f'steps 2 to 6 are traced in {folder}' in output
  (trace,) = folder.rglob('*.trace.json.gz')
  events = json.loads(gzip.decompress(trace.read_bytes()))['traceEvents']
  steps = [e['args']['step_num'] for e in events if e.get('name') == 'train']
  assert sorted(map(int, steps)) == [2, 3, 4, 5, 6]
  (plane,) = folder.rglob('*.xplane.pb')  # which xprof reads
  assert b'train_step' in plane.read_bytes()
