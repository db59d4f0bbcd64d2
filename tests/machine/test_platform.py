"""JAX's settings before it starts: flags, dtypes, the cache of compiled programs."""

import json
import math
import os
import pathlib
import subprocess
import sys
import types

import jax
import pytest

from transformer_jax.machine import platform


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch) -> dict:
  """Returns the settings of JAX that a test makes; they have no effect."""
  before, settings = jax.config.jax_compilation_cache_dir, {}
  jax.config.update('jax_compilation_cache_dir', None)
  with monkeypatch.context() as patch:
    patch.setattr(jax.config, 'update', settings.__setitem__)
    yield settings
  jax.config.update('jax_compilation_cache_dir', before)


# A row starts JAX in a fork with one setting, before or after its first use.
STARTS = [
  ('jax_platforms', 'cuda', False, 'JAX cannot use cuda here'),
  ('jax_enable_x64', True, False, 'JAX_ENABLE_X64=True changes a run: set it to False'),
  ('jax_num_cpu_devices', 2, True, 'JAX has started before'),
  ('jax_num_cpu_devices', 1, True, 'started'),
]
START = """
import jax, json, os, sys
from transformer_jax.machine import cli, platform
for name, value, used, _ in json.loads(sys.argv.pop()):
  if not os.fork():
    jax.config.update(name, value)
    used and jax.devices()
    cli.run(lambda argv: platform.start(8) or print('started'))
    os._exit(0)
  os.wait()
"""


@pytest.mark.slow
def test_what_jax_starts_with():
  """Several CPU devices without YNN may multiply wrongly (docs/speed.md)."""
  done = subprocess.run(
    [sys.executable, '-c', START, json.dumps(STARTS)],
    env=os.environ | {'XLA_FLAGS': ''},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  for (*_, start), line in zip(STARTS, done.stdout.splitlines(), strict=True):
    assert line.startswith(start)


def test_compiled_programs_are_kept(
  tmp_path: pathlib.Path, monkeypatch, nothing_is_kept
):
  """But for those that a full disk left empty, and none is added while it is full."""
  monkeypatch.setenv('XDG_CACHE_HOME', '')
  monkeypatch.setenv('HOME', str(tmp_path))
  cache = tmp_path / '.cache' / 'transformer_jax'
  cache.mkdir(parents=True)
  (cache / 'jit_empty-cache').touch()
  (cache / 'jit_whole-cache').write_text('x')
  expected = {'jax_compilation_cache_dir': str(cache)}
  for free, seconds in (0, math.inf), (2**40, 0.1):
    disk = types.SimpleNamespace(free=free)
    monkeypatch.setattr(platform.shutil, 'disk_usage', lambda folder, disk=disk: disk)
    platform.use_compilation_cache()
    expected['jax_persistent_cache_min_compile_time_secs'] = seconds
    assert nothing_is_kept == expected
    assert [entry.name for entry in cache.iterdir()] == ['jit_whole-cache']


def test_several_processes_on_gpus_keep_nothing(monkeypatch, nothing_is_kept, capsys):
  """One would load its program while the others compile, and wait for ever."""
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  platform.use_compilation_cache()
  assert 'jax_compilation_cache_dir' not in nothing_is_kept
  assert 'JAX_COMPILATION_CACHE_DIR' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('cores', 'slices', 'count'), [(1, 8, 1), (6, 8, 4), (3, 2, 2)]
)
def test_a_start(
  cores: int, slices: int, count: int, tmp_path, monkeypatch, nothing_is_kept
):
  """JAX gets a cache, flags and devices; what the user has set is left alone."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setenv('XLA_FLAGS', '--xla_a=1')
  monkeypatch.delenv('JAX_NUM_CPU_DEVICES', raising=False)
  monkeypatch.setattr(platform, 'cores', lambda: cores)
  platform.start(slices)
  assert nothing_is_kept.pop('jax_num_cpu_devices') == count
  assert nothing_is_kept['jax_compilation_cache_dir'] == f'{tmp_path}/transformer_jax'
  day = '--xla_cpu_collective_call_terminate_timeout_seconds=86400'
  platform.set_xla_flag('--xla_a=2')
  assert os.environ['XLA_FLAGS'] == f'--xla_a=1 {platform.YNN} {day}'
  monkeypatch.setenv('JAX_NUM_CPU_DEVICES', '3')
  platform.use_cpu_cores(slices)
  assert 'jax_num_cpu_devices' not in nothing_is_kept


def test_dtypes_of_products(monkeypatch):
  """A CPU that multiplies bfloat16 faster decodes so, and never trains so."""
  for model, vectors, decoding in (
    ('AMD EPYC', ['avx512f'], 'float32'),
    ('AMD EPYC', ['avx512_bf16'], 'bfloat16'),
    ('Intel Xeon', ['avx512_bf16'], 'float32'),
    ('Intel Xeon', ['amx_bf16', 'avx512_bf16'], 'bfloat16'),
  ):
    processor = model, vectors
    monkeypatch.setattr(platform, 'processor', lambda processor=processor: processor)
    assert platform.decoding_dtype('auto').name == decoding
    assert platform.training_dtype('auto').name == 'float32'
  assert platform.training_dtype('auto', 'gpu').name == 'bfloat16'
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
  head = git('rev-parse', 'HEAD')
  with monkeypatch.context() as patch:
    patch.setenv('GIT_DIR', str(tmp_path / 'none'))
    assert platform.commit(tmp_path) == head
  (tmp_path / 'a.py').write_text('2')
  assert platform.commit(tmp_path) == head + '+'
  assert capsys.readouterr().err == ''
  (tmp_path / '.git' / 'HEAD').write_text('damaged')
  assert platform.commit(tmp_path) is None
  assert capsys.readouterr().err.startswith('no commit is recorded: fatal: ')


def test_a_result_names_what_computed_it(monkeypatch):
  """Devices, cores, processor and precision, as the system tells them."""
  cpuinfo = pathlib.Path('/proc/cpuinfo')
  if cpuinfo.is_file():
    model, vectors = platform.processor()
    assert f': {model}\n' in cpuinfo.read_text()
    flags = next(x for x in cpuinfo.read_text().splitlines() if x.startswith('flags'))
    assert vectors == sorted(x for x in flags.split() if x[:3] in ('avx', 'amx'))
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: {0, 3}, raising=False)
  monkeypatch.setattr(platform, 'processor', lambda: ('AMD EPYC', []))
  devices = [types.SimpleNamespace(platform='cpu', device_kind='cpu')]
  monkeypatch.setattr(jax, 'devices', lambda: devices)
  assert platform.describe_device() == 'CPU, 2 cores (1 JAX device), AMD EPYC'
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  settings = types.SimpleNamespace(jax_default_matmul_precision='high')
  monkeypatch.setattr(platform, 'SETTINGS', settings)
  devices[:] = [types.SimpleNamespace(platform='gpu', device_kind='NVIDIA H200')] * 8
  text = '8 x NVIDIA H200 in 2 processes, products of high precision'
  assert platform.describe_device() == text
