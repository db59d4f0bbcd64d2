"""All that waits for a GPU runs, with tiny models on this CPU."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMES = 'tests', 'base', 'losses', 'decoding', 'base.tries'  # others are as these


@pytest.mark.slow
def test_a_rehearsal(tmp_path: pathlib.Path):
  """Each measurement leaves its JSON and a line."""
  command = [sys.executable, '-m', 'benchmarks.gpu', '--rehearse']
  command += [f'--output={tmp_path}', f'--only={",".join(NAMES)}']
  subprocess.run(command, cwd=ROOT, check=True)
  results = {
    name: json.loads((tmp_path / f'{name}.json').read_bytes()) for name in NAMES
  }
  assert {'ours', 'tiles3', 'all'} <= results['base.tries']['columns'].keys()
  with_kernels, without = results['losses'].values()
  assert [step for step, _ in with_kernels] == [2, 4] and with_kernels == without
  lines = (tmp_path / 'README.md').read_text().splitlines()
  assert [line.split(',')[0] for line in lines] == [f'- {name}' for name in NAMES]
