"""JAX's settings before it starts: flags, dtypes, the cache of compiled programs."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import scripts
from transformer_jax.machine import environment, platform

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


def start(**environment_: str) -> subprocess.CompletedProcess:
  """Starts JAX in a process as our commands do, and prints the flags."""
  code = (
    'import os\n'
    'from transformer_jax.machine import cli\n'
    'def main(argv):\n'
    '  from transformer_jax.machine import platform\n'
    '  platform.set_deterministic()\n'
    '  platform.start(8)\n'
    "  print(os.environ['XLA_FLAGS'])\n"
    'cli.run(main)\n'
  )
  return subprocess.run(
    [sys.executable, '-c', code],
    env=os.environ | environment_,
    capture_output=True,
    text=True,
  )


def test_xla_knows_the_flags_that_are_set():
  """An unknown flag would end the process. The user's flags stay."""
  done = start(XLA_FLAGS='--xla_cpu_enable_fast_math=false')
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == [
    '--xla_cpu_enable_fast_math=false',
    '--xla_gpu_deterministic_ops=true',
    '--xla_cpu_experimental_ynn_fusion_type=individual_dot',
    '--xla_cpu_collective_call_terminate_timeout_seconds=86400',
  ]


def test_a_missing_platform_is_one_line():
  done = start(JAX_PLATFORMS='cuda')
  assert done.returncode == 1 and 'JAX cannot use cuda here' in done.stderr
  assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
  ('variables', 'folder'),
  [({'XDG_CACHE_HOME': 'x'}, 'x'), ({'XDG_CACHE_HOME': '', 'HOME': 'h'}, 'h/.cache')],
)
def test_compiled_programs_are_kept(
  variables: dict, folder: str, tmp_path: pathlib.Path, monkeypatch, nothing_is_kept
):
  for key, value in variables.items():
    monkeypatch.setenv(key, value and str(tmp_path / value))
  platform.use_compilation_cache()
  cache = tmp_path / folder / 'transformer_jax'
  assert nothing_is_kept == {'jax_compilation_cache_dir': str(cache)}
  assert cache.stat().st_mode & 0o777 == 0o700


def test_several_processes_on_gpus_keep_nothing(
  tmp_path: pathlib.Path, monkeypatch, nothing_is_kept, capsys
):
  """One would load its program while the others compile, and wait for ever."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(platform.hosts, 'joined', lambda: True)
  monkeypatch.setattr(platform.hosts, 'count', lambda: 2)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  platform.use_compilation_cache()
  assert not nothing_is_kept and not [*tmp_path.iterdir()]
  assert 'JAX_COMPILATION_CACHE_DIR' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('cores', 'slices', 'count'), [(1, 8, 1), (6, 8, 4), (64, 8, 8), (3, 2, 2)]
)
def test_cpu_devices_divide_the_slices(
  cores, slices, count, monkeypatch, nothing_is_kept
):
  """As many as cores allow; a number that the user has set is left alone."""
  for name in ('XLA_FLAGS', 'JAX_NUM_CPU_DEVICES'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(environment, 'cores', lambda: [*range(cores)])
  platform.use_cpu_cores(slices)
  assert nothing_is_kept.pop('jax_num_cpu_devices') == count
  monkeypatch.setenv('JAX_NUM_CPU_DEVICES', '3')
  platform.use_cpu_cores(slices)
  assert not nothing_is_kept


@pytest.mark.parametrize(
  'vectors', [['avx512f'], ['amx_bf16'], ['avx512_bf16', 'avx2']]
)
def test_dtypes_of_products(monkeypatch, vectors: list[str]):
  """A CPU that multiplies bfloat16 decodes so, and never trains so."""
  monkeypatch.setattr(environment, 'processor', lambda: ('a chip', vectors))
  fast = vectors != ['avx512f']
  assert platform.training_dtype('auto') == np.float32
  assert platform.training_dtype('auto', 'gpu').name == 'bfloat16'
  assert platform.decoding_dtype('auto').name == ('bfloat16' if fast else 'float32')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('float32').name, dtype('bfloat16').name) == ('float32', 'bfloat16')


@pytest.mark.parametrize('own', [None, 'glibc.malloc.arena_max=2'])
def test_a_command_starts_anew_with_its_setting_of_memory(
  own: str | None, tmp_path: pathlib.Path
):
  """Once, with the same arguments, and not where the user has a setting."""
  show = 'import os; print("starts with", os.environ.get("GLIBC_TUNABLES"))'
  (tmp_path / 'sitecustomize.py').write_text(show)
  environment = {k: v for k, v in os.environ.items() if k != 'GLIBC_TUNABLES'}
  environment |= {'PYTHONPATH': str(tmp_path)}
  environment |= {'GLIBC_TUNABLES': own} if own else {}
  command = f'{sys.executable} -m scripts.describe --config=configs/base.py --json'
  options = {'cwd': ROOT, 'env': environment, 'capture_output': True, 'text': True}
  done = subprocess.run(command.split(), check=True, **options)
  starts = [line for line in done.stdout.splitlines() if line.startswith('starts with')]
  expected = [own] if own else [None, scripts.MEMORY]
  assert starts == [f'starts with {setting}' for setting in expected]
  assert json.loads(done.stdout.split(starts[-1])[1])['parameters'] > 6e7
