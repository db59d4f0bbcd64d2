"""Sets JAX up before it starts, and describes what a result was made with."""

import contextlib
import functools
import importlib.metadata
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.machine import hosts
from transformer_jax.machine.errors import UserError

# YNN is faster than Eigen in bfloat16, and free of a fault of Eigen's (docs/speed.md).
# It leaves products whose left operand is transposed to Eigen, so model/ops_cpu.py has
# none. XLA's default has YNN reduce as well.
YNN = '--xla_cpu_experimental_ynn_fusion_type=individual_dot'
# Settings of JAX that change a seeded run's numbers, with the values that runs have.
NUMERICS = {
  'jax_enable_x64': False,
  'jax_numpy_dtype_promotion': 'standard',
  'jax_random_seed_offset': 0,
  'jax_threefry_partitionable': True,
}
MIN_FREE_BYTES = 1 << 26  # for compiled programs, of which a run has some MB
SETTINGS: Any = jax.config  # JAX makes its attributes as it is imported
ROOT = pathlib.Path(__file__).parents[2]  # the checkout, if there is one


def start(slices: int) -> None:
  """Sets JAX's flags and caches, and starts it; call it before JAX is used.

  Args:
    slices: of a batch. The number of CPU devices is chosen so that it divides them.

  Raises:
    UserError: JAX finds no device of the kind that it was told to use, a setting of
      JAX changes numbers, or JAX has started before with several CPU devices.
  """
  for name, value in NUMERICS.items():
    if (actual := getattr(jax.config, name)) != value:
      raise UserError(
        f'{name.upper()}={actual} changes a run: set it to {value}, or unset it'
      )
  if not _has_started():
    set_cpu_flags()
    use_cpu_cores(slices)
    # Where JAX sees a TPU, it sets jax_platforms as it is imported. Elsewhere libtpu
    # asks for these, at length.
    if not SETTINGS.jax_platforms:
      os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'v5litepod-1')
      os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
  try:
    several_cpus = jax.default_backend() == 'cpu' and jax.local_device_count() > 1
  except (RuntimeError, AssertionError) as error:
    backend = SETTINGS.jax_platforms or 'an accelerator'
    raise UserError(
      f'JAX cannot use {backend} here ({str(error) or "none was found"}): install its '
      'build (make install ACCELERATOR=...), or set JAX_PLATFORMS=cpu'
    ) from error
  if several_cpus and _name(YNN) not in os.environ.get('XLA_FLAGS', ''):
    raise UserError(
      'JAX has started before with several CPU devices, which may multiply wrongly '
      '(docs/speed.md): call transformer_jax.load() before the first use of JAX, or '
      f'set XLA_FLAGS={YNN}'
    )
  use_compilation_cache()


def _has_started() -> bool:
  """Returns True if the program has used JAX before: it then refuses a setting."""
  count = SETTINGS.jax_num_cpu_devices
  try:
    jax.config.update('jax_num_cpu_devices', count + 1)
  except RuntimeError:
    return True
  jax.config.update('jax_num_cpu_devices', count)
  return False


def set_cpu_flags() -> None:
  """Tells XLA how to multiply and to wait on a CPU; accelerators ignore it.

  Devices wait a day for one another. XLA would end the process when one has waited for
  40 s, which includes time for which the process was suspended: by Ctrl-Z, a scheduler
  or a sleeping machine.
  """
  set_xla_flag(YNN)
  seconds = hosts.TIMEOUT_MS // 1000
  set_xla_flag(f'--xla_cpu_collective_call_terminate_timeout_seconds={seconds}')


def set_xla_flag(flag: str) -> None:
  """Adds to XLA_FLAGS what the user has not set there; call before JAX starts.

  XLA ends the process at a flag that it does not know. All versions of JAX that
  pyproject.toml permits know these.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  if _name(flag) not in flags:
    os.environ['XLA_FLAGS'] = f'{flags} {flag}'.strip()


def _name(flag: str) -> str:
  return flag.removeprefix('--').partition('=')[0]


def use_cpu_cores(slices: int) -> None:
  """Makes as many CPU devices as cores and `slices` allow; call before JAX starts.

  XLA runs much of a step on one core of a CPU device, so that several devices are
  what keeps several cores busy. Accelerators are not touched, nor is a count that
  the user has set by XLA_FLAGS or JAX_NUM_CPU_DEVICES, nor one of several processes.
  """
  is_set = 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', '')
  is_set |= 'JAX_NUM_CPU_DEVICES' in os.environ or jax.distributed.is_initialized()
  if not is_set:
    count = max(d for d in range(1, cores() + 1) if slices % d == 0)
    jax.config.update('jax_num_cpu_devices', count)


def use_compilation_cache() -> None:
  """Keeps compiled programs between processes, in a folder of the user."""
  # By default JAX keeps programs that took 1 s to compile. A small model has many that
  # take less.
  if 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS' not in os.environ:
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  if SETTINGS.jax_compilation_cache_dir is not None:
    return
  # On GPUs several processes share the search for fast kernels. One that takes its
  # program from a cache of its own searches for none, and the others wait for ever.
  if jax.default_backend() == 'gpu' and jax.process_count() > 1:
    if hosts.is_first_host():
      print(
        'compiled programs are not kept: several processes need a folder that all '
        'of them share (JAX_COMPILATION_CACHE_DIR)',
        file=sys.stderr,
      )
    return
  cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  try:
    folder = pathlib.Path(cache).expanduser() / 'transformer_jax'
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
    print(f'compiled programs are not kept ({error})', file=sys.stderr)
    return
  # A full disk leaves empty files. JAX warns of them, and does not rewrite them.
  for entry in folder.iterdir():
    with contextlib.suppress(OSError):  # another process has just done it
      if entry.stat().st_size == 0:
        entry.unlink()
  jax.config.update('jax_compilation_cache_dir', str(folder))
  if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
    print(f'{folder}: the disk is full, so no new program is kept', file=sys.stderr)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', math.inf)


def compilation_cache() -> pathlib.Path | None:
  """Returns the local folder that keeps compiled programs, if there is one."""
  folder = getattr(jax.config, 'jax_compilation_cache_dir', None)
  return pathlib.Path(folder) if folder and '://' not in folder else None


def training_dtype(name: str, backend: str | None = None) -> jnp.dtype:
  """Returns the dtype of training: for 'auto' bfloat16, but float32 on a CPU.

  `backend` is what programs are lowered for; None: what JAX runs on.
  """
  return _dtype(name, (backend or jax.default_backend()) != 'cpu')


def activation_dtype(dtype: jnp.dtype, backend: str | None) -> jnp.dtype:
  """Returns the dtype of activations between products whose weights have `dtype`.

  Processors with bfloat16 multiply it faster, but XLA does all else on a CPU with it
  more slowly than with float32. `backend` is as in training_dtype().
  """
  on_cpu = (backend or jax.default_backend()) == 'cpu'
  return jnp.dtype('float32') if on_cpu else dtype


def decoding_dtype(name: str, backend: str | None = None) -> jnp.dtype:
  """Returns the dtype of products; 'auto' is bfloat16, but float32 on most CPUs."""
  on_cpu = (backend or jax.default_backend()) == 'cpu'
  model, flags = processor()
  # Products with avx512_bf16 are slower than in float32 on Intel's CPUs, not on AMD's.
  amd = model.startswith('AMD') and 'avx512_bf16' in flags
  return _dtype(name, not on_cpu or 'amx_bf16' in flags or amd)


def _dtype(name: str, fast: bool) -> jnp.dtype:
  return jnp.dtype(('bfloat16' if fast else 'float32') if name == 'auto' else name)


def describe_device() -> str:
  """Returns the devices and JAX's matmul precision as text, as results state them."""
  devices = jax.devices()
  on = f' in {jax.process_count()} processes' if jax.process_count() > 1 else ''
  text = f'{len(devices)} x {devices[0].device_kind}{on}'
  if devices[0].platform == 'cpu':
    count = lambda n, thing: f'{n} {thing}' if n == 1 else f'{n} {thing}s'
    jax_devices = count(len(devices), 'JAX device')
    text = f'CPU, {count(cores(), "core")} ({jax_devices}{on}), {processor()[0]}'
  precision = SETTINGS.jax_default_matmul_precision
  return f'{text}, products of {precision} precision' if precision else text


def processor() -> tuple[str, list[str]]:
  """Returns the processor's name, and its flags that begin with avx or amx.

  There are no flags where the system has no /proc/cpuinfo.
  """
  cpuinfo = pathlib.Path('/proc/cpuinfo')
  if not cpuinfo.is_file():
    return platform.processor() or platform.machine(), []
  lines = (line.partition(':') for line in cpuinfo.read_text().splitlines())
  fields = {name.strip(): value.strip() for name, _, value in lines}
  flags = fields.get('flags', '').split()
  model = fields.get('model name', platform.machine())
  return model, sorted(f for f in flags if f.startswith(('avx', 'amx')))


def cores() -> int:
  """Returns the number of cores that this process may use; on macOS of all."""
  has_affinity = hasattr(os, 'sched_getaffinity')
  return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def commit(checkout: pathlib.Path = ROOT) -> str | None:
  """Returns the checkout's commit, with a '+' if files differ; None outside of one.

  If git refuses to tell, it returns None too, and prints why.
  """
  if not (checkout / '.git').exists():
    return None
  # In a hook or in CI, GIT_DIR may name another repository.
  env = {name: value for name, value in os.environ.items() if name[:4] != 'GIT_'}
  command = (
    'git --no-optional-locks describe --always --exclude=* --abbrev=40 --dirty=+'
  )
  run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
  try:
    return run(command.split(), cwd=checkout, env=env).stdout.strip()
  except (OSError, subprocess.CalledProcessError) as error:
    why = getattr(error, 'stderr', None) or error
    print(f'no commit is recorded: {why}'.strip(), file=sys.stderr)
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Returns the versions of Python and of installed packages."""
  installed = {name: importlib.metadata.version(name) for name in packages}
  return {'python': platform.python_version()} | installed
