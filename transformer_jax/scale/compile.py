"""Compiles a config's training step and search for devices that need not be here.

As a program, `python -m transformer_jax.scale.compile` reads {config, topology, length}
as JSON from stdin and writes what compiled() returns to the last line of stdout. It is
a process of its own because libtpu may end its process, and keeps memory.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from jax.experimental import topologies as jax_topologies

from transformer_jax.data.batches import Shape
from transformer_jax.decoding.translate import search_of
from transformer_jax.machine import platform
from transformer_jax.machine.devices import RESERVED_FRACTION, Devices, memory_needed
from transformer_jax.model import build, flops
from transformer_jax.model.transformer import search_weights
from transformer_jax.scale import topologies
from transformer_jax.training.step import StepInput, TrainState, adam
from transformer_jax.training.trainer import step_of

SEARCH_LENGTH = 32  # tokens of a source
# What XLA must know of a GPU. It times no kernels, so the programs of a real GPU may
# differ in their choice.
GPU = """gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32
shared_memory_per_block: 49152 shared_memory_per_core: 233472
threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
memory_bandwidth: {bandwidth:.0f} l2_cache_size: 52428800 clock_rate_ghz: 1.98
device_memory_size: {card:.0f} shared_memory_per_block_optin: 232448
cuda_compute_capability {{ major: 9 }} registers_per_core_limit: 65536
registers_per_block_limit: 65536 }} platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "NVIDIA {kind}" """


def devices_of(topology: topologies.Topology) -> list[jax.Device]:
  """Returns a topology's devices, which JAX can compile for and nothing else."""
  name, chip = topology.name, topology.chip
  if chip.platform == 'gpu':
    hosts, each = topology.shape
    kind = name.partition(':')[0]
    text = GPU.format(bandwidth=chip.bandwidth, card=chip.card, kind=kind)
    options = {'topology': f'1x{hosts}x{each}', 'target_config': text}
    return jax_topologies.get_topology_desc(platform='cuda', **options).devices
  options = {}
  if name.startswith('v4'):  # else each of a chip's two cores is a device
    options['chip_config_name'] = 'megacore'
  if topology.count < 4:  # a host has so many chips by default
    options['chips_per_host_bounds'] = (1, 1, 1)
  return jax_topologies.get_topology_desc(name, platform='tpu', **options).devices


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
  graph, params = build.architecture(config, _platform(devices))
  opt_state = jax.eval_shape(adam(config).init, params)
  shared = Devices(config.slices, devices)
  slices = shared.count, shared.slices_per_device
  inputs = StepInput(
    _ids(*slices, shape.rows, shape.source),
    _ids(*slices, shape.rows, shape.target),
    _ids(*slices, 2),
  )
  step = step_of(config, graph, slices_per_pass)
  state = TrainState(_ids(), params, opt_state)
  return shared.pmap(step).lower(state, inputs, _ids())


def lower_search(
  config: ml_collections.ConfigDict, device: jax.Device, rows: int, length: int
) -> jax.stages.Lowered:
  """Returns the search of `rows` sources of `length` tokens on one device."""
  backend = _platform([device])
  dtype = platform.decoding_dtype(config.decode_dtype, backend)
  graph, params = build.architecture(config, backend, dtype)
  weights = jax.eval_shape(lambda params: search_weights(params, dtype), params)
  search = search_of(config, graph, length, nbest=1)
  there = jax.sharding.SingleDeviceSharding(device)
  inputs = weights, _ids(rows, length), _ids(rows)
  return jax.jit(search, in_shardings=there, out_shardings=there).lower(*inputs)


def full_shape(config: ml_collections.ConfigDict, length: int) -> Shape:
  """Returns a slice of a full batch whose sentences all have `length` tokens."""
  rows = max(1, round(config.tokens_per_batch / config.slices / length))
  return Shape(rows, length, length)


def compiled(
  config: ml_collections.ConfigDict, topology: topologies.Topology, length: int
) -> dict[str, Any]:
  """Returns what a config's programs need on a topology: bytes and FLOPs a device.

  The step computes as many slices at once as fit. `slices` becomes the number of
  devices if they cannot share the config's.

  Args:
    length: source and target tokens of each pair of the batch.
  """
  if config.slices % topology.count:
    config.slices = topology.count
  devices, limit = devices_of(topology), topology.chip.memory
  each, shape = Devices(config.slices, devices), full_shape(config, length)
  for slices_per_pass in each.pass_sizes:
    step = _memory(lower_step(config, devices, shape, slices_per_pass), limit)
    if step['fits']:
      break
  host = [device for device in devices if device.process_index == 0]
  rows = max(1, config.decode_tokens // SEARCH_LENGTH // len(host))
  model = config.model.to_dict()
  tokens = each.slices_per_device * shape.rows * length
  return {
    'processes': len(devices) // len(host),
    'slices': config.slices,
    'slices_per_device': each.slices_per_device,
    'slices_per_pass': slices_per_pass,
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
    needs = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:  # too large, or not of this topology
    return {'fits': False, 'refused': str(error).splitlines()[0]}
  return {
    'arguments': needs.argument_size_in_bytes,
    'temporaries': needs.temp_size_in_bytes,
    'fits': memory_needed(needs) <= (1 - RESERVED_FRACTION) * limit,
  }


def _platform(devices: Sequence[jax.Device]) -> str:
  return 'gpu' if devices[0].platform == 'cuda' else devices[0].platform


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)


if __name__ == '__main__':
  request = json.load(sys.stdin)
  settings = ml_collections.ConfigDict(request['config'])
  topology = topologies.topology(request['topology'])
  print('\n' + json.dumps(compiled(settings, topology, request['length'])))
