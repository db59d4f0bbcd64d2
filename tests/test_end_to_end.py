"""From text to BLEU by our commands, and from a killed run to the same parameters."""

import json
import os
import pathlib
import shutil
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
from transformer_jax.training.loop import train

ROOT = pathlib.Path(__file__).parents[1]
STEPS = SETTINGS['train_steps']


def command(folder: pathlib.Path, name: str, *options: str, text: bytes = b'') -> str:
  """Runs scripts.NAME as a user does, with a cache of its own; returns its stdout."""
  environment = os.environ | {'XDG_CACHE_HOME': str(folder / 'cache')}
  for variable in ('JAX_NUM_CPU_DEVICES', 'JAX_DISABLE_MOST_OPTIMIZATIONS'):
    environment.pop(variable, None)
  words = [sys.executable, '-m', f'scripts.{name}', f'--workdir={folder / "run"}']
  done = subprocess.run(
    [*words, *options], cwd=ROOT, env=environment, input=text, capture_output=True
  )
  assert done.returncode == 0, done.stderr.decode()
  return done.stdout.decode()


@pytest.mark.slow
def test_prepare_train_evaluate_translate(tmp_path: pathlib.Path):
  raw, workdir = tmp_path / 'raw', tmp_path / 'run'
  write_raw(raw, 6000, 60, 100, order=-1)
  data = f'--data_dir={tmp_path / "data"}'
  config = [f'--config.{key}={value}' for key, value in SETTINGS.items()]
  config.append('--config=configs/quickstart.py')
  command(tmp_path, 'train', data, f'--raw_dir={raw}', *config)
  out = command(tmp_path, 'evaluate', data)
  result = Result.read(workdir / 'result.json')
  assert (result.task, result.split, result.step) == ('translation', 'test', STEPS)
  assert result.averaged == [STEPS - 100, STEPS] and result.search_seconds > 0
  assert f'sacrebleu {result.scores["sacrebleu"].score:.2f}' in out
  assert min(one.score for one in result.scores.values()) > 90
  assert 1 < result.dev_perplexity < 1.3
  assert result.corpus == read_card(tmp_path / 'data' / 'toy').identity
  assert result.config == json.loads((workdir / 'config.json').read_text())
  written = pathlib.Path(out.splitlines()[-1])
  assert Result.read(written.with_suffix('.json')) == result
  translations = written.read_text().splitlines()
  references = (raw / 'test.de').read_text().splitlines()
  right = sum(a == b for a, b in zip(translations, references, strict=True))
  assert right > 70
  command(tmp_path, 'evaluate', data, '--beam=1')
  assert Result.read(workdir / 'result.json').beam == 1
  # Any text gives as many lines on stdout, and nothing else there.
  lines = (raw / 'test.en').read_bytes().splitlines()[:5]
  odd = [b'', b'one\x00two', b'caf\xe9', b'a\xe2\x80\xa8b', b'one two\r']
  odd.append(b'nine ' * 3000)
  out = command(tmp_path, 'translate', text=b'\n'.join(lines + odd) + b'\n')
  translations = out.split('\n')
  assert len(translations) == len(lines + odd) + 1 and translations[-1] == ''
  assert translations[5] == '' and translations[9] == 'zwei eins'


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
