"""Data parallelism by `jax.pmap`; the only module that places arrays on devices.

A batch comes in `slices` of equal shape. Each of D devices computes slices / D of them,
so the data, the dropout and the update are the same for every D that divides `slices`.
Parameters and optimizer state are replicated: pmap takes and returns them without a
device axis. With several hosts, each reads the slices of its own devices (hosts.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from transformer_jax.machine import hosts
from transformer_jax.machine.errors import UserError

AXIS = 'devices'
KEPT = 0.1  # of a device's memory, for other arrays than a program's


def round_up(rows: int) -> int:
  """Returns `rows`, rounded up to a multiple of the number of this host's devices."""
  return -(-rows // jax.local_device_count()) * jax.local_device_count()


def replicate(tree: PyTree) -> PyTree:
  """Copies arrays to every device of this host."""
  return jax.device_put(tree, _on_all_of_this_host())


def _on_all_of_this_host() -> NamedSharding:
  return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec())


def to_host(tree: PyTree) -> PyTree:
  """Returns host arrays with memory of their own."""
  arrays = jax.device_get(tree)
  # On a CPU they are the devices' memory itself, which the next update overwrites.
  return jax.tree.map(np.array, arrays) if jax.default_backend() == 'cpu' else arrays


def replicate_read_only(tree: PyTree) -> PyTree:
  """Gives every device of this host arrays that programs will only read.

  A CPU's devices read the same memory, so that a core finds in the cache what another
  has fetched. Elsewhere this is replicate().
  """
  if jax.default_backend() != 'cpu':
    return replicate(tree)
  first, *others = jax.local_devices()
  sharding = _on_all_of_this_host()

  def alias(x: np.ndarray | jax.Array) -> jax.Array:
    one = jax.device_put(x, first)
    view = np.asarray(one)
    parts = [one, *(jax.device_put(view, d, may_alias=True) for d in others)]
    return jax.make_array_from_single_device_arrays(one.shape, sharding, parts)

  return jax.tree.map(alias, tree)


def without_data(tree: PyTree) -> PyTree:
  """Returns the shapes, dtypes and devices of arrays: enough to lower a program.

  With several hosts it returns the arrays, since pmap then lowers for nothing else.
  """
  if hosts.count() > 1:
    return tree
  like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
  return jax.tree.map(like, tree)


def compile_if_it_fits(lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
  """Returns the program, or None if it needs more memory than a device has.

  A part of the memory is kept for other arrays, such as the next batch. Hosts
  must decide alike, so their devices must have the same memory. Where devices do not
  tell what they have, as a CPU does not, every program fits that XLA compiles.
  """
  try:
    program = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return None
  stats = jax.local_devices()[0].memory_stats()
  needs = program.memory_analysis()
  if stats is None or 'bytes_limit' not in stats or needs is None:
    return program
  fits = memory_needed(needs) <= (1 - KEPT) * stats['bytes_limit']
  return program if fits else None


def memory_needed(program: Any) -> int:
  """Returns the bytes that a program needs of each device, from memory_analysis()."""
  arrays = program.argument_size_in_bytes + program.output_size_in_bytes
  return arrays + program.temp_size_in_bytes - program.alias_size_in_bytes


def map_rows(function: Callable) -> Callable:
  """Maps function(params, *rows) over this host's devices, each with some of the rows.

  The mapped function takes `params` that every device has, as replicate_read_only()
  places them, and host arrays whose axis 0, the rows, is a multiple of the number of
  devices. It returns a function that gives the result as host arrays. Accelerators
  compute meanwhile, so that the host can do other things; a CPU has computed before it
  returns. The devices do not communicate.
  """
  devices = jax.local_devices()
  mapped = pmap_rows(function, devices)

  def call(params: PyTree, *rows: np.ndarray) -> Callable[[], PyTree]:
    split = lambda x: x.reshape(len(devices), -1, *x.shape[1:])
    join = lambda x: x.reshape(-1, *x.shape[2:])
    result = mapped(params, jax.tree.map(split, rows))
    if jax.default_backend() == 'cpu':  # it would compute several calls side by side
      jax.block_until_ready(result)
    return lambda: jax.tree.map(join, jax.device_get(result))

  return call


def pmap_rows(function: Callable, devices: Sequence[jax.Device]) -> Callable:
  """Maps function(params, *rows) to mapped(params, [rows of each device, ...])."""
  on_rows = lambda params, rows: function(params, *rows)
  return jax.pmap(on_rows, in_axes=(None, 0), devices=devices)


def sum_over_devices(tree: PyTree) -> PyTree:
  """Returns the sum over all devices of all hosts, within what Devices.pmap() maps."""
  return jax.lax.psum(tree, AXIS)


class Devices:
  """The devices of all hosts, or those passed, with as many slices of a batch each.

  Those passed may be of a topology that JAX compiles for without having it.

  Attributes:
    count: the number of devices.
    slices_each: the number of slices of each device.
    slices_at_once: how many of them it may compute at once, the most first. On a CPU
      it is one, so that more of it stays in the caches.
    host_slices: which slices are those of this host's devices.
  """

  def __init__(self, slices: int, devices: Sequence[jax.Device] | None = None):
    devices = jax.devices() if devices is None else devices
    devices = sorted(devices, key=lambda device: device.process_index)
    self._devices = devices
    self.count = len(devices)
    if slices % self.count:
      works = ', '.join(str(d) for d in range(1, slices + 1) if slices % d == 0)
      raise UserError(
        f'{self.count} devices cannot share {slices} slices equally; these counts '
        f'can: {works}. Hide some devices or set --config.slices'
      )
    self.slices_each = slices // self.count
    most = 1 if devices[0].platform == 'cpu' else self.slices_each
    self.slices_at_once = [n for n in range(most, 0, -1) if self.slices_each % n == 0]
    ours = [d for d in devices if d.process_index == jax.process_index()]
    first = devices.index(ours[0]) * self.slices_each
    self.host_slices = slice(first, first + len(ours) * self.slices_each)
    self._all, self._ours = (Mesh(np.array(some), (AXIS,)) for some in (devices, ours))

  def replicate(self, tree: PyTree) -> PyTree:
    """Copies the first host's arrays to every device of every host."""
    put = lambda x: self._put(x, PartitionSpec(), 1)
    return jax.tree.map(put, hosts.from_first_host(tree))

  def split(self, arrays: PyTree) -> PyTree:
    """Puts this host's [slices, ...] on its devices: [devices, slices_each, ...]."""
    shape = lambda x: x.reshape(-1, self.slices_each, *x.shape[1:])
    put = lambda x: self._put(shape(x), PartitionSpec(AXIS), hosts.count())
    return jax.tree.map(put, arrays)

  def on_this_host(self, tree: PyTree) -> PyTree:
    """Returns replicated arrays as arrays of this host, which map_rows() takes."""
    if hosts.count() == 1:
      return tree
    here = NamedSharding(self._ours, PartitionSpec())
    parts = lambda x: [part.data for part in x.addressable_shards]
    one = lambda x: jax.make_array_from_single_device_arrays(x.shape, here, parts(x))
    return jax.tree.map(one, tree)

  def _put(self, ours: np.ndarray, spec: PartitionSpec, times: int) -> jax.Array:
    """Returns one array of all hosts, `times` as long on axis 0 as this host's part."""
    local = jax.device_put(ours, NamedSharding(self._ours, spec))
    if hosts.count() == 1:
      return local
    parts = [part.data for part in local.addressable_shards]
    shape = (local.shape[0] * times, *local.shape[1:]) if local.ndim else ()
    return jax.make_array_from_single_device_arrays(
      shape, NamedSharding(self._all, spec), parts
    )

  def pmap(self, step: Callable) -> Callable:
    """Maps step(state, inputs) -> (state, sums) over the devices; `state` is donated.

    Each device has its slices of the inputs and the whole state. What `step` returns
    must be equal on all devices, so it sums over AXIS.
    """
    return jax.pmap(
      step,
      axis_name=AXIS,
      in_axes=(None, 0),
      out_axes=(None, None),
      devices=self._devices,
      donate_argnums=(0,),
    )
