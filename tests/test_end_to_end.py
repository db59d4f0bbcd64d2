"""From text to BLEU by our commands, with a run that is killed."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from toy.config import tiny
from toy.corpus import write_raw
from toy.runs import SETTINGS, TINY, state_shapes, untimed
from transformer_jax.data.corpus import Corpus, read_card
from transformer_jax.prepare import prepare
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.tasks import LINES
from transformer_jax.training import checkpoint
from transformer_jax.training.checkpoint import finished_steps
from transformer_jax.training.loop import train

ROOT = pathlib.Path(__file__).parents[1]
STEPS = SETTINGS['train_steps']


class Commands:
  """Starts scripts.NAME as a user does, with folders and a cache of their own."""

  def __init__(self, folder: pathlib.Path):
    self.folder, self.workdir = folder, folder / 'run'
    self.run = [f'--workdir={self.workdir}', f'--data_dir={folder / "data"}']
    self.train = ['--config=configs/quickstart.py', f'--raw_dir={folder / "raw"}']
    self.train += [f'--config.{key}={value}' for key, value in SETTINGS.items()]
    self._environment = os.environ | {'XDG_CACHE_HOME': str(folder / 'cache')}
    for name in ('JAX_NUM_CPU_DEVICES', 'JAX_DISABLE_MOST_OPTIMIZATIONS'):
      self._environment.pop(name, None)

  def start(self, name: str, *options: str) -> subprocess.Popen:
    command = [sys.executable, '-m', f'scripts.{name}', *options]
    pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
    return subprocess.Popen(command, cwd=ROOT, env=self._environment, **pipes)

  def __call__(self, name: str, *options: str, text: bytes = b'') -> tuple[str, str]:
    process = self.start(name, *options)
    out, err = (stream.decode() for stream in process.communicate(text))
    assert process.returncode == 0, err
    return out, err


@pytest.mark.slow
def test_prepare_train_kill_resume_evaluate_translate(tmp_path: pathlib.Path):
  command = Commands(tmp_path)
  raw = write_raw(tmp_path / 'raw', 6000, 60, 100, order=-1)
  killed = kill_after_checkpoint(command)
  _, err = command('train', *command.run)
  assert f'going on from step {killed}' in err and f'step {STEPS}/{STEPS}' in err
  check_metrics(Run(command.workdir))
  out, _ = command('evaluate', *command.run)
  check_result(command, raw, out)
  command('evaluate', *command.run, '--beam=1')
  assert Result.read(command.workdir / 'result.json').beam == 1
  check_pipe(command, raw)


def kill_after_checkpoint(command: Commands) -> int:
  """Kills a training by SIGKILL after a checkpoint; returns the newest one's step."""
  run = Run(command.workdir)
  process = command.start('train', *command.run, *command.train)
  lines = []
  for line in process.stderr:
    lines.append(line.decode())
    if finished_steps(run.checkpoints):
      break
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL, ''.join(lines)
  with (command.workdir / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 2')  # what a kill in the middle of a write would leave
  return finished_steps(run.checkpoints)[-1]


def check_metrics(run: Run) -> None:
  """Checks that records count each step once, as if the run had never been killed."""
  log = [r for r in run.records() if 'loss' in r]
  assert [r['step'] for r in log] == list(range(50, STEPS + 1, 50))
  assert sum(r['steps'] for r in log) == STEPS
  dev = [r['step'] for r in run.records() if 'dev_perplexity' in r]
  assert dev == list(range(100, STEPS + 1, 100))
  assert log[-1]['loss'] < log[0]['loss'] / 2


def check_result(command: Commands, raw: pathlib.Path, out: str) -> None:
  result = Result.read(command.workdir / 'result.json')
  assert (result.task, result.split, result.step) == ('translation', 'test', STEPS)
  assert result.averaged == [STEPS - 100, STEPS] and result.search_seconds > 0
  assert f'sacrebleu {result.scores["sacrebleu"].score:.2f}' in out
  assert min(one.score for one in result.scores.values()) > 90
  assert 1 < result.dev_perplexity < 1.3
  assert result.corpus == read_card(command.folder / 'data' / 'toy').identity
  assert result.config == json.loads((command.workdir / 'config.json').read_text())
  written = pathlib.Path(out.splitlines()[-1])
  assert Result.read(written.with_suffix('.json')) == result
  translations = written.read_text().splitlines()
  references = (raw / 'test.de').read_text().splitlines()
  right = sum(a == b for a, b in zip(translations, references, strict=True))
  assert right > 70


def check_pipe(command: Commands, raw: pathlib.Path) -> None:
  """Checks that any text gives as many lines on stdout, and nothing else there."""
  lines = (raw / 'test.en').read_bytes().splitlines()[:5]
  odd = [b'', b'one\x00two', b'caf\xe9', b'a\xe2\x80\xa8b', b'one two\r']
  odd.append(b'nine ' * 3000)
  workdir = command.run[0]
  out, err = command('translate', workdir, text=b'\n'.join(lines + odd) + b'\n')
  translations = out.split('\n')
  assert len(translations) == len(lines + odd) + 1 and translations[-1] == ''
  assert translations[5] == '' and translations[9] == 'zwei eins'
  assert 'pieces that fit: 1 line' in err
  process = command.start('translate', workdir)
  process.stdout.close()  # as `| head` does
  assert process.communicate(b'one\n')[1] == b'' and process.returncode == 141


@pytest.mark.slow
def test_interrupted_equals_straight(tmp_path: pathlib.Path, capsys):
  """Bit for bit: killed while saving step 6, 4 damaged since, so it goes on from 2."""
  raw = write_raw(tmp_path / 'raw', 60, 1, 1)
  steps = {'train_steps': 6, 'checkpoint_every_steps': 2, 'log_every_steps': 1}
  others = {'slices': 8, 'extra_length': 0, 'patience': 1}  # it does not end this run
  config = tiny(**TINY | steps | others)
  corpus = tmp_path / 'toy'
  prepare.ensure(config, LINES, tmp_path, raw)
  straight, broken = Run(tmp_path / 'straight'), Run(tmp_path / 'broken')
  train(config, straight.workdir, Corpus.open(corpus))

  shutil.copytree(straight.workdir, broken.workdir)
  (broken.checkpoints / '6').rename(broken.checkpoints / '6.partial')
  files = [p for p in (broken.checkpoints / '4' / 'params').rglob('*') if p.is_file()]
  largest = max(files, key=lambda path: path.stat().st_size)
  content = bytearray(largest.read_bytes())
  content[len(content) // 2] ^= 1
  largest.write_bytes(content)
  capsys.readouterr()
  train(config, broken.workdir, Corpus.open(corpus))
  printed = capsys.readouterr()
  assert largest.name in printed.err and 'going on from step 2' in printed.err

  shapes = state_shapes(config)
  for step in (2, 4, 6):
    folders = broken.checkpoints, straight.checkpoints
    states = (checkpoint.restore(folder, step, *shapes) for folder in folders)
    jax.tree.map(np.testing.assert_array_equal, *states)
  assert untimed(broken) == untimed(straight)
