"""What JAX is told before it starts: flags, dtypes, the cache of compiled programs."""

import os
import pathlib
import pwd
import subprocess
import sys

import jax
import numpy as np
import pytest

from transformer_jax.machine import platform, processor

FLAGS = """
import os, jax
from transformer_jax.machine import platform
platform.deterministic()
platform.use_ynn()
platform.lengthen_collective_timeout()
jax.devices()
print(os.environ['XLA_FLAGS'])
"""


@pytest.fixture(autouse=True)
def nothing_kept_yet():
  """As in a new process: a test that ran a program in this one has set the folder."""
  platform._say_once.cache_clear()
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', None)
  yield
  jax.config.update('jax_compilation_cache_dir', before)


def test_xla_knows_the_flags_that_are_set():
  """One that it does not know ends the process; the user's stay."""
  environment = os.environ | {'XLA_FLAGS': '--xla_cpu_enable_fast_math=false'}
  command = [sys.executable, '-c', FLAGS]
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == [
    '--xla_cpu_enable_fast_math=false',
    '--xla_gpu_deterministic_ops=true',
    '--xla_cpu_experimental_ynn_fusion_type=individual_dot',
    '--xla_cpu_collective_call_terminate_timeout_seconds=86400',
  ]


@pytest.mark.parametrize(
  ('environment', 'folder'),
  [({'XDG_CACHE_HOME': 'x'}, 'x'), ({'XDG_CACHE_HOME': '', 'HOME': 'h'}, 'h/.cache')],
)
def test_compiled_programs_are_kept_where_nobody_else_writes(
  environment: dict, folder: str, tmp_path: pathlib.Path, monkeypatch
):
  for key, value in environment.items():
    monkeypatch.setenv(key, value and str(tmp_path / value))
  kept: dict[str, str] = {}
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  platform.use_compilation_cache()
  cache = tmp_path / folder / 'transformer_jax'
  assert kept == {'jax_compilation_cache_dir': str(cache)}
  assert cache.stat().st_mode & 0o777 == 0o700


def test_several_processes_on_gpus_keep_nothing_apart(tmp_path, monkeypatch, capsys):
  """One would find its program where the others do not, and they would wait for it."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(platform.hosts, 'joined', lambda: True)
  monkeypatch.setattr(platform.hosts, 'count', lambda: 2)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  kept: dict[str, str] = {}
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  platform.use_compilation_cache()
  assert not kept and 'JAX_COMPILATION_CACHE_DIR' in capsys.readouterr().err
  monkeypatch.setattr(platform.hosts, 'count', lambda: 1)
  platform.use_compilation_cache()
  assert kept


def test_programs_compiled_at_a_time(monkeypatch):
  monkeypatch.setattr(platform.processor, 'cores', lambda: [*range(64)])
  found = {}
  for backend in ('cpu', 'gpu', 'tpu'):
    monkeypatch.setattr(jax, 'default_backend', lambda name=backend: name)
    found[backend] = platform.compiling_threads()
  assert found == {'cpu': 16, 'gpu': 2, 'tpu': 16}
  monkeypatch.setattr(platform.processor, 'cores', lambda: [0, 1])
  assert platform.compiling_threads() == 1


def test_no_place_for_compiled_programs_ends_nothing(tmp_path, monkeypatch, capsys):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'file'))
  platform.use_compilation_cache()
  assert 'compiled programs are not kept (' in capsys.readouterr().err


def test_compiled_programs_of_others_are_not_run(tmp_path, monkeypatch, capsys):
  """What somebody else can write is not used; it is said once, and mended by chmod."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  cache, kept = tmp_path / 'transformer_jax', {}
  cache.mkdir()
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  for mode in (0o770, 0o705):
    cache.chmod(mode)
    platform.use_compilation_cache()
  said = f'compiled programs are not kept ({cache} is open to others: chmod 700 it)\n'
  assert (kept, capsys.readouterr().err) == ({}, said)
  cache.chmod(0o700)
  platform.use_compilation_cache()
  assert kept == {'jax_compilation_cache_dir': str(cache)}


@pytest.mark.parametrize(
  ('cores', 'slices', 'count'), [(1, 8, 1), (6, 8, 4), (64, 8, 8), (3, 2, 2)]
)
def test_cpu_devices_divide_the_slices(cores, slices, count, monkeypatch):
  """As many as cores allow; a number that the user has set is left alone."""
  for name in ('XLA_FLAGS', 'JAX_NUM_CPU_DEVICES'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(platform.processor, 'cores', lambda: [*range(cores)])
  kept: dict[str, int] = {}
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  platform.use_cpu_cores(slices)
  assert kept.pop('jax_num_cpu_devices') == count
  with monkeypatch.context() as patch:  # one of several processes
    patch.setattr(platform.hosts, 'joined', lambda: True)
    platform.use_cpu_cores(slices)
  flag = '--xla_force_host_platform_device_count=3'
  for name, value in (('JAX_NUM_CPU_DEVICES', '3'), ('XLA_FLAGS', flag)):
    with monkeypatch.context() as patch:
      patch.setenv(name, value)
      platform.use_cpu_cores(slices)
  assert not kept


@pytest.mark.parametrize('linked', [False, True])
def test_a_folder_or_link_of_another_user(linked, tmp_path, monkeypatch, capsys):
  if linked and os.geteuid() != 0:
    pytest.skip('only root gives files away')
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  cache, kept = tmp_path / 'transformer_jax', {}
  if linked:
    (tmp_path / 'ours').mkdir(mode=0o700)
    cache.symlink_to('ours')
  else:
    cache.mkdir(mode=0o700)
  if linked:
    os.chown(cache, 12345, -1, follow_symlinks=False)
  else:
    monkeypatch.setattr(os, 'geteuid', lambda: 12345)
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  platform.use_compilation_cache()
  assert not kept and f'{cache} belongs to another user' in capsys.readouterr().err


def test_a_user_without_a_home(monkeypatch, capsys):
  """As in a container whose user has no entry in the list of users."""
  for key in ('HOME', 'XDG_CACHE_HOME'):
    monkeypatch.delenv(key, raising=False)
  monkeypatch.setattr(pwd, 'getpwuid', {}.__getitem__)
  platform.use_compilation_cache()
  assert 'compiled programs are not kept (' in capsys.readouterr().err


def test_a_cpu_is_told_by_its_processor(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(platform.processor, 'describe', lambda: ('a chip', []))
  monkeypatch.setattr(platform.processor, 'cores', lambda: [0])
  assert platform.describe_device() == 'CPU, 1 core (1 JAX device), a chip'


@pytest.mark.parametrize(
  'vectors', [['avx512f'], ['amx_bf16'], ['avx512_bf16', 'avx2']]
)
def test_dtypes_of_products(monkeypatch: pytest.MonkeyPatch, vectors: list[str]):
  """On a CPU that multiplies bfloat16 what is decoded is decoded so, unasked."""
  monkeypatch.setattr(platform.processor, 'describe', lambda: ('a chip', vectors))
  fast = vectors != ['avx512f']
  assert platform.training_dtype('auto') == np.float32
  assert platform.decoding_dtype('auto').name == ('bfloat16' if fast else 'float32')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('float32').name, dtype('bfloat16').name) == ('float32', 'bfloat16')
  with pytest.raises(ValueError, match="^dtype='half': 'auto', 'float32' or"):
    platform.training_dtype('half')
  with pytest.raises(ValueError, match="^decode_dtype='half'"):
    platform.decoding_dtype('half')


def test_accelerators_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(platform.processor, 'describe', lambda: ('a chip', []))
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('auto').name, dtype('float32').name) == ('bfloat16', 'float32')


def test_cores_where_a_process_has_no_limit_of_its_own(monkeypatch):
  """macOS has no sched_getaffinity; and a system may not know its cores either."""
  monkeypatch.delattr(os, 'sched_getaffinity', raising=False)
  for told, count in ((6, 6), (None, 1)):
    monkeypatch.setattr(os, 'cpu_count', lambda told=told: told)
    assert processor.cores() == [*range(count)]
