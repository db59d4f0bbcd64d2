"""Names of devices that need not be here, such as v5e:2x4 or h100:8.

Memory is what a program can use: of a TPU what its compiler names when it refuses a
program, of a GPU the 75 % of the card that JAX takes. Sources of the figures, read in
2026: https://cloud.google.com/tpu/docs, https://www.nvidia.com/en-us/data-center/h100/
and https://www.nvidia.com/en-us/data-center/h200/.
"""

import math
import re
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from transformer_jax.machine.errors import UserError

GIB = 2**30
EXAMPLES = (
  *('v4:2x2x2', 'v4:4x4x4', 'v5e:1x1', 'v5e:2x4', 'v5e:8x8', 'v5p:2x2x2', 'v5p:4x4x4'),
  *('v6e:2x4', 'v6e:8x8', 'h100:1', 'h100:8', 'h100:64', 'h200:1', 'h200:8'),
)
GPUS_OF_HOST = 8
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


class Chip(NamedTuple):
  """One accelerator."""

  platform: str  # JAX's name of its kind
  memory: float  # bytes that a program can use
  axes: int = 0  # of a TPU's grid
  card: float = 0  # bytes of a GPU's memory
  bandwidth: float = 0  # bytes a second of a GPU's memory


CHIPS = {
  'v4': Chip('tpu', 30.75 * GIB, axes=3),
  'v5e': Chip('tpu', 15.75 * GIB, axes=2),
  'v5p': Chip('tpu', 95.74 * GIB, axes=3),
  'v6e': Chip('tpu', 31.25 * GIB, axes=2),
  'h100': Chip('gpu', 0.75 * 84_942_979_072, card=84_942_979_072, bandwidth=3352e9),
  'h200': Chip('gpu', 0.75 * 150_754_820_096, card=150_754_820_096, bandwidth=4800e9),
}


class Topology(NamedTuple):
  """Chips of one kind, and their arrangement."""

  name: str
  chip: Chip
  shape: tuple[int, ...]  # the sizes of a TPU's axes, or hosts and GPUs of each

  @property
  def chip_count(self) -> int:
    return math.prod(self.shape)


def topology(name: str) -> Topology:
  """Returns the topology of a name; raises UserError if there is none of that name."""
  kind, _, sizes = name.partition(':')
  if kind not in CHIPS:
    raise UserError(
      f'--topology={name}: {kind} is unknown; known are {", ".join(CHIPS)}, such as '
      'h100:8'
    )
  chip = CHIPS[kind]
  if re.fullmatch(r'[1-9]\d*(x[1-9]\d*)*', sizes):
    shape = tuple(map(int, sizes.split('x')))
    if chip.platform == 'tpu' and len(shape) == chip.axes:
      return Topology(name, chip, shape)
    hosts = max(1, shape[0] // GPUS_OF_HOST)
    if chip.platform == 'gpu' and shape in [(1,), (2,), (4,), (hosts * GPUS_OF_HOST,)]:
      return Topology(name, chip, (hosts, shape[0] // hosts))
  needed = f'{chip.axes} sizes' if chip.axes else '1, 2, 4 or a multiple of 8 GPUs'
  examples = ', '.join(example for example in EXAMPLES if example.startswith(kind))
  raise UserError(f'--topology={name}: {kind} has {needed}, such as {examples}')


def devices_of(topology: Topology) -> list[jax.Device]:
  """Returns a topology's devices, which JAX can compile for and nothing else."""
  name, chip = topology.name, topology.chip
  if chip.platform == 'gpu':
    hosts, each = topology.shape
    kind = name.partition(':')[0].upper()  # as JAX knows it
    text = GPU.format(bandwidth=chip.bandwidth, card=chip.card, kind=kind)
    return topologies.get_topology_desc(
      platform='cuda', topology=f'1x{hosts}x{each}', target_config=text
    ).devices
  options: dict[str, Any] = {}
  if name.startswith('v4'):  # else each of a chip's two cores is a device
    options['chip_config_name'] = 'megacore'
  if topology.chip_count < 4:  # a host has 4 chips by default
    options['chips_per_host_bounds'] = (1, 1, 1)
  return topologies.get_topology_desc(name, platform='tpu', **options).devices
