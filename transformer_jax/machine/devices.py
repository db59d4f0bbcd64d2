"""Data parallelism; the only module that calls pmap, shard_map or device_put.

A batch comes in `slices` of equal shape. Each of D devices computes slices / D of them,
so the data, the dropout and the update are the same for every D that divides `slices`.
Parameters and optimizer state are replicated: pmap takes and returns them without a
device axis. With several hosts, each reads the slices of its own devices (hosts.py).
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from transformer_jax.machine import hosts
from transformer_jax.machine.errors import UserError

AXIS = 'devices'
RESERVED_FRACTION = 0.1  # of a device's memory, for other arrays than a program's
# Lengths in tokens, with EOS, that map_sentences() pads to: each has a program, and
# compiling takes time. Beyond them it pads to the longest that the model takes.
LENGTHS = (16, 32, 64, 128, 256)


def round_up(rows: int) -> int:
  """Returns `rows`, rounded up to a multiple of the number of this host's devices."""
  return -(-rows // jax.local_device_count()) * jax.local_device_count()


def _mesh(devices: Sequence[jax.Device]) -> Mesh:
  return Mesh(np.array(devices), (AXIS,))


def _replicated(devices: Sequence[jax.Device]) -> NamedSharding:
  return NamedSharding(_mesh(devices), PartitionSpec())


def to_host(tree: PyTree) -> PyTree:
  """Returns host arrays that share no memory with the devices."""
  arrays = jax.device_get(tree)
  # On a CPU they are the devices' memory itself, which the next update overwrites.
  return jax.tree.map(np.array, arrays) if jax.default_backend() == 'cpu' else arrays


def replicate_read_only(tree: PyTree) -> PyTree:
  """Gives every device of this host arrays that programs will only read.

  A CPU's devices read the same memory, so that a core finds in the cache what another
  has fetched.
  """
  first, *other_devices = jax.local_devices()
  sharding = _replicated(jax.local_devices())
  if jax.default_backend() != 'cpu':
    return jax.device_put(tree, sharding)

  def alias(x: np.ndarray | jax.Array) -> jax.Array:
    array = jax.device_put(x, first)
    view = np.asarray(array)
    aliases = [jax.device_put(view, d, may_alias=True) for d in other_devices]
    parts = [array, *aliases]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts)

  return jax.tree.map(alias, tree)


def without_data(tree: PyTree) -> PyTree:
  """Returns the shapes, dtypes and devices of arrays: enough to lower a program.

  With several hosts it returns the arrays, since pmap then lowers for nothing else.
  """
  if jax.process_count() > 1:
    return tree
  like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
  return jax.tree.map(like, tree)


def compile_if_it_fits(lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
  """Returns the program, or None if it needs more memory than a device has.

  The first host decides for all, so devices must have the same memory. Where they do
  not report it, as on a CPU, every program that XLA compiles fits.
  """
  try:
    program = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    # Without memory to time a GPU's product, XLA finds no valid config for it.
    reasons = 'RESOURCE_EXHAUSTED', 'No valid config found'
    # A kernel that asks for too much of a multiprocessor would do so in all sizes.
    if not any(x in str(error) for x in reasons) or 'Shared memory' in str(error):
      raise
    return None
  needs, memory = program.memory_analysis(), device_memory()
  return program if not memory or needs is None or fits(needs, memory) else None


def fits(needs: Any, memory: float) -> bool:
  """Returns True if a program's memory_analysis() fits into `memory` bytes."""
  arrays = needs.argument_size_in_bytes + needs.output_size_in_bytes
  bytes_needed = arrays + needs.temp_size_in_bytes - needs.alias_size_in_bytes
  return bytes_needed <= (1 - RESERVED_FRACTION) * memory


def device_memory() -> int:
  """Returns the bytes of a device's memory here; 0 for a CPU, which reports none."""
  return (jax.local_devices()[0].memory_stats() or {}).get('bytes_limit', 0)


def decode_tokens(
  positions: int, memory: float | None = None, count: int | None = None
) -> int:
  """Returns the positions of a batch of search, over all devices of a host.

  Args:
    positions: config.decode_tokens. 0: the number depends on the devices' memory.
    memory: bytes that a program can use on a device; 0 for a CPU, None: as here.
    count: the number of the host's devices; None: as here.
  """
  memory = device_memory() if memory is None else memory
  if positions or not memory:
    return positions or 4096
  count = jax.local_device_count() if count is None else count
  return 4096 * count * max(1, min(8, int(memory / 2**32)))


def map_rows(function: Callable[..., PyTree]) -> Callable[..., Callable[[], PyTree]]:
  """Maps function(params, *rows) over this host's devices, each with some of the rows.

  The mapped function takes `params` that every device has, as replicate_read_only()
  places them, and host arrays whose axis 0, the rows, is a multiple of the number of
  devices. It returns a function that waits for the result and returns host arrays.
  Accelerators compute meanwhile; on a CPU the result is ready before the
  call returns.
  """
  mesh, by_row = _mesh(jax.local_devices()), PartitionSpec(AXIS)

  # By shard_map, so that the devices do not communicate: jit alone would let all of
  # them wait, at each step of a search, for the one with the longest outputs.
  @jax.jit
  @functools.partial(
    jax.shard_map,
    mesh=mesh,
    in_specs=(PartitionSpec(), by_row),
    out_specs=by_row,
    check_vma=False,
  )
  def mapped(params: PyTree, rows: PyTree) -> PyTree:
    return function(params, *rows)

  def call(params: PyTree, *rows: np.ndarray) -> Callable[[], PyTree]:
    result = mapped(params, jax.device_put(rows, NamedSharding(mesh, by_row)))
    if jax.default_backend() == 'cpu':  # it would compute several calls side by side
      jax.block_until_ready(result)
    return lambda: jax.device_get(result)

  return call


def padded_length(needed: int, longest: int) -> int:
  """Returns the length that a batch is padded to, `longest` at most."""
  return min(n for n in (*LENGTHS, longest) if n >= needed)


def pad_ids(sentences: Sequence[Sequence[int]], rows: int, length: int) -> np.ndarray:
  """Returns ids of sentences, followed by 0, which is PAD: [rows, length] int32.

  Rows beyond the sentences are empty.
  """
  block = np.zeros((rows, length), np.int32)
  for row, ids in zip(block, sentences, strict=False):
    row[: len(ids)] = ids
  return block


def map_sentences(
  function: Callable[..., Callable[[], PyTree]],
  params: PyTree,
  texts: Sequence[Sequence[Sequence[int]]],
  *,
  positions: int,
  longest: int,
  progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Iterator[tuple[list[int], PyTree]]:
  """Yields the numbers of a batch's sentences, and what `function` returns for them.

  A batch has sentences of similar lengths. The longest come first. While accelerators
  compute a batch, the caller works on the result of the batch before.

  Args:
    function: from map_rows(). It takes `params` and the padded ids of each text,
      [B, length] int32. Rows beyond the batch's sentences are PAD.
    texts: one text or, for pairs, two: the ids of each sentence, EOS included. A
      sentence without ids is in no batch.
    positions: config.decode_tokens, the positions of a batch.
    longest: the most tokens that the model takes.
    progress: wraps the iterable of batches, as tqdm does.
  """
  positions = decode_tokens(positions)
  lengths = [max(map(len, ids)) for ids in zip(*texts, strict=True)]
  order = [n for n in range(len(lengths)) if lengths[n]]
  order.sort(key=lambda n: -lengths[n])
  batches, previous_length = [], None
  while order:
    length = padded_length(lengths[order[0]], longest)
    rows = round_up(max(1, positions // length))
    # Otherwise the program for full batches is compiled already.
    if length != previous_length:
      rows = min(rows, round_up(1 << (len(order) - 1).bit_length()))
    batches.append((length, rows, order[:rows]))
    order, previous_length = order[rows:], length
  running: list[tuple[list[int], Callable[[], PyTree]]] = []
  for length, rows, numbers in progress(batches):
    padded = [pad_ids([ids[n] for n in numbers], rows, length) for ids in texts]
    running.append((numbers, function(params, *padded)))
    if len(running) > 1:  # no more, since they fill the devices' memory
      numbers, wait = running.pop(0)
      yield numbers, wait()
  for numbers, wait in running:
    yield numbers, wait()


class Devices:
  """The devices of all hosts, or those passed, with as many slices of a batch each.

  Those passed may be of a topology that is not here, for JAX to compile for.

  Attributes:
    count: the number of devices.
    platform: JAX's name of their kind.
    slices_per_device: the number of slices of each device.
    pass_sizes: how many of these a device may compute in one pass, the most first. On
      a CPU it is one, so that more of a pass stays in the caches.
    host_slices: which slices are those of this host's devices.
  """

  def __init__(self, slices: int, devices: Sequence[jax.Device] | None = None):
    devices = jax.devices() if devices is None else devices
    devices = sorted(devices, key=lambda device: device.process_index)
    self._devices = devices
    self.count, self.platform = len(devices), devices[0].platform
    if slices % self.count:
      works = ', '.join(str(d) for d in range(1, slices + 1) if slices % d == 0)
      raise UserError(
        f'{self.count} devices cannot share {slices} slices equally; these counts '
        f'can: {works}. Hide some devices or set --config.slices'
      )
    per_device = self.slices_per_device = slices // self.count
    limit = 1 if self.platform == 'cpu' else per_device
    self.pass_sizes = [n for n in range(limit, 0, -1) if per_device % n == 0]
    local = [d for d in devices if d.process_index == jax.process_index()]
    first = devices.index(local[0]) * per_device
    self.host_slices = slice(first, first + len(local) * per_device)

  def replicate(self, tree: PyTree) -> PyTree:
    """Copies the first host's arrays to every device of every host."""
    return self._put(hosts.from_first_host(tree), PartitionSpec())

  def split(self, arrays: PyTree) -> PyTree:
    """Puts this host's [slices, ...] on its devices, as [devices, slices each, ...]."""
    shape = lambda x: x.reshape(-1, self.slices_per_device, *x.shape[1:])
    return self._put(jax.tree.map(shape, arrays), PartitionSpec(AXIS))

  def _put(self, local: PyTree, spec: PartitionSpec) -> PyTree:
    """Returns global arrays, of which each host passes its part."""
    sharding = NamedSharding(_mesh(self._devices), spec)
    return jax.make_array_from_process_local_data(sharding, local)

  def on_this_host(self, tree: PyTree) -> PyTree:
    """Returns replicated arrays as arrays of this host, which map_rows() takes."""
    if jax.process_count() == 1:
      return tree
    sharding = _replicated(jax.local_devices())

    def local_array(x: jax.Array) -> jax.Array:
      parts = [shard.data for shard in x.addressable_shards]
      return jax.make_array_from_single_device_arrays(x.shape, sharding, parts)

    return jax.tree.map(local_array, tree)

  def pmap(self, step: Callable[..., Any]) -> jax.stages.Wrapped:
    """Maps step(state, inputs, seed) -> (state, sums) over the devices.

    Each device has its slices of the inputs, the whole state, which is donated, and the
    seed. What `step` returns must be equal on all devices, so it sums over AXIS.
    """
    return jax.pmap(
      step,
      axis_name=AXIS,
      in_axes=(None, 0, None),
      out_axes=(None, None),
      devices=self._devices,
      donate_argnums=(0,),
    )
