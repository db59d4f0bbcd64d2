"""What JAX is told before it starts, and what it runs on."""

import contextlib
import functools
import os
import pathlib
import sys

import jax
import jax.numpy as jnp

from transformer_jax.machine import hosts, processor
from transformer_jax.machine.errors import UserError


def start(slices: int) -> None:
  """Sets JAX's flags and caches; a program calls this before it first uses JAX.

  Args:
    slices: of a batch. The number of CPU devices is chosen so that it divides them.
  """
  use_ynn()
  lengthen_collective_timeout()
  use_cpu_cores(slices)
  use_compilation_cache()


def deterministic() -> None:
  """The same bits in every run on a GPU, and slower; call before JAX starts.

  Some of its operations sum in an order that changes. A CPU needs none of this.
  """
  _set_xla_flag('--xla_gpu_deterministic_ops=true')


def use_ynn() -> None:
  """Has XLA on a CPU multiply matrices by its YNN library; call before JAX starts.

  YNN is faster than Eigen in bfloat16, and free of a fault of Eigen's: a product that
  starts on a pool thread whose queue of 1,024 tasks is full may come out wrong, as
  tests/model/eigen_fault.py shows. YNN leaves products whose left side is transposed
  to Eigen, so model/ops_cpu.py has none. XLA's default has YNN reduce as well.
  """
  _set_xla_flag('--xla_cpu_experimental_ynn_fusion_type=individual_dot')


def lengthen_collective_timeout() -> None:
  """Has a CPU's devices wait a day for one another; call before JAX starts.

  XLA would end the process when one has waited for 40 s. That includes time for which
  the process was suspended: by Ctrl-Z, a scheduler or a sleeping machine.
  """
  seconds = hosts.TIMEOUT_MS // 1000
  _set_xla_flag(f'--xla_cpu_collective_call_terminate_timeout_seconds={seconds}')


def _set_xla_flag(flag: str) -> None:
  flags = os.environ.get('XLA_FLAGS', '')
  if flag not in flags.split():
    os.environ['XLA_FLAGS'] = f'{flags} {flag}'.strip()


def use_compilation_cache() -> None:
  """Keeps compiled programs between processes, in a folder private to the user.

  Call it when JAX is configured: one of several processes asks which devices there are.
  """
  if jax.config.jax_compilation_cache_dir is not None:
    return
  # On GPUs several processes share the search for fast kernels, and wait for what each
  # has found. One that takes its program from a cache which the others do not see
  # searches for none, and they would wait for ever.
  if hosts.joined() and jax.default_backend() == 'gpu' and hosts.count() > 1:
    if hosts.is_first_host():
      _say_once(
        'compiled programs are not kept: several processes need a folder that all '
        'share (JAX_COMPILATION_CACHE_DIR)'
      )
    return
  try:
    folder = _private_cache()
  except (OSError, RuntimeError) as error:
    _say_once(f'compiled programs are not kept ({error})')
  else:
    jax.config.update('jax_compilation_cache_dir', str(folder))


def _private_cache() -> pathlib.Path:
  """The folder of compiled programs, which is made if it is missing.

  Raises:
    OSError: it cannot be made, or somebody else could write there, and so run code as
      the user.
    RuntimeError: the user has no home.
  """
  cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
  folder = cache / 'transformer_jax'
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  for found in (folder.lstat(), folder.stat()):  # a link and where it leads
    if found.st_uid != os.geteuid():
      raise PermissionError(f'{folder} belongs to another user')
  if found.st_mode & 0o077:
    raise PermissionError(f'{folder} is open to others: chmod 700 it')
  return folder


@functools.cache
def _say_once(line: str) -> None:
  print(line, file=sys.stderr)


def use_cpu_cores(slices: int) -> None:
  """Makes as many CPU devices as cores and `slices` allow; call before JAX starts.

  XLA runs much of a step on one core of a CPU device, so that several devices are
  what keeps several cores busy. Accelerators are not touched, nor is a count that
  the user has set by XLA_FLAGS or JAX_NUM_CPU_DEVICES, nor one of several processes.
  """
  chosen = 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', '')
  chosen |= 'JAX_NUM_CPU_DEVICES' in os.environ or hosts.joined()
  if not chosen:
    count = max(d for d in range(1, len(processor.cores()) + 1) if slices % d == 0)
    with contextlib.suppress(RuntimeError):  # JAX has started, in another's program
      jax.config.update('jax_num_cpu_devices', count)


def compiling_threads() -> int:
  """How many programs to compile at a time.

  XLA uses several cores for one program, and on a CPU training needs them too. For a
  GPU it also tries kernels out, all programs on the same one.
  """
  threads = max(1, len(processor.cores()) // 4)
  return min(threads, 2) if jax.default_backend() == 'gpu' else threads


def training_dtype(name: str) -> jnp.dtype:
  """'auto' is bfloat16 on accelerators and float32 on a CPU."""
  return _dtype('dtype', name, jax.default_backend() != 'cpu')


def activation_dtype(dtype: jnp.dtype) -> jnp.dtype:
  """Returns the dtype of what lies between products whose weights are of `dtype`.

  Processors with bfloat16 multiply it faster, but XLA does all else on a CPU with it
  more slowly than with float32.
  """
  return jnp.dtype('float32') if jax.default_backend() == 'cpu' else dtype


def decoding_dtype(name: str) -> jnp.dtype:
  """'auto' is bfloat16 on accelerators and on CPUs with instructions for it."""
  fast = jax.default_backend() != 'cpu' or processor.multiplies_bfloat16()
  return _dtype('decode_dtype', name, fast)


def _dtype(key: str, name: str, fast: bool) -> jnp.dtype:
  if name not in ('auto', 'float32', 'bfloat16'):
    raise UserError(f"{key}={name!r}: 'auto', 'float32' or 'bfloat16'")
  return jnp.dtype(('bfloat16' if fast else 'float32') if name == 'auto' else name)


def describe_device() -> str:
  """The devices in words, as results state them."""
  devices = jax.devices()
  kind = devices[0].device_kind
  on = f' in {hosts.count()} processes' if hosts.count() > 1 else ''
  if devices[0].platform == 'cpu':
    count = lambda n, thing: f'{n} {thing}' if n == 1 else f'{n} {thing}s'
    cores = count(len(processor.cores()), 'core')
    each = count(len(devices), 'JAX device')
    return f'CPU, {cores} ({each}{on}), {processor.describe()[0]}'
  return f'{len(devices)} x {kind}{on}'
