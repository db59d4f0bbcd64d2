"""Compiles a config's training step and search for one topology; a program of its own.

It reads a request as JSON from stdin and writes what it has compiled as JSON to the
last line of stdout. A process of its own, since libtpu may end the process, and keeps
memory.
"""

import importlib.metadata
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from jax.experimental import topologies

from transformer_jax.decoding.translate import search_of
from transformer_jax.machine import platform
from transformer_jax.machine.devices import KEPT, Devices, memory_needed, pmap_rows
from transformer_jax.model import build
from transformer_jax.model.flops import flops_per_target_token
from transformer_jax.model.transformer import search_weights
from transformer_jax.scale import chips
from transformer_jax.scale.program import Program
from transformer_jax.training.step import StepInput, TrainState, adam
from transformer_jax.training.trainer import step_of

COMPILERS = 'jax', 'libtpu', 'jax-cuda12-plugin'
# What XLA has to know of a GPU. It times no kernels, so the programs of a real GPU may
# differ in their choice.
GPU = """gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32
shared_memory_per_block: 49152 shared_memory_per_core: 233472
threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
memory_bandwidth: {bandwidth:.0f} l2_cache_size: 52428800 clock_rate_ghz: 1.98
device_memory_size: {memory:.0f} shared_memory_per_block_optin: 232448
cuda_compute_capability {{ major: 9 }} registers_per_core_limit: 65536
registers_per_block_limit: 65536 }} platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "NVIDIA {name}" """


def devices_of(topology: chips.Topology) -> list[jax.Device]:
  """Returns the devices of a topology, which JAX compiles for and nothing else."""
  name, chip = topology.name, topology.chip
  if chip.platform == 'gpu':
    text = GPU.format(
      bandwidth=chip.bandwidth, memory=chip.memory / 0.75, name=name.partition(':')[0]
    )
    hosts, each = topology.shape
    options = {'topology': f'1x{hosts}x{each}', 'target_config': text}
    return topologies.get_topology_desc(platform='cuda', **options).devices
  options = {}
  if name.startswith('v4'):  # else each of a chip's two cores is a device
    options['chip_config_name'] = 'megacore'
  if topology.count < 4:  # a host has so many chips by default
    options['chips_per_host_bounds'] = (1, 1, 1)
  return topologies.get_topology_desc(name, platform='tpu', **options).devices


class Compiler:
  """Compiles a config's programs for a topology."""

  def __init__(self, config: ml_collections.ConfigDict, topology: chips.Topology):
    """Sets config.slices to the number of devices if they cannot share those it has."""
    if config.slices % topology.count:
      config.slices = topology.count
    self._config, self._chip = config, topology.chip
    self._backend = topology.chip.platform
    self._all = devices_of(topology)
    self._first_host = [d for d in self._all if d.process_index == 0]
    self._devices = Devices(config.slices, self._all)

  def hosts(self) -> dict[str, Any]:
    """Returns how the devices and the batch are divided among processes."""
    first = self._devices.host_slices
    return {
      'processes': len(self._all) // len(self._first_host),
      'slices': self._config.slices,
      'slices_of_first_process': [first.start, first.stop],
    }

  def step(self, length: int) -> dict[str, Any]:
    """Returns what the training step needs, with as many slices at once as fit.

    Args:
      length: source and target tokens of each pair of the batch.
    """
    config, devices = self._config, self._devices
    graph, params = build.architecture(config, self._backend)
    opt_state = jax.eval_shape(adam(config).init, params)
    state = TrainState(_ids(), params, opt_state)
    rows = max(1, round(config.tokens_per_batch / config.slices / length))
    slices = devices.count, devices.slices_each
    batch = _ids(*slices, rows, length)
    inputs = StepInput(batch, batch, _ids(*slices, 2), _ids(*slices))
    for at_once in devices.slices_at_once:
      step = step_of(config, graph, at_once)
      program, result = self._compile(devices.pmap(step).lower(state, inputs))
      if result['fits']:
        break
    result |= {'slices_at_once': at_once, 'rows': rows, 'length': length}
    if program is None:
      return result
    room = (1 - KEPT) * self._chip.memory - result['memory'] + result['temporaries']
    text = Program(program.as_text())
    tokens = devices.slices_each * rows * length
    return result | {
      # XLA's own count is 1 % higher, missing for GPUs, and counts a loop's body once.
      'flops': tokens * flops_per_target_token(config.model.to_dict(), length),
      'bytes_moved': text.bytes_moved(),
      'collectives': text.collectives(),
      # An estimate: temporaries grow a little less than the number of slices.
      'slices_that_fit': int(room // (result['temporaries'] / at_once)),
    }

  def search(self) -> dict[str, Any]:
    """Returns what the search of sources of 32 tokens needs on the first host."""
    config, length, ours = self._config, 32, self._first_host
    dtype = platform.decoding_dtype(config.decode_dtype, self._backend)
    graph, params = build.architecture(config, self._backend, dtype)
    weights = jax.eval_shape(lambda params: search_weights(params, dtype), params)
    rows = max(1, config.decode_tokens // length // len(ours))
    inputs = _ids(len(ours), rows, length), _ids(len(ours), rows)
    mapped = pmap_rows(search_of(config, graph, length, nbest=1), ours)
    _, result = self._compile(mapped.lower(weights, inputs))
    return result | {'rows': rows, 'length': length}

  def _compile(
    self, lowered: jax.stages.Lowered
  ) -> tuple[jax.stages.Compiled | None, dict[str, Any]]:
    """Returns the program, if the compiler does not refuse it, and its memory."""
    begin = time.monotonic()
    try:
      program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:  # too large, or not of this topology
      return None, {'fits': False, 'refused': str(error).splitlines()[0]}
    memory = program.memory_analysis()
    needed = memory_needed(memory)
    return program, {
      'arguments': memory.argument_size_in_bytes,
      'temporaries': memory.temp_size_in_bytes,
      'memory': needed,
      'fits': needed <= (1 - KEPT) * self._chip.memory,
      'compile_seconds': round(time.monotonic() - begin, 1),
    }


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def main() -> None:
  request = json.load(sys.stdin)
  config = ml_collections.ConfigDict(request['config'])
  compiler = Compiler(config, chips.topology(request['topology']))
  result = compiler.hosts() | {
    'step': compiler.step(request['length']),
    'search': compiler.search(),
    'compilers': {name: _version(name) for name in COMPILERS},
  }
  print('\n' + json.dumps(result))


def _version(name: str) -> str | None:
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


if __name__ == '__main__':
  main()
