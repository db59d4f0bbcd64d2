"""What `pip install .` installs, and what its core does without the extras."""

import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from toy.corpus import write_raw
from toy.runs import TINY
from transformer_jax.machine.errors import EXTRAS

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def name_of(requirement: str) -> str:
  return requirement.partition('>=')[0].lower()


def test_requirements_are_the_core_and_all_extras():
  """But those that need another build of JAX."""
  extras = PROJECT['optional-dependencies'].values()
  extras = [extra for extra in extras if not any('jax[' in one for one in extra)]
  lists = [PROJECT['dependencies'], *extras]
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  assert lines[1:] == [requirement for one in lists for requirement in one]


def test_extras_bring_the_modules_that_errors_name():
  installed = importlib.metadata.packages_distributions()
  for module in EXTRAS.keys() & installed.keys():
    brought = map(name_of, PROJECT['optional-dependencies'][EXTRAS[module]])
    assert {name.lower() for name in installed[module]} & {*brought}, module


HIDE = """
import importlib, json, sys
from transformer_jax.machine import cli, errors
sys.modules.update(dict.fromkeys(errors.EXTRAS))
"""
RUN = """
del sys.argv[0]
cli.run(importlib.import_module(f'scripts.{sys.argv[0]}').main)
"""
REFUSE = """
for command in json.loads(sys.argv[1]):
  try:
    with errors.report_user_errors():
      importlib.import_module(f'scripts.{command[0]}').main(command)
  except SystemExit as end:
    print(end.code)
"""


def without_extras(code: str, *arguments: str, text: str = '') -> str:
  """Returns what a program prints that finds no module of an extra."""
  done = subprocess.run(
    [sys.executable, '-c', HIDE + code, *arguments],
    cwd=ROOT,
    input=text,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def extra_of(line: str) -> str:
  """Returns the extra that a line names for the module that it begins with."""
  pattern = r"(\w+) is not installed: pip install -e '.\[(\w+)\]'"
  module, extra = re.match(pattern, line).groups()
  assert EXTRAS[module] == extra
  return extra


@pytest.mark.slow
def test_the_core_trains_evaluates_translates_and_names_extras(tmp_path: pathlib.Path):
  raw = write_raw(tmp_path / 'raw', 100, 20, 20)
  (tmp_path / 'run').mkdir()
  data, workdir = f'--data_dir={tmp_path / "data"}', f'--workdir={tmp_path / "run"}'
  config = '--config=configs/quickstart.py', f'--raw_dir={raw}', data
  config += tuple(f'--config.{key}={value}' for key, value in TINY.items())
  assert 'd_model' in without_extras(RUN, 'describe', *config[:1])
  without_extras(RUN, 'train', workdir, *config)
  assert 'sacrebleu ' in without_extras(RUN, 'evaluate', workdir, data)
  assert without_extras(RUN, 'translate', workdir, text='one two\n').count('\n') == 1
  output = f'--output={tmp_path / "out"}'
  commands = [
    ['export', workdir, '--format=ctranslate2', output],
    ['survey_heads', workdir],
    ['plot_attention', workdir],
    ['report', str(tmp_path / 'run')],
    ['table1', output],
    ['sweep', '--rows=B1', output.replace('output', 'workdir'), '--submit=slurm'],
  ]
  commands[-1].append('--slurm=timeout_min=9')
  lines = without_extras(REFUSE, json.dumps(commands)).splitlines()
  assert [*map(extra_of, lines)] == ['export', *['report'] * 4, 'slurm']


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data_alone(tmp_path: pathlib.Path):
  source, built = tmp_path / 'source', tmp_path / 'built'
  source.mkdir()
  for name in ('pyproject.toml', 'LICENSE'):
    shutil.copy(ROOT / name, source / name)
  for name in ('configs', 'scripts', 'transformer_jax'):
    skip = shutil.ignore_patterns('__pycache__')
    shutil.copytree(ROOT / name, source / name, ignore=skip)
  before = {*source.rglob('*')}
  pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--wheel-dir', str(built)]
  done = subprocess.run([*pip, str(source)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert {*source.rglob('*')} == before  # no build/, which a later wheel would take
  (wheel,) = built.iterdir()
  names = set(zipfile.ZipFile(wheel).namelist())
  package = source / 'transformer_jax'
  files = {str(p.relative_to(source)) for p in package.rglob('*') if p.is_file()}
  assert {name for name in names if '.dist-info/' not in name} == files
