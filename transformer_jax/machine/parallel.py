"""Data parallelism by `jax.pmap`; the only module that knows of more than one device.

A batch comes in `slices` equal parts. D devices carry slices / D each, so the data, the
dropout and the update are the same on any number of devices that divides `slices`.
State has no device axis here: pmap takes it in and gives it out replicated.

Several hosts run the same program, each with its own devices and its own share of the
slices. The first of them alone reads and writes the run's folder.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.machine import hosts

AXIS = 'devices'
Tree = Any


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
    return jax.tree.map(put, hosts.from_first_host(tree))

  def split(self, arrays: Tree) -> Tree:
    """This host's [slices, ...] -> [devices, slices of each, ...] on all devices."""
    shape = lambda x: x.reshape(-1, self.slices_each, *x.shape[1:])
    put = lambda x: self._put(shape(x), PartitionSpec(AXIS), hosts.count())
    return jax.tree.map(put, arrays)

  def on_this_host(self, tree: Tree) -> Tree:
    """Replicated arrays as spread() takes them, which knows of no other host."""
    if hosts.count() == 1:
      return tree
    here = NamedSharding(self._ours, PartitionSpec())
    parts = lambda x: [part.data for part in x.addressable_shards]
    one = lambda x: jax.make_array_from_single_device_arrays(x.shape, here, parts(x))
    return jax.tree.map(one, tree)

  def _put(self, ours: np.ndarray, spec: PartitionSpec, times: int) -> jax.Array:
    """One array of which this host has a part, 1 / `times` of the first axis."""
    local = jax.device_put(ours, NamedSharding(self._ours, spec))
    if hosts.count() == 1:
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
