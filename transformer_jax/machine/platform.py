"""Sets JAX up before it starts, and describes what it runs on."""

import contextlib
import importlib.util
import mmap
import os
import pathlib
import sys

import jax
import jax.numpy as jnp
import jaxlib

from transformer_jax.machine import environment, hosts
from transformer_jax.machine.errors import UserError

# Files that show an accelerator: of NVIDIA, in Windows too, of AMD, and a TPU.
DEVICE_FILES = 'nvidia[0-9]*', 'dxg', 'kfd', 'accel*', 'vfio/*'


def start(slices: int) -> None:
  """Sets JAX's flags and caches; a program calls this before it first uses JAX.

  Args:
    slices: of a batch. The number of CPU devices is chosen so that it divides them.

  Raises:
    UserError: JAX finds no device of the kind that it was told to use.
  """
  set_cpu_flags()
  use_cpu_cores(slices)
  try:
    jax.devices()
  except (RuntimeError, AssertionError) as error:
    wanted = jax.config.jax_platforms or 'an accelerator'
    raise UserError(
      f'JAX cannot use {wanted} here ({str(error) or "none was found"}): install its '
      'build (make install ACCELERATOR=...), or set JAX_PLATFORMS=cpu'
    ) from error
  use_compilation_cache()


def set_deterministic() -> None:
  """Asks for the same bits in every run on a GPU, and slower; call before JAX starts.

  Some of its operations sum in an order that changes. A CPU needs none of this.
  """
  _set_xla_flag('--xla_gpu_deterministic_ops=true')


def set_cpu_flags() -> None:
  """Tells XLA how to multiply and to wait on a CPU, if that is what JAX will run on.

  Its YNN library multiplies matrices: it is faster than Eigen in bfloat16, and free of
  a fault of Eigen's: a product that starts on a pool thread whose queue of 1,024 tasks
  is full may come out wrong, as tests/model/eigen_fault.py shows. YNN leaves products
  whose left operand is transposed to Eigen, so model/ops_cpu.py has none. XLA's default
  has YNN reduce as well.

  Devices wait a day for one another. XLA would end the process when one has waited for
  40 s, which includes time for which the process was suspended: by Ctrl-Z, a scheduler
  or a sleeping machine.
  """
  if not _will_use_cpu():
    return
  _set_xla_flag('--xla_cpu_experimental_ynn_fusion_type=individual_dot')
  seconds = hosts.TIMEOUT_MS // 1000
  _set_xla_flag(f'--xla_cpu_collective_call_terminate_timeout_seconds={seconds}')


def _will_use_cpu() -> bool:
  """Tells whether JAX will choose the CPU; asking JAX would start it."""
  if jax.config.jax_platforms:
    return jax.config.jax_platforms.split(',')[0] == 'cpu'
  builds = any(map(importlib.util.find_spec, ('jax_plugins', 'libtpu')))
  dev = pathlib.Path('/dev')
  return not (builds and any(any(dev.glob(name)) for name in DEVICE_FILES))


def _set_xla_flag(flag: str) -> None:
  """Adds to XLA_FLAGS what the user has not set there.

  XLA ends the process at a flag that it does not know, so such a flag is left out.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  name = flag.removeprefix('--').partition('=')[0]
  if name in flags:
    return
  if _xla_knows(name):
    os.environ['XLA_FLAGS'] = f'{flags} {flag}'.strip()
  else:
    version = jaxlib.__version__
    print(f'jaxlib {version} has no flag {name}: it is left out', file=sys.stderr)


def _xla_knows(name: str) -> bool:
  """Tells whether jaxlib's XLA has this word: it has no list of its flags."""
  for library in pathlib.Path(jaxlib.__file__).parent.glob('libjax_common*'):
    with library.open('rb') as file:
      with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode()) >= 0
  return True  # another build of jaxlib


def use_compilation_cache() -> None:
  """Keeps compiled programs between processes, in a folder of the user.

  Call it after JAX is set up: with several processes it looks at the devices, which
  starts JAX.
  """
  if jax.config.jax_compilation_cache_dir is not None:
    return
  # On GPUs several processes share the search for fast kernels, and wait for each
  # other's results. One that takes its program from a cache which the others do not see
  # searches for none, and they would wait for ever.
  if hosts.joined() and jax.default_backend() == 'gpu' and hosts.count() > 1:
    if hosts.is_first_host():
      print(
        'compiled programs are not kept: several processes need a folder that all '
        'share (JAX_COMPILATION_CACHE_DIR)',
        file=sys.stderr,
      )
    return
  cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  try:
    folder = pathlib.Path(cache).expanduser() / 'transformer_jax'
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
    print(f'compiled programs are not kept ({error})', file=sys.stderr)
  else:
    jax.config.update('jax_compilation_cache_dir', str(folder))


def use_cpu_cores(slices: int) -> None:
  """Makes as many CPU devices as cores and `slices` allow; call before JAX starts.

  XLA runs much of a step on one core of a CPU device, so that several devices are
  what keeps several cores busy. Accelerators are not touched, nor is a count that
  the user has set by XLA_FLAGS or JAX_NUM_CPU_DEVICES, nor one of several processes.
  """
  chosen = 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', '')
  chosen |= 'JAX_NUM_CPU_DEVICES' in os.environ or hosts.joined()
  if not chosen:
    cores = len(environment.cores())
    count = max(d for d in range(1, cores + 1) if slices % d == 0)
    with contextlib.suppress(RuntimeError):  # JAX has started, in another's program
      jax.config.update('jax_num_cpu_devices', count)


def compiling_threads() -> int:
  """Returns how many programs to compile at a time.

  XLA uses several cores for one program, and on a CPU training needs them too.
  """
  cores = len(environment.cores())
  return max(1, cores // 2 if jax.default_backend() == 'gpu' else cores // 4)


def training_dtype(name: str, backend: str | None = None) -> jnp.dtype:
  """Returns the dtype of training: for 'auto' bfloat16, but float32 on a CPU.

  `backend` is what programs are lowered for; None: what JAX runs on.
  """
  return _dtype(name, (backend or jax.default_backend()) != 'cpu')


def activation_dtype(dtype: jnp.dtype, backend: str | None) -> jnp.dtype:
  """Returns the dtype of what lies between products whose weights are of `dtype`.

  Processors with bfloat16 multiply it faster, but XLA does all else on a CPU with it
  more slowly than with float32. `backend` is as in training_dtype().
  """
  on_cpu = (backend or jax.default_backend()) == 'cpu'
  return jnp.dtype('float32') if on_cpu else dtype


def decoding_dtype(name: str, backend: str | None = None) -> jnp.dtype:
  """Returns the dtype of products: for 'auto' bfloat16, but float32 on older CPUs."""
  on_cpu = (backend or jax.default_backend()) == 'cpu'
  fast = not on_cpu or environment.multiplies_bfloat16()
  return _dtype(name, fast)


def _dtype(name: str, fast: bool) -> jnp.dtype:
  return jnp.dtype(('bfloat16' if fast else 'float32') if name == 'auto' else name)


def describe_device() -> str:
  """Returns the devices in words, as results state them."""
  devices = jax.devices()
  kind = devices[0].device_kind
  on = f' in {hosts.count()} processes' if hosts.count() > 1 else ''
  if devices[0].platform == 'cpu':
    count = lambda n, thing: f'{n} {thing}' if n == 1 else f'{n} {thing}s'
    cores = count(len(environment.cores()), 'core')
    each = count(len(devices), 'JAX device')
    return f'CPU, {cores} ({each}{on}), {environment.processor()[0]}'
  return f'{len(devices)} x {kind}{on}'
