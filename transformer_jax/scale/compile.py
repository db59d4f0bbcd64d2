"""What a config's programs need on devices that need not be here, and their time here.

As a program, `python -m transformer_jax.scale.compile TOPOLOGY LENGTH` reads a config
as JSON from stdin and writes what compile_config() returns to the last line of stdout.
It is a process of its own because libtpu may end its process, and keeps memory.
"""

import contextlib
import functools
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from transformer_jax import config as configs
from transformer_jax.data.batches import Shape
from transformer_jax.decoding.translate import search_of
from transformer_jax.machine import platform, signals
from transformer_jax.machine.devices import (
  Devices,
  compile_if_it_fits,
  decode_tokens,
  fits,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops, ops
from transformer_jax.model.transformer import search_weights
from transformer_jax.scale.topologies import Topology, devices_of, topology
from transformer_jax.training.kernels import Kernels
from transformer_jax.training.step import StepInput, TrainState, adam
from transformer_jax.training.trainer import make_step

# The packages that compile for a platform, and the extra that brings one.
COMPILERS = {
  'tpu': (['libtpu'], 'topology'),
  'gpu': (['jax_cuda12_plugin', 'jax_cuda13_plugin'], 'topology-gpu'),
}
# For libtpu: it looks for no TPU, and several processes may compile.
ENVIRONMENT = {
  'JAX_PLATFORMS': 'cpu',
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}
SEARCH_LENGTH = 32  # tokens of a source
UPDATES = 3  # that are timed


def lower_step(
  config: ml_collections.ConfigDict,
  devices: Sequence[jax.Device],
  shape: Shape,
  slices_per_pass: int = 1,
) -> jax.stages.Lowered:
  """Returns a config's training step for one shape of slice, before XLA compiles it.

  Args:
    devices: those of all hosts, here or from devices_of(). Dtypes and operations are
      those of their platform.
    slices_per_pass: how many of its slices a device computes at once.
  """
  graph, params = build.architecture(config, devices[0].platform)
  state = TrainState(_ids(), params, jax.eval_shape(adam(config).init, params))
  shared = Devices(config.slices, devices)
  slices = shared.count, shared.slices_per_device
  inputs = StepInput(
    _ids(*slices, shape.rows, shape.source),
    _ids(*slices, shape.rows, shape.target),
    _ids(*slices, 2),
  )
  step = shared.pmap(make_step(config, graph, slices_per_pass))
  return step.lower(state, inputs, _ids())


def lower_search(
  config: ml_collections.ConfigDict, device: jax.Device, rows: int, length: int
) -> jax.stages.Lowered:
  """Returns the search of `rows` sources of `length` tokens, before XLA compiles it."""
  dtype = platform.decoding_dtype(config.decode_dtype, device.platform)
  graph, params = build.architecture(config, device.platform, dtype)
  weights = jax.eval_shape(lambda params: search_weights(params, dtype), params)
  placement = jax.sharding.SingleDeviceSharding(device)
  search = jax.jit(search_of(config, graph, nbest=1), in_shardings=placement)
  return search.lower(weights, _ids(rows, length))


@contextlib.contextmanager
def lowering_for(target: Topology) -> Iterator[None]:
  """Tells Pallas which GPU the target has, so that it lowers kernels without one."""
  if target.chip.platform != 'gpu':
    yield
    return
  # From JAX 0.11 on Pallas asks the mesh for the kind of a device that is not here.
  device = devices_of(target)[0]
  kind = jax.sharding.AbstractDevice(device.device_kind, None, device.platform)
  mesh = jax.sharding.AbstractMesh((), (), abstract_device=kind)
  with jax.sharding.use_abstract_mesh(mesh):
    yield


def full_shape(config: ml_collections.ConfigDict, length: int) -> Shape:
  """Returns a slice of a full batch whose sentences all have `length` tokens."""
  rows = max(1, round(config.tokens_per_batch / config.slices / length))
  return Shape(rows, length, length)


def compile_config(
  config: ml_collections.ConfigDict, target: Topology, length: int
) -> dict[str, Any]:
  """Returns what a config's programs need on a topology: bytes and FLOPs a device.

  The step computes as many slices at once as fit. `slices` becomes the number of
  devices if they cannot share the config's.

  Args:
    length: source and target tokens of each pair of the batch.
  """
  if config.slices % target.chip_count:
    config.slices = target.chip_count
  devices, limit = devices_of(target), target.chip.memory
  shared, shape = Devices(config.slices, devices), full_shape(config, length)
  for size in shared.pass_sizes:
    with ops.kernel_mode(Kernels(config, shared.platform).mode):
      step = _memory(lower_step(config, devices, shape, size), limit)
    if step['fits']:
      break
  host = [device for device in devices if device.process_index == 0]
  positions = decode_tokens(config.decode_tokens, limit, len(host))
  rows = max(1, positions // SEARCH_LENGTH // len(host))
  model = config.model.to_dict()
  tokens = shared.slices_per_device * shape.rows * length
  return {
    'topology': target.name,
    'devices': target.chip_count,
    'memory': limit,
    'processes': len(devices) // len(host),
    'slices': config.slices,
    'slices_per_pass': size,
    'rows': shape.rows,
    'length': length,
    # XLA's own count is 1 % higher, missing for GPUs, and counts a loop's body once.
    'flops': tokens * flops.flops_per_target_token(model, length),
    # The gradient, in float32.
    'all_reduce_bytes': 4 * flops.parameters(model) * (len(devices) > 1),
    'step': step,
    'search': _memory(lower_search(config, host[0], rows, SEARCH_LENGTH), limit),
  }


def _memory(lowered: jax.stages.Lowered, limit: float) -> dict[str, Any]:
  """Returns what a program needs of each device, or why XLA does not compile it."""
  try:
    needs: Any = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:  # too large, or not of this topology
    return {'fits': False, 'refused': str(error).splitlines()[0]}
  return {
    'arguments': needs.argument_size_in_bytes,
    'temporaries': needs.temp_size_in_bytes,
    'fits': fits(needs, limit),
  }


def _ids(*shape: int) -> Any:
  """Returns the shape of ids, in the place of an array."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def compile_in_subprocess(
  config: ml_collections.ConfigDict, target: Topology, length: int
) -> dict[str, Any]:
  """Returns compile_config() of a process of its own; it takes minutes.

  Raises:
    UserError: there is no compiler for the topology here, or it has ended.
  """
  packages, extra = COMPILERS[target.chip.platform]
  if not any(map(importlib.util.find_spec, packages)):
    raise UserError(f"{target.name} needs {packages[0]}: pip install -e '.[{extra}]'")
  compiler = subprocess.run(
    [sys.executable, '-m', __name__, target.name, str(length)],
    input=json.dumps(configs.as_json(config)),
    env=os.environ | ENVIRONMENT,
    capture_output=True,
    text=True,
  )
  if compiler.returncode:
    raise UserError(f'{target.name}: the compiler ended:\n{compiler.stderr[-2000:]}')
  return json.loads(compiler.stdout.splitlines()[-1])


def lines(result: dict[str, Any]) -> Iterator[str]:
  """Yields what compile_config() has returned, in words."""
  gigabytes = lambda size: f'{size / 1e9:.2f} GB'
  yield (
    f'{result["topology"]}: {result["devices"]} devices of '
    f'{gigabytes(result["memory"])}, processes: {result["processes"]}; not run'
  )
  yield (
    f'  batch: {result["slices"]} slices of {result["rows"]} pairs of '
    f'{result["length"]} tokens; a device computes {result["slices_per_pass"]} at once'
  )
  for what in 'step', 'search':
    if 'refused' in (program := result[what]):
      yield f'  {what}: the compiler refuses it: {program["refused"]}'
      continue
    yield (
      f'  {what}: {gigabytes(program["arguments"])} of arguments, '
      f'{gigabytes(program["temporaries"])} of temporaries; '
      f'{"fits" if program["fits"] else "does not fit"}'
    )
  yield (
    f'  a step of one device: {result["flops"] / 1e12:.3f} TFLOP; all-reduce sums '
    f'{gigabytes(result["all_reduce_bytes"])} over devices'
  )


def seconds_here(config: ml_collections.ConfigDict, shape: Shape) -> float:
  """Compiles the step for one shape of slice on all devices here, and times updates.

  Returns:
    Seconds of an update. Dev scores and checkpoints come on top.
  """
  devices = Devices(config.slices)
  kernels = Kernels(config, devices.platform)
  say = functools.partial(print, file=sys.stderr)
  lower = functools.partial(lower_step, config, jax.devices(), shape)
  say('compiling the update, which takes minutes for a large model')
  start = time.perf_counter()
  for size in devices.pass_sizes:
    fitting = lambda size=size: compile_if_it_fits(lower(size))
    if (step := kernels.compile(fitting, say)) is not None:
      break
  else:
    raise UserError('one slice does not fit into memory: raise --config.slices')
  say(f'compiled in {time.perf_counter() - start:.0f} s; timing {UPDATES} updates')
  _, params = build.transformer(config)
  zero: Any = np.int32(0)
  state = TrainState(zero, params, adam(config).init(params))
  state, seed = devices.replicate((state, np.int32(config.seed)))
  ids: Callable[..., Any] = lambda *sizes: np.ones((config.slices, *sizes), np.int32)
  pairs = ids(shape.rows, shape.source), ids(shape.rows, shape.target)
  inputs = devices.split(StepInput(*pairs, ids(2)))
  for count in 1, UPDATES:  # the first warms up
    start = time.perf_counter()
    for _ in range(count):
      state, sums = step(state, inputs, seed)
    jax.block_until_ready(sums)
  return (time.perf_counter() - start) / UPDATES


if __name__ == '__main__':
  signals.end_with_parent()
  settings = ml_collections.ConfigDict(json.load(sys.stdin))
  name, tokens = sys.argv[1:]
  target = topology(name)
  with lowering_for(target):
    print('\n' + json.dumps(compile_config(settings, target, int(tokens))))
