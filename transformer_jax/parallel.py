"""Data parallelism by `jax.pmap`; the only module that knows of more than one device.

A batch comes in `slices` equal parts. D devices carry slices / D each, so the data, the
dropout and the update are the same on any number of devices that divides `slices`.
State has no device axis here: pmap takes it in and gives it out replicated.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = 'devices'
Tree = Any


def start(slices: int) -> None:
  """What a program does before its first use of JAX."""
  keep_compiled()
  use_cpu_cores(slices)


def keep_compiled() -> None:
  """Keeps compiled programs between processes, in a folder private to the user.

  Whoever can write there can run code as the user, so nobody else may.
  """
  if jax.config.jax_compilation_cache_dir is None:
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME', '~/.cache')).expanduser()
    folder = cache / 'transformer_jax'
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    jax.config.update('jax_compilation_cache_dir', str(folder))


def use_cpu_cores(slices: int) -> None:
  """Makes as many CPU devices as cores and `slices` allow; call before JAX starts.

  XLA runs much of a step on one core of a CPU device, so that several devices are
  what keeps several cores busy. Accelerators are not touched, nor is a count that
  the user has set by XLA_FLAGS or JAX_NUM_CPU_DEVICES.
  """
  chosen = 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', '')
  if not chosen and 'JAX_NUM_CPU_DEVICES' not in os.environ:
    cores = len(os.sched_getaffinity(0))
    count = max(d for d in range(1, cores + 1) if slices % d == 0)
    jax.config.update('jax_num_cpu_devices', count)


def compute_dtype(name: str) -> jnp.dtype:
  """'auto' is bfloat16 on accelerators and float32 on a CPU."""
  if name not in ('auto', 'float32', 'bfloat16'):
    raise ValueError(f"dtype={name!r}: 'auto', 'float32' or 'bfloat16'")
  if name == 'auto':
    name = 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'
  return jnp.dtype(name)


def describe_device() -> str:
  """The accelerators in words, as results state them."""
  devices = jax.devices()
  kind = devices[0].device_kind
  if devices[0].platform == 'cpu':
    return f'CPU, {os.cpu_count()} cores ({len(devices)} JAX devices)'
  return f'{len(devices)} x {kind}'


def round_up(rows: int) -> int:
  """The next multiple of this host's devices."""
  return -(-rows // jax.local_device_count()) * jax.local_device_count()


def everywhere(tree: Tree) -> Tree:
  """Puts arrays on every device of this host."""
  mesh = Mesh(np.array(jax.local_devices()), (AXIS,))
  return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def spread(function: Callable) -> Callable:
  """function(params, *rows) with the rows shared out over this host's devices.

  What it takes and gives are host arrays with axis 0 for rows, a multiple of the
  devices' number; `params` come from everywhere(). The devices do not wait for each
  other.
  """
  devices = jax.local_devices()
  on_rows = lambda params, rows: function(params, *rows)
  mapped = jax.pmap(on_rows, in_axes=(None, 0), devices=devices)

  def call(params: Tree, *rows: np.ndarray) -> Tree:
    split = lambda x: x.reshape(len(devices), -1, *x.shape[1:])
    join = lambda x: x.reshape(-1, *x.shape[2:])
    return jax.tree.map(join, jax.device_get(mapped(params, jax.tree.map(split, rows))))

  return call


class Devices:
  """All devices, or those given, each with an equal share of a batch's slices."""

  def __init__(self, slices: int, devices: Sequence[jax.Device] | None = None):
    self._given = devices
    devices = jax.devices() if devices is None else devices
    self.count = len(devices)
    if slices % self.count:
      works = ', '.join(str(d) for d in range(1, slices + 1) if slices % d == 0)
      raise ValueError(
        f'{self.count} devices cannot share {slices} slices equally; these counts '
        f'can: {works}. Hide some devices or set --config.slices'
      )
    self.slices_each = slices // self.count
    mesh = Mesh(np.array(devices), (AXIS,))
    self._everywhere = NamedSharding(mesh, PartitionSpec())
    self._split = NamedSharding(mesh, PartitionSpec(AXIS))

  def replicate(self, tree: Tree) -> Tree:
    """Puts a host's arrays on every device."""
    return jax.device_put(tree, self._everywhere)

  def split(self, arrays: Tree) -> Tree:
    """[slices, ...] host arrays -> [devices, slices of each, ...] on the devices."""
    shape = lambda x: x.reshape(self.count, self.slices_each, *x.shape[1:])
    return jax.device_put(jax.tree.map(shape, arrays), self._split)

  def parallel(self, step: Callable) -> Callable:
    """step(state, share of a batch) -> (state, sums), mapped; `state` is donated.

    What `step` returns must be equal on all devices: it reduces over AXIS.
    """
    return jax.pmap(
      step,
      axis_name=AXIS,
      in_axes=(None, 0),
      out_axes=(None, None),
      devices=self._given,
      donate_argnums=(0,),
    )
