"""What `pip install .` installs."""

import importlib.metadata
import pathlib
import subprocess
import sys
import tomllib
import zipfile

import pytest

from transformer_jax.machine.errors import EXTRAS

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def test_requirements_are_the_core_and_all_extras():
  """But those that need another build of JAX. The lock names no host."""
  extras = PROJECT['optional-dependencies'].values()
  extras = [extra for extra in extras if not any('jax[' in one for one in extra)]
  lists = [PROJECT['dependencies'], *extras]
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  assert lines[1:] == [requirement for one in lists for requirement in one]
  assert '://' not in (ROOT / 'requirements.lock').read_text()


def test_extras_bring_the_modules_that_errors_name():
  installed = importlib.metadata.packages_distributions()
  for module in EXTRAS.keys() & installed.keys():
    extra = PROJECT['optional-dependencies'][EXTRAS[module]]
    brought = {requirement.partition('>=')[0].lower() for requirement in extra}
    assert {name.lower() for name in installed[module]} & brought, module


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data_alone(tmp_path: pathlib.Path):
  pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', f'--wheel-dir={tmp_path}']
  done = subprocess.run([*pip, str(ROOT)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  (wheel,) = tmp_path.iterdir()
  names = set(zipfile.ZipFile(wheel).namelist())
  package = [*(ROOT / 'transformer_jax').rglob('*.*')]
  files = {str(p.relative_to(ROOT)) for p in package if p.parent.name != '__pycache__'}
  assert {name for name in names if '.dist-info/' not in name} == files
