"""From text to BLEU by our commands."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from toy.corpus import write_raw
from toy.runs import SETTINGS
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run

ROOT = pathlib.Path(__file__).parents[1]
STEPS = SETTINGS['train_steps']


# Runs commands without the modules of extras.
PROGRAM = """
import importlib, json, sys
from transformer_jax.machine import errors
sys.modules.update(dict.fromkeys(errors.EXTRAS))
for name, *options in json.loads(sys.argv[1]):
  try:
    with errors.report_user_errors():
      importlib.import_module(f'scripts.{name}').main([name, *options])
  except SystemExit as end:
    print(end.code)
"""


@pytest.mark.slow
def test_prepare_train_evaluate_translate(tmp_path: pathlib.Path):
  """Without the modules of extras, which other commands name."""
  raw, run, text = (tmp_path / name for name in ('raw', 'run', 'text'))
  write_raw(raw, 6000, 60, 100, order=-1)
  text.write_bytes(b'\none\x00two\ncaf\xe9\na\xe2\x80\xa8b\none two\r\n')
  data, workdir = f'--data_dir={tmp_path / "data"}', f'--workdir={run}'
  config = ['--config=configs/quickstart.py', f'--raw_dir={raw}', data]
  config += [f'--config.{key}={value}' for key, value in SETTINGS.items()]
  slurm = '--submit=slurm', '--slurm=timeout_min=9'
  commands = [
    ['train', workdir, *config],
    ['evaluate', workdir, data],
    ['translate', workdir, f'--input={text}'],
    ['describe', '--config=configs/quickstart.py'],
    ['export', workdir, '--format=ctranslate2', '--output=x'],
    ['survey_heads', workdir],
    ['plot_attention', workdir],
    ['report', str(run)],
    ['table1', '--output=x'],
    ['sweep', '--rows=B1', f'--workdir={tmp_path / "runs"}', *slurm],
  ]
  environment = os.environ | {'XDG_CACHE_HOME': str(tmp_path / 'cache')}
  for variable in ('JAX_NUM_CPU_DEVICES', 'JAX_DISABLE_MOST_OPTIMIZATIONS'):
    environment.pop(variable, None)
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, json.dumps(commands)],
    cwd=ROOT,
    env=environment,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  extras = re.findall(r"is not installed: pip install -e '.\[(\w+)\]'", done.stdout)
  assert extras == ['export', *['report'] * 4, 'slurm']
  assert 'd_model' in done.stdout
  result = Result.read(run / 'result.json')
  assert (result.task, result.split, result.step) == ('translation', 'test', STEPS)
  assert result.averaged == [STEPS - 100, STEPS] and result.search_seconds > 0
  assert min(one.score for one in result.scores.values()) > 90
  assert 1 < result.dev_perplexity < 1.3
  said = done.stdout.split('\n')
  assert any(f'sacrebleu {result.scores["sacrebleu"].score:.2f}' in x for x in said)
  at = said.index(str(result.translations(Run(run))))
  assert said[at + 1] == '' and said[at + 5] == 'zwei eins'
  translations = pathlib.Path(said[at]).read_text().splitlines()
  references = (raw / 'test.de').read_text().splitlines()
  right = sum(a == b for a, b in zip(translations, references, strict=True))
  assert right > 70
