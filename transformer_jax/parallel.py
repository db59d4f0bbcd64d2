"""Data parallelism by `jax.pmap`; the only module that knows of more than one device.

A batch comes in `slices` equal parts. D devices carry slices / D each, so the data, the
dropout and the update are the same on any number of devices that divides `slices`.
State has no device axis here: pmap takes it in and gives it out replicated.

Several hosts run the same program, each with its own devices and its own share of the
slices. The first of them alone reads and writes the run's folder.
"""

import contextlib
import hashlib
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import multihost

from transformer_jax import processor
from transformer_jax.interruption import EXIT_CODE

AXIS = 'devices'
PATIENCE = 24 * 60 * 60 * 1000  # milliseconds for which hosts wait for another
Tree = Any


def start(slices: int) -> None:
  """What a program does before its first use of JAX."""
  keep_compiled()
  multiply_by_ynn()
  outlast_stops()
  use_cpu_cores(slices)


def join_hosts(address: str | None, count: int | None, number: int | None) -> None:
  """Makes this process one of several; call before anything else of JAX.

  With no argument, what Slurm, Open MPI, Kubernetes or a TPU pod says of this process
  is used, if any of them does. A `count` of 1 is one process whatever they say.

  Args:
    address: host:port on which process 0 can be reached.
    count: how many processes there are.
    number: which of them this one is, from 0.
  """
  # JAX would take SIGTERM to itself: see interruption.py for what is done about it.
  jax.config.update('jax_enable_preemption_service', False)
  # Open MPI first, as JAX does: its daemons are a Slurm job's steps, of one task each.
  mpi = os.environ.get('OMPI_COMM_WORLD_SIZE')
  # Not SLURM_NTASKS, which is the job's in an interactive step of one task.
  tasks = mpi or os.environ.get('SLURM_STEP_NUM_TASKS')
  # Alone in a step of one task, JAX would see the first of its devices only.
  if count == 1 or (count is None and tasks == '1'):
    return
  if (address, count, number) != (None, None, None):
    if None in (address, count, number):
      raise ValueError(
        'give all of --coordinator_address, --process_count and --process_id, or none'
      )
    jax.distributed.initialize(address, count, number)
    return
  try:
    jax.distributed.initialize()
  except ValueError as error:  # nobody said where the others are
    if 'coordinator_address' not in str(error):
      raise
    if mpi:
      raise ValueError(
        f'this JAX does not find the other of {mpi} processes of this Open MPI: give '
        '--coordinator_address, --process_count and --process_id (docs/devices.md)'
      ) from error


@contextlib.contextmanager
def one_error_ends_all() -> Iterator[None]:
  """What goes wrong in here on one of several hosts ends its process at once.

  In order, JAX would wait five minutes for the others, which wait for this one. When
  the first host's process is gone, JAX ends theirs; another's it misses after 100 s.
  """
  try:
    yield
  except BaseException as error:  # whatever it is, it ends here
    exits = isinstance(error, SystemExit)
    if hosts() == 1 or (exits and error.code == EXIT_CODE):  # all hosts have agreed
      raise
    if exits:
      print(error.code, file=sys.stderr)
    else:
      traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def deterministic() -> None:
  """The same bits in every run on a GPU, and slower; call before JAX starts.

  Some of its operations sum in an order that changes. A CPU needs none of this.
  """
  _set_xla_flag('--xla_gpu_deterministic_ops=true')


def multiply_by_ynn() -> None:
  """Has XLA on a CPU multiply matrices by its YNN library; call before JAX starts.

  By Eigen a product may be wrong. One of at least 16 blocks of columns (two threads;
  216 columns each here) and of several blocks of terms, begun on one of Eigen's own
  threads as happens in loops, loses the first block: up to 320 terms of 216 of 10,000
  rows of the embedding's gradient, a tenth of its norm (JAX 0.10.2 and 0.12.0, two CPU
  devices). products.py has the forms that YNN takes. XLA's default has it reduce too.
  """
  _set_xla_flag('--xla_cpu_experimental_ynn_fusion_type=individual_dot')


def outlast_stops() -> None:
  """Has a CPU's devices wait a day for one another; call before JAX starts.

  After 40 s XLA would end the process, and a stop counts: one by Ctrl-Z, a suspended
  job's or a sleeping machine's, that finds a device waiting for another.
  """
  seconds = PATIENCE // 1000
  _set_xla_flag(f'--xla_cpu_collective_call_terminate_timeout_seconds={seconds}')


def _set_xla_flag(flag: str) -> None:
  os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {flag}'.strip()


def hosts() -> int:
  return jax.process_count()


def is_first_host() -> bool:
  """Whether this process is the one that reads and writes the run's folder."""
  return jax.process_index() == 0


def first_host_first(make: Callable[[], Any]) -> Any:
  """make() on the first host, and when it is done there, on the others."""
  made = make() if is_first_host() else None
  wait_for_all('made')
  return made if is_first_host() else make()


def wait_for_all(key: str) -> None:
  """Until all hosts have come here, by the coordinator and not between devices.

  Those of CPUs give up when another host's come to their first exchange 30 s later; and
  so late they are when JAX has kept the compiled programs of the first host alone.
  """
  multihost.get_barrier_sync_fn()(key=key, timeout_ms=PATIENCE)


def from_first_host(tree: Tree) -> Tree:
  """The first host's arrays; the others give some of the same shapes."""
  return tree if hosts() == 1 else multihost_utils.broadcast_one_to_all(tree)


def keep_compiled() -> None:
  """Keeps compiled programs between processes, in a folder private to the user.

  Whoever can write there can run code as the user, so nobody else may.
  """
  if jax.config.jax_compilation_cache_dir is None:
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
    folder = cache / 'transformer_jax'
    try:
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
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
  chosen |= 'JAX_NUM_CPU_DEVICES' in os.environ or jax.distributed.is_initialized()
  if not chosen:
    count = max(d for d in range(1, len(processor.cores()) + 1) if slices % d == 0)
    jax.config.update('jax_num_cpu_devices', count)


def training_dtype(name: str) -> jnp.dtype:
  """'auto' is bfloat16 on accelerators and float32 on a CPU."""
  return _dtype('dtype', name, jax.default_backend() != 'cpu')


def decoding_dtype(name: str) -> jnp.dtype:
  """'auto' is bfloat16 where the device multiplies it faster, which few CPUs do."""
  fast = jax.default_backend() != 'cpu' or processor.multiplies_bfloat16()
  return _dtype('decode_dtype', name, fast)


def _dtype(key: str, name: str, fast: bool) -> jnp.dtype:
  if name not in ('auto', 'float32', 'bfloat16'):
    raise ValueError(f"{key}={name!r}: 'auto', 'float32' or 'bfloat16'")
  return jnp.dtype(('bfloat16' if fast else 'float32') if name == 'auto' else name)


def describe_device() -> str:
  """The accelerators in words, as results state them."""
  devices = jax.devices()
  kind = devices[0].device_kind
  on = f' on {hosts()} hosts' if hosts() > 1 else ''
  if devices[0].platform == 'cpu':
    count = lambda n, thing: f'{n} {thing}' if n == 1 else f'{n} {thing}s'
    cores = count(len(processor.cores()), 'core')
    return f'CPU, {cores} ({count(len(devices), "JAX device")}{on})'
  return f'{len(devices)} x {kind}{on}'


def round_up(rows: int) -> int:
  """The next multiple of this host's devices."""
  return -(-rows // jax.local_device_count()) * jax.local_device_count()


def everywhere(tree: Tree) -> Tree:
  """Puts arrays on every device of this host."""
  mesh = Mesh(np.array(jax.local_devices()), (AXIS,))
  return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def spread(function: Callable) -> Callable:
  """function(params, *rows) with the rows shared out over this host's devices.

  What it takes are host arrays with axis 0 for rows, a multiple of the devices' number;
  `params` come from everywhere(). It gives a function without arguments that waits and
  gives host arrays: accelerators compute on while the host does other things. The
  devices do not wait for each other.
  """
  devices = jax.local_devices()
  on_rows = lambda params, rows: function(params, *rows)
  mapped = jax.pmap(on_rows, in_axes=(None, 0), devices=devices)

  def call(params: Tree, *rows: np.ndarray) -> Callable[[], Tree]:
    split = lambda x: x.reshape(len(devices), -1, *x.shape[1:])
    join = lambda x: x.reshape(-1, *x.shape[2:])
    given = mapped(params, jax.tree.map(split, rows))
    if jax.default_backend() == 'cpu':  # it would compute the next one beside this
      jax.block_until_ready(given)
    return lambda: jax.tree.map(join, jax.device_get(given))

  return call


def check_same(text: str) -> None:
  """Raises ValueError on a host whose text is not the first host's."""
  ours = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  if (ours != from_first_host(ours)).any():
    raise ValueError('this host has another config or corpus than the first host')


class Devices:
  """All devices, or those given, each with an equal share of a batch's slices."""

  def __init__(self, slices: int, devices: Sequence[jax.Device] | None = None):
    given = jax.devices() if devices is None else devices
    # Host by host, so that what a host reads of a batch is one piece of it.
    self._devices = sorted(given, key=lambda device: device.process_index)
    self.count = len(self._devices)
    if slices % self.count:
      works = ', '.join(str(d) for d in range(1, slices + 1) if slices % d == 0)
      raise ValueError(
        f'{self.count} devices cannot share {slices} slices equally; these counts '
        f'can: {works}. Hide some devices or set --config.slices'
      )
    self.slices_each = slices // self.count
    ours = [d for d in self._devices if d.process_index == jax.process_index()]
    first = self._devices.index(ours[0]) * self.slices_each
    self.share = slice(first, first + len(ours) * self.slices_each)  # this host's
    self._all, self._ours = (Mesh(np.array(d), (AXIS,)) for d in (self._devices, ours))

  def replicate(self, tree: Tree) -> Tree:
    """Puts the first host's arrays on every device."""
    put = lambda x: self._put(x, PartitionSpec(), 1)
    return jax.tree.map(put, from_first_host(tree))

  def split(self, arrays: Tree) -> Tree:
    """This host's [slices, ...] -> [devices, slices of each, ...] on all devices."""
    shape = lambda x: x.reshape(-1, self.slices_each, *x.shape[1:])
    put = lambda x: self._put(shape(x), PartitionSpec(AXIS), hosts())
    return jax.tree.map(put, arrays)

  def on_this_host(self, tree: Tree) -> Tree:
    """Replicated arrays as spread() takes them, which knows of no other host."""
    if hosts() == 1:
      return tree
    here = NamedSharding(self._ours, PartitionSpec())
    parts = lambda x: [part.data for part in x.addressable_shards]
    one = lambda x: jax.make_array_from_single_device_arrays(x.shape, here, parts(x))
    return jax.tree.map(one, tree)

  def _put(self, ours: np.ndarray, spec: PartitionSpec, times: int) -> jax.Array:
    """One array of which this host has a part, 1 / `times` of the first axis."""
    local = jax.device_put(ours, NamedSharding(self._ours, spec))
    if hosts() == 1:
      return local
    parts = [part.data for part in local.addressable_shards]
    shape = (local.shape[0] * times, *local.shape[1:]) if local.ndim else ()
    return jax.make_array_from_single_device_arrays(
      shape, NamedSharding(self._all, spec), parts
    )

  def parallel(self, step: Callable) -> Callable:
    """step(state, share of a batch) -> (state, sums), mapped; `state` is donated.

    What `step` returns must be equal on all devices: it reduces over AXIS.
    """
    return jax.pmap(
      step,
      axis_name=AXIS,
      in_axes=(None, 0),
      out_axes=(None, None),
      devices=self._devices,
      donate_argnums=(0,),
    )
