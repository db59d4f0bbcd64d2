"""The whole way by the commands a user gives, and a run that is cut off on the way."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading

import jax
import ml_collections
import numpy as np
import pytest

from configs import quickstart
from toy.runs import state_shapes, untimed
from toy.task import SETTINGS, TINY, write_raw
from transformer_jax.data import card, preparing
from transformer_jax.machine import provenance
from transformer_jax.model import build
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint
from transformer_jax.training.train import train

ROOT = pathlib.Path(__file__).parents[1]
STEPS, KILLED = SETTINGS['train_steps'], 100


class Commands:
  """scripts.NAME as a user starts them, below one folder, with a cache of their own."""

  def __init__(self, folder: pathlib.Path):
    self.folder, self.workdir = folder, folder / 'run'
    self.data = f'--data_dir={folder / "data"}'
    self.config = ['--config=configs/quickstart.py', self.data]
    self.config += [f'--config.{key}={value}' for key, value in SETTINGS.items()]
    self.train = ['train', f'--workdir={self.workdir}', f'--raw_dir={folder / "raw"}']
    self.train += self.config
    self._environment = os.environ | {'XDG_CACHE_HOME': str(folder / 'cache')}
    self._environment.pop('JAX_NUM_CPU_DEVICES', None)
    self._environment.pop('JAX_DISABLE_MOST_OPTIMIZATIONS', None)

  def start(
    self,
    name: str,
    *options: str,
    stdin: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
  ) -> subprocess.Popen:
    return subprocess.Popen(
      [sys.executable, '-m', f'scripts.{name}', *options],
      cwd=ROOT,
      env=self._environment,
      stdin=stdin,
      stdout=subprocess.PIPE,
      stderr=stderr,
    )

  def on_terminal(self, name: str, *options: str, text: bytes) -> tuple[str, str]:
    """Its stderr is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('4H', 24, 80, 0, 0))
    with self.start(name, *options, stderr=theirs) as process:
      os.close(theirs)
      process.stdin.write(text)
      process.stdin.close()
      shown = b''
      with contextlib.suppress(OSError):  # EIO: it has ended
        while some := os.read(ours, 10_000):
          shown += some
      out = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0, shown
    return out, shown.decode()

  def __call__(self, name: str, *options: str, text: bytes = b'') -> tuple[str, str]:
    process = self.start(name, *options)
    out, err = (stream.decode() for stream in process.communicate(text))
    assert process.returncode == 0, err
    return out, err


@pytest.mark.slow
def test_prepare_train_kill_resume_evaluate_translate(tmp_path: pathlib.Path):
  command = Commands(tmp_path)
  raw = write_raw(tmp_path / 'raw', {'train': 6000, 'dev': 60, 'test': 100})
  kill_after_checkpoint(command)
  out, err = command('train', f'--workdir={command.workdir}', command.data)
  assert f'going on from step {KILLED}' in err and f'step {STEPS}/{STEPS}' in err
  check_metrics(command.workdir)
  out, _ = command('evaluate', f'--workdir={command.workdir}', command.data)
  check_result(command, raw, out)
  check_greedy(command)
  check_pipe(command, raw)
  check_prompt(command)


def kill_after_checkpoint(command: Commands) -> None:
  """Starts to train and is killed after step KILLED, without a chance to tidy up."""
  process = command.start(*command.train)
  seen = []
  for line in process.stderr:
    seen.append(line.decode())
    if line.startswith(f'step {KILLED + 50}/'.encode()):
      break
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL, ''.join(seen)
  assert max(r['step'] for r in Run(command.workdir).records()) > KILLED
  with (command.workdir / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 2')  # what a kill in the middle of a write would leave


def check_metrics(workdir: pathlib.Path) -> None:
  """Each step's tokens once, as if the run had never been killed."""
  log = [r for r in Run(workdir).records() if 'loss' in r]
  assert [r['step'] for r in log] == list(range(50, STEPS + 1, 50))
  assert sum(r['steps'] for r in log) == STEPS
  assert all(r['target_tokens'] > 45 * 900 for r in log)
  dev = [r['step'] for r in Run(workdir).records() if 'dev_perplexity' in r]
  assert dev == list(range(100, STEPS + 1, 100))
  assert log[-1]['loss'] < log[0]['loss'] / 2


def check_greedy(command: Commands) -> None:
  """A flag of evaluate's is in the result, and leaves the run's config as it is."""
  path = command.workdir / 'result.json'
  before = Result.read(path)
  command('evaluate', f'--workdir={command.workdir}', command.data, '--beam=1')
  after = Result.read(path)
  assert after.beam == 1 != before.beam and after.config == before.config


def check_result(command: Commands, raw: pathlib.Path, out: str) -> None:
  result = Result.read(command.workdir / 'result.json')
  assert (result.task, result.split, result.step) == ('translation', 'test', STEPS)
  assert result.averaged == [STEPS - 100, STEPS]
  assert result.sacrebleu.signature.startswith('nrefs:1|case:mixed|')
  assert f'sacrebleu {result.sacrebleu.score:.2f}' in out
  assert min(result.sacrebleu.score, result.paper_bleu.score) > 90
  assert 1 < result.dev_perplexity < 1.3
  tokens = sum(r.get('target_tokens', 0) for r in Run(command.workdir).records())
  assert result.target_tokens_seen == tokens and result.wall_seconds > 0
  assert result.corpus == card.read_card(command.folder / 'data' / 'toy')['identity']
  assert result.training_commit == result.commit == provenance.commit()
  assert result.config == json.loads((command.workdir / 'config.json').read_text())
  _, params = build.architecture(ml_collections.ConfigDict(result.config))
  assert result.parameters == sum(x.size for x in jax.tree.leaves(params))
  written = pathlib.Path(out.splitlines()[-1])
  assert Result.read(written.with_suffix('.json')) == result
  translations = written.read_text(encoding='utf-8').splitlines()
  references = (raw / 'test.de').read_text(encoding='utf-8').splitlines()
  right = sum(a == b for a, b in zip(translations, references, strict=True))
  assert right > 70


def check_pipe(command: Commands, raw: pathlib.Path) -> None:
  """As many lines as came in, whatever is in them, on stdout alone."""
  lines = (raw / 'test.en').read_bytes().splitlines()[:5]
  odd = [b'', b'one\x00two', b'caf\xe9', b'a\xe2\x80\xa8b', b'one two\r']
  odd.append(b'nine ' * 3000)
  workdir = f'--workdir={command.workdir}'
  out, err = command('translate', workdir, text=b'\n'.join(lines + odd) + b'\n')
  found = out.split('\n')
  assert len(found) == len(lines + odd) + 1 and found[-1] == ''
  assert found[5] == '' and found[9] == 'zwei eins'
  assert '1 lines were cut' in err and '%|' not in err
  options = workdir, '--nbest=5', '--scores'  # more than the beam
  out, shown = command.on_terminal('translate', *options, text=b'\nfour five')
  assert re.search(r'100%\|█+\| (\d+)/\1 \[', shown) and '%|' not in out
  scored = [line.split('\t') for line in out.splitlines()]
  assert scored[:5] == [['1', '0.0000', ''], *[['1', '-inf', '']] * 4]
  assert scored[5][2] == 'fünf vier' and {number for number, *_ in scored[5:]} == {'2'}
  scores = [float(score) for _, score, _ in scored[5:]]
  assert len(scores) == 5 and scores == sorted(scores, reverse=True)
  assert all(map(math.isfinite, scores)), 'the beam is as wide as what is asked for'
  process = command.start('translate', workdir)
  process.stdout.close()  # as `| head` does
  assert process.communicate(b'one\n')[1] == b'' and process.returncode == 0


def check_prompt(command: Commands) -> None:
  """A line that is typed is translated at once, until Ctrl-D."""
  keyboard, terminal = pty.openpty()
  options = f'--workdir={command.workdir}', '--nbest=2'
  with command.start('translate', *options, stdin=terminal) as process:
    found = []
    late = threading.Timer(300, process.kill)  # else a missing flush would hang this
    late.start()
    try:
      for typed in (b'four five\n', b'\n', b'one two\n'):
        os.write(keyboard, typed)
        found += [process.stdout.readline().decode().split('\t') for _ in 'ab']
      os.write(keyboard, b'\x04')
      out, err = (stream.decode() for stream in process.communicate())
    finally:
      late.cancel()
      process.kill()
  assert process.returncode == 0 and out == '', err
  assert [number for number, _ in found] == ['1', '1', '2', '2', '3', '3']
  assert [text for _, text in found[::2]] == ['fünf vier\n', '\n', 'zwei eins\n']
  assert err.splitlines() == [f'Loading {command.workdir}; Ctrl-D ends.', '> > > > ']
  os.close(keyboard)
  os.close(terminal)


# In this process, on eight devices


def tiny_config() -> ml_collections.ConfigDict:
  config = quickstart.get_config()
  with config.unlocked():
    config.update_from_flattened_dict(TINY)
  config.model.P_drop = 0.2
  config.update({'slices': 8, 'train_steps': 6})
  config.update({'checkpoint_every_steps': 2, 'log_every_steps': 1})
  return config


def flip_a_bit(folder: pathlib.Path) -> str:
  """In the largest file of a checkpoint's parameters; returns its name."""
  files = [path for path in folder.rglob('*') if path.is_file()]
  path = max(files, key=lambda path: path.stat().st_size)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  return path.name


def forget_dev(run: Run, step: int) -> None:
  """As if killed between the checkpoint and the dev perplexity of a step."""
  lines = run.metrics.read_text().splitlines(keepends=True)
  kept = [x for x in lines if not x.startswith(f'{{"step": {step}, "dev_perplexity"')]
  assert len(kept) == len(lines) - 1
  run.metrics.write_text(''.join(kept))


@pytest.mark.slow
def test_interrupted_equals_straight(tmp_path: pathlib.Path, capsys):
  """Bit for bit: killed while saving 6, 4 damaged since, so gone on with from 2.

  Dev perplexities that went missing are measured, though all steps are done.
  """
  raw = write_raw(tmp_path / 'raw', {'train': 60, 'dev': 1, 'test': 1})
  config, corpus = tiny_config(), tmp_path / 'toy'
  preparing.prepare(config, tmp_path, raw)
  straight, broken = Run(tmp_path / 'straight'), Run(tmp_path / 'broken')
  train(config, straight.workdir, corpus)

  shutil.copytree(straight.workdir, broken.workdir)
  (broken.checkpoints / '6').rename(broken.checkpoints / '6.partial')
  damaged = flip_a_bit(broken.checkpoints / '4' / 'params')
  forget_dev(broken, 2)
  capsys.readouterr()
  train(config, broken.workdir, corpus)
  printed = capsys.readouterr()
  assert damaged in printed.out and 'trying the one before' in printed.out
  assert 'going on from step 2' in printed.err

  for step in (2, 4, 6):
    ours, theirs = (
      checkpoint.restore(run.checkpoints, step, *state_shapes(config))
      for run in (broken, straight)
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
  assert untimed(broken) == untimed(straight)
  assert [r['step'] for r in untimed(broken) if 'loss' in r] == [1, 2, 3, 4, 5, 6]
  forget_dev(broken, 6)
  train(config, broken.workdir, corpus)
  assert 'compiled' not in capsys.readouterr().err
  assert untimed(broken) == untimed(straight)
  train(config, broken.workdir, corpus)
  assert 'has 6 of 6 steps: nothing to do' in capsys.readouterr().out
