"""JAX's settings before it starts: flags, dtypes, the cache of compiled programs."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from transformer_jax.machine import platform

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch) -> dict:
  """Returns the settings of JAX that a test makes; they have no effect."""
  before, settings = jax.config.jax_compilation_cache_dir, {}
  jax.config.update('jax_compilation_cache_dir', None)
  with monkeypatch.context() as patch:
    patch.setattr(jax.config, 'update', settings.__setitem__)
    yield settings
  jax.config.update('jax_compilation_cache_dir', before)


START = """
import jax, os
from transformer_jax.machine import cli, platform
{}
def main(argv):
  platform.set_deterministic()
  platform.start(8)
  print(os.environ['XLA_FLAGS'])
cli.run(main)
"""


@pytest.mark.parametrize(
  ('before', 'variables', 'message'),
  [
    ('', {'JAX_PLATFORMS': 'cuda'}, 'JAX cannot use cuda here'),
    ('', {'JAX_ENABLE_X64': '1'}, 'JAX_ENABLE_X64=True changes numbers'),
    ('jax.devices()', {'JAX_NUM_CPU_DEVICES': '2'}, 'JAX has started before'),
    ('jax.devices()', {'JAX_NUM_CPU_DEVICES': '1'}, ''),
    ('', {'JAX_NUM_CPU_DEVICES': '2'}, ''),
  ],
)
def test_what_jax_starts_with(before: str, variables: dict, message: str):
  """Several CPU devices without YNN may multiply wrongly (docs/eigen.md)."""
  done = subprocess.run(
    [sys.executable, '-c', START.format(before)],
    env=os.environ | {'XLA_FLAGS': '--xla_cpu_enable_fast_math=false'} | variables,
    capture_output=True,
    text=True,
  )
  assert done.returncode == (1 if message else 0) and message in done.stderr
  assert done.stderr.count('\n') == bool(message), done.stderr
  if not message:  # XLA knows the flags, and the user's stay
    assert done.stdout.split()[:2] == [
      '--xla_cpu_enable_fast_math=false',
      '--xla_gpu_deterministic_ops=true',
    ]


def test_compiled_programs_are_kept(
  tmp_path: pathlib.Path, monkeypatch, nothing_is_kept
):
  monkeypatch.setenv('XDG_CACHE_HOME', '')
  monkeypatch.setenv('HOME', str(tmp_path))
  platform.use_compilation_cache()
  cache = tmp_path / '.cache' / 'transformer_jax'
  assert nothing_is_kept == {'jax_compilation_cache_dir': str(cache)}
  assert cache.stat().st_mode & 0o777 == 0o700


def test_several_processes_on_gpus_keep_nothing(
  tmp_path: pathlib.Path, monkeypatch, nothing_is_kept, capsys
):
  """One would load its program while the others compile, and wait for ever."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(jax.distributed, 'is_initialized', lambda: True)
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  platform.use_compilation_cache()
  assert not nothing_is_kept and not [*tmp_path.iterdir()]
  assert 'JAX_COMPILATION_CACHE_DIR' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('cores', 'slices', 'count'), [(1, 8, 1), (6, 8, 4), (64, 8, 8), (3, 2, 2)]
)
def test_cpu_devices_divide_slices(cores, slices, count, monkeypatch, nothing_is_kept):
  """As many as cores allow; a number that the user has set is left alone."""
  for name in ('XLA_FLAGS', 'JAX_NUM_CPU_DEVICES'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(platform, 'cores', lambda: [*range(cores)])
  platform.use_cpu_cores(slices)
  assert nothing_is_kept.pop('jax_num_cpu_devices') == count
  monkeypatch.setenv('JAX_NUM_CPU_DEVICES', '3')
  platform.use_cpu_cores(slices)
  assert not nothing_is_kept


@pytest.mark.parametrize('vectors', [['avx512f'], ['amx_bf16'], ['avx512_bf16']])
def test_dtypes_of_products(monkeypatch, vectors: list[str]):
  """A CPU that multiplies bfloat16 decodes so, and never trains so."""
  monkeypatch.setattr(platform, 'processor', lambda: ('a chip', vectors))
  fast = vectors != ['avx512f']
  assert platform.training_dtype('auto') == np.float32
  assert platform.training_dtype('auto', 'gpu').name == 'bfloat16'
  assert platform.decoding_dtype('auto').name == ('bfloat16' if fast else 'float32')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('float32').name, dtype('bfloat16').name) == ('float32', 'bfloat16')


def test_the_commit_of_the_checkout(tmp_path: pathlib.Path, monkeypatch, capsys):
  """Clean, changed, none; a GIT_DIR of a hook is another's, and a refusal is told."""
  for name in [name for name in os.environ if name.startswith('GIT_')]:
    monkeypatch.delenv(name)
  who = '-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'commit.gpgsign=false'
  git = lambda *words: subprocess.run(
    ['git', *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
  ).stdout.strip()
  assert platform.commit(tmp_path) is None
  (tmp_path / 'a.py').write_text('1')
  git('init')
  git('add', '.')
  git('commit', '-m', 'a')
  monkeypatch.setenv('GIT_DIR', str(tmp_path / 'none'))
  head = platform.commit(tmp_path)
  monkeypatch.delenv('GIT_DIR')
  assert head == git('rev-parse', 'HEAD')
  (tmp_path / 'a.py').write_text('2')
  assert platform.commit(tmp_path) == head + '+'
  (tmp_path / 'package').mkdir()
  assert platform.commit(tmp_path / 'package') is None
  assert capsys.readouterr().err == ''
  (tmp_path / '.git' / 'HEAD').write_text('damaged')
  assert platform.commit(tmp_path) is None
  assert capsys.readouterr().err.startswith('no commit is recorded: fatal: ')
