"""What `pip install .` installs."""

import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data_alone(tmp_path: pathlib.Path):
  source, built = tmp_path / 'source', tmp_path / 'built'
  source.mkdir()
  for name in ('pyproject.toml', 'requirements.txt', 'LICENSE'):
    shutil.copy(ROOT / name, source / name)
  for name in ('configs', 'scripts', 'transformer_jax'):
    skip = shutil.ignore_patterns('__pycache__')
    shutil.copytree(ROOT / name, source / name, ignore=skip)
  pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--wheel-dir', str(built)]
  done = subprocess.run([*pip, str(source)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  (wheel,) = built.iterdir()
  names = set(zipfile.ZipFile(wheel).namelist())
  package = source / 'transformer_jax'
  files = {str(p.relative_to(source)) for p in package.rglob('*') if p.is_file()}
  assert {name for name in names if '.dist-info/' not in name} == files
