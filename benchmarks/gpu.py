"""Measures on an NVIDIA GPU with room, such as an H200, what no CPU can measure.

  python -m benchmarks.gpu --output=DIR

The most valuable comes first. All take some 25 minutes (an estimate: we have not run
them). Each measurement is a process, which writes DIR/NAME.json and a line of
DIR/README.md as it ends. What is in DIR already is not measured again.
--rehearse takes tiny models, on any device, to see that every command runs.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable

from benchmarks import tries
from transformer_jax.machine import cli, files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run

FLAGS = cli.Flags(__doc__)
OUTPUT = FLAGS.path('output', None, 'Folder to write.', required=True)
ONLY = FLAGS.list('only', [], 'Names of measurements; default: all.')
REHEARSE = FLAGS.bool('rehearse', False, 'Measure tiny models, on any device.')
ROOT = pathlib.Path(__file__).parents[1]
RIVALS = 'huggingface.compiled,huggingface'
SECONDS = 400  # that a process may take: one that hangs must not stop the others
FAULTS = subprocess.SubprocessError, ValueError, LookupError, xml.ParseError
TINY = {'N': 1, 'd_model': 64, 'd_ff': 64, 'h': 2, 'd_k': 32, 'd_v': 32}


def model(sizes: dict[str, int]) -> list[str]:
  """Returns the flags that give a config's model these sizes."""
  return [f'--config.model.{name}={size}' for name, size in sizes.items()]


def run(*command: str, platform: str | None = None) -> None:
  """Runs `python -m COMMAND`; raises SubprocessError if it fails or takes too long."""
  environment = os.environ | ({'JAX_PLATFORMS': platform} if platform else {})
  python = [sys.executable, '-m', *command]
  subprocess.run(python, cwd=ROOT, env=environment, check=True, timeout=SECONDS)


def benchmark(output: pathlib.Path, config: str, *flags: str) -> str:
  """Runs scripts.benchmark; returns each program's rate."""
  size = ['--rows=784', '--length=32', '--steps=60', '--repeats=3']
  if '--what=decoding' in flags:  # as much text as newstest2014, in batches of 32,768
    size = ['--rows=1024', '--length=25', '--sentences=3003', '--beams=4']
  if REHEARSE.value:
    size = ['--rows=8', '--length=6', '--repeats=1', *model(TINY)]
  named = f'--config=configs/{config}.py:en-de', f'--output={output}'
  run('scripts.benchmark', *named, *size, *flags)
  result = json.loads(output.read_bytes())
  alone = lambda timed: ' alone' if 'latency' in timed else ''
  rates = [
    f'{name}{alone(timed)} {column["target_tokens_per_second"]:,.0f}'
    for timed in result.get('runs', [result])
    for name, column in timed['columns'].items()
  ]
  if start := result.get('start'):
    rates.append(f'{start["warm"]["peak_bytes"] / 1e9:.1f} GB')
  return 'target tokens/s: ' + ', '.join(rates)


def test(output: pathlib.Path, which: str = 'not slow') -> str:
  """Runs tests of kernels on the GPU, by their marker; writes the outcome of each."""
  report, platform = output.with_suffix('.xml'), 'cpu' if REHEARSE.value else 'cuda'
  chosen = ['-m', which, *(['-k', 'smoothed'] if REHEARSE.value else [])]
  options = '-q', '-p', 'no:xdist', f'--junitxml={report}', *chosen
  outcomes: dict[str | None, str] = {}
  report.unlink(missing_ok=True)  # of an earlier run
  try:
    run('pytest', 'tests/model/test_ops_gpu.py', *options, platform=platform)
  finally:
    # There is no report if pytest is missing or was killed. The next call then tests.
    if report.exists():
      cases = xml.parse(report).getroot().iter('testcase')
      outcome = lambda case: next((child.tag for child in case), 'passed')
      outcomes = {case.get('name'): outcome(case) for case in cases}
      files.write_json(output, outcomes)
  return f'{[*outcomes.values()].count("passed")} of {len(outcomes)} passed'


def losses(output: pathlib.Path) -> str:
  """Trains base's model twice on the embedded corpus; writes both series of losses."""
  sizes = {'N': 6, 'd_model': 512, 'd_ff': 2048, 'h': 8, 'd_k': 64, 'd_v': 64}
  steps, tokens, every = (4, 200, 2) if REHEARSE.value else (200, 25000, 20)
  result = {}
  with tempfile.TemporaryDirectory() as folder:  # for checkpoints of 0.8 GB
    for kernels in 'auto', 'plain':
      workdir = pathlib.Path(folder, kernels)
      flags = [f'--config.train_steps={steps}', f'--config.tokens_per_batch={tokens}']
      flags += [f'--config.log_every_steps={every}', f'--config.kernels={kernels}']
      flags += [f'--config.checkpoint_every_steps={steps}', '--config.model.P_drop=0.1']
      flags += model(TINY if REHEARSE.value else sizes)
      flags += ['--config.max_shapes=1'] if REHEARSE.value else []
      data = f'--data_dir={folder}/data'
      run(
        'scripts.train',
        '--config=configs/quickstart.py',
        f'--workdir={workdir}',
        data,
        *flags,
      )
      records = [r for r in Run(workdir).records() if 'loss' in r]
      result[kernels] = [[r['step'], r['loss']] for r in records]
  files.write_json(output, result)
  last = {kernels: series[-1][1] for kernels, series in result.items()}
  return f'after {steps} updates {last["auto"]:.4f} with kernels, {last["plain"]:.4f}'


def measurements() -> dict[str, Callable[[pathlib.Path], str]]:
  """Returns what is measured, the most valuable first."""
  kernels = [] if REHEARSE.value else ['--kernels']  # a CPU has none
  # 'all' has every change but three tiles.
  every = f'--try={"tiles3,all" if REHEARSE.value else ",".join(tries.TRIES)}'
  return {
    'tests': test,
    'base': lambda output: benchmark(output, 'base', *kernels),
    'losses': losses,
    'decoding': lambda output: benchmark(output, 'base', '--what=decoding'),
    'big': lambda output: benchmark(output, 'big', *kernels),
    'base.tries': lambda output: benchmark(output, 'base', every),
    'base.rivals': lambda output: benchmark(output, 'base', f'--rivals={RIVALS}'),
    'big.tries': lambda output: benchmark(output, 'big', '--try=all'),
    'tests.slow': lambda output: test(output, 'slow'),
  }


def main(argv: list[str]) -> None:
  """Measures; ends with exit code 1 if a measurement failed."""
  FLAGS.parse(argv)
  if unknown := ','.join(sorted({*ONLY.value} - measurements().keys())):
    raise UserError(f'--only={unknown}: there are {", ".join(measurements())}')
  folder, failed = OUTPUT.value.absolute(), 0
  folder.mkdir(parents=True, exist_ok=True)
  for name, measure in measurements().items():
    output = folder / f'{name}.json'
    if output.exists() or (ONLY.value and name not in ONLY.value):
      continue
    begin = time.monotonic()
    try:
      outcome = measure(output)
    except (*FAULTS, OSError) as error:
      outcome, failed = f'failed: {error}', 1
    line = f'- {name}, {time.monotonic() - begin:.0f} s: {outcome}'
    print(line, flush=True)
    with (folder / 'README.md').open('a') as readme:
      readme.write(line + '\n')
  if failed:
    sys.exit(1)


if __name__ == '__main__':
  cli.run(main)
