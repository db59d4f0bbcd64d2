"""Accelerators as their makers publish them, and topologies of them by name.

Sources, read in 2026. Rates of links are one way: the sum over a chip's ports.

- v4: https://cloud.google.com/tpu/docs/v4; links of 50 GB/s, 6 a chip: Jouppi et al.
  2023, arXiv 2304.01433.
- v5e: https://cloud.google.com/tpu/docs/v5e
- v5p: https://cloud.google.com/tpu/docs/v5p
- v6e: https://cloud.google.com/tpu/docs/v6e
- H100 (SXM, dense bfloat16): https://www.nvidia.com/en-us/data-center/h100/; between
  hosts a network card of 400 Gb/s for each GPU, as in a DGX H100:
  https://docs.nvidia.com/dgx/dgxh100-user-guide/
- H200: https://www.nvidia.com/en-us/data-center/h200/
"""

import dataclasses
import functools
import math
import re

from transformer_jax.machine.errors import UserError

GIB = 2**30
EXAMPLES = (
  *('v4:2x2x2', 'v4:4x4x4', 'v5e:1x1', 'v5e:2x4', 'v5e:8x8', 'v5p:2x2x2', 'v5p:4x4x4'),
  *('v6e:2x4', 'v6e:8x8', 'h100:1', 'h100:8', 'h100:64', 'h200:1', 'h200:8'),
)
GPUS_OF_HOST = 8
BETWEEN_HOSTS = 50e9  # bytes a second of a GPU's network card


@dataclasses.dataclass(frozen=True)
class Chip:
  """One accelerator.

  Attributes:
    platform: JAX's name of its kind.
    peak: FLOPs a second of bfloat16 products.
    bandwidth: bytes a second of its memory.
    memory: bytes that a program can have. TPUs: what the compiler says when it refuses
      a program. GPUs: the 75 % of the card that JAX takes.
    links: bytes a second to its neighbours, one way.
    ports: the neighbours that a TPU may have.
    ring: an axis of a multiple of so many TPUs is closed to a ring.
  """

  platform: str
  peak: float
  bandwidth: float
  memory: float
  links: float
  ports: int = 0
  ring: int = 0


CHIPS = {
  'v4': Chip('tpu', 275e12, 1200e9, 30.75 * GIB, 300e9, ports=6, ring=4),
  'v5e': Chip('tpu', 197e12, 819e9, 15.75 * GIB, 200e9, ports=4, ring=16),
  'v5p': Chip('tpu', 459e12, 2765e9, 95.74 * GIB, 600e9, ports=6, ring=4),
  'v6e': Chip('tpu', 918e12, 1640e9, 31.25 * GIB, 400e9, ports=4, ring=16),
  'h100': Chip('gpu', 989e12, 3352e9, 0.75 * 84_942_979_072, 450e9),
  'h200': Chip('gpu', 989e12, 4800e9, 0.75 * 150_754_820_096, 450e9),
}


@dataclasses.dataclass(frozen=True)
class Topology:
  """So many chips, and how they are connected.

  Attributes:
    name: such as v5e:2x4 or h100:64.
    shape: the sizes of a TPU's axes, or hosts and GPUs of each.
  """

  name: str
  shape: tuple[int, ...]

  @functools.cached_property
  def chip(self) -> Chip:
    return CHIPS[self.name.partition(':')[0]]

  @property
  def count(self) -> int:
    return math.prod(self.shape)

  def all_reduce_seconds(self, size: float) -> float:
    """Returns the least time in which every chip gets the sum of `size` bytes.

    Each of n chips sends 2 (n - 1) / n of them at least. A TPU at a corner of a mesh
    uses few of its ports. GPUs sum within their hosts and between them, at once.
    """
    sent = lambda n: 2 * (n - 1) / n * size
    if self.chip.platform == 'gpu':
      hosts, each = self.shape
      between = sent(hosts) / each / BETWEEN_HOSTS
      return max(sent(each) / self.chip.links, between)
    if self.count == 1:
      return 0.0
    of_axis = lambda n: 0 if n == 1 else 2 if n % self.chip.ring == 0 else 1
    ports = sum(map(of_axis, self.shape))
    return sent(self.count) / (self.chip.links * ports / self.chip.ports)


def topology(name: str) -> Topology:
  """Returns the topology of a name; raises UserError if there is none of that name."""
  chip, _, sizes = name.partition(':')
  if chip in CHIPS and re.fullmatch(r'[1-9]\d*(x[1-9]\d*)*', sizes):
    shape = tuple(map(int, sizes.split('x')))
    if CHIPS[chip].platform == 'gpu':
      hosts = max(1, shape[0] // GPUS_OF_HOST)
      if len(shape) == 1 and shape[0] in (hosts * GPUS_OF_HOST, 1, 2, 4):
        return Topology(name, (hosts, shape[0] // hosts))
    elif len(shape) == CHIPS[chip].ports // 2:
      return Topology(name, shape)
  raise UserError(f'--topology={name}: such as {", ".join(EXAMPLES)}')
