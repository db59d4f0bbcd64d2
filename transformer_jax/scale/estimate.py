"""What a config needs on a topology, and the least time that its training takes.

The times are bounds, by the chip's published rates: nothing has run. A real step takes
longer, because no program reaches all of these rates, and because of the gaps between
kernels.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ml_collections

from transformer_jax import config as configs
from transformer_jax.data.batches import PAPER_TOKENS
from transformer_jax.machine.errors import UserError
from transformer_jax.report import paper
from transformer_jax.scale import chips

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


def estimate(
  config: ml_collections.ConfigDict, name: str, length: int
) -> dict[str, Any]:
  """Returns what a config needs on the topology of that name; compiling takes minutes.

  Sizes are in bytes and those of one device, times in seconds.

  Args:
    length: source and target tokens of each pair of the batch that is compiled.

  Raises:
    UserError: there is no such topology, or no compiler for it here.
  """
  topology = chips.topology(name)
  packages, extra = COMPILERS[topology.chip.platform]
  if not any(map(importlib.util.find_spec, packages)):
    raise UserError(f"{name} needs {packages[0]}: pip install '.[{extra}]'")
  request = {'topology': name, 'config': configs.as_json(config), 'length': length}
  compiler = subprocess.run(
    [sys.executable, '-m', 'transformer_jax.scale.compile'],
    input=json.dumps(request),
    env=os.environ | ENVIRONMENT,
    capture_output=True,
    text=True,
  )
  if compiler.returncode:
    raise UserError(f'{name}: the compiler ended:\n{compiler.stderr[-2000:]}')
  compiled = json.loads(compiler.stdout.splitlines()[-1])
  head = {'topology': name, 'devices': topology.count, 'memory': topology.chip.memory}
  return head | compiled | least_time(topology, compiled, config.train_steps)


def least_time(
  topology: chips.Topology, compiled: dict[str, Any], updates: int
) -> dict[str, Any]:
  """Returns the least time of a step, and what follows from it; {} if it does not fit.

  Products, memory and links may all work at the same time, so the longest counts.
  """
  step, chip = compiled['step'], topology.chip
  if not step['fits']:
    return {}
  seconds = {
    'compute': step['flops'] / chip.peak,
    'memory': step['bytes_moved'] / chip.bandwidth,
    'links': topology.all_reduce_seconds(sum(step['collectives'].values())),
  }
  total = max(seconds.values())
  tokens = compiled['slices'] * step['rows'] * step['length']
  paper_tokens = paper.TRAINING['base'].steps * PAPER_TOKENS
  return {
    'seconds': seconds | {'step': total},
    'binds': max(seconds, key=seconds.get),
    'target_tokens_per_second': tokens / total,
    'hours': updates * total / 3600,
    # Target tokens of the whole training, as a fraction of those of the paper's base.
    'of_paper_tokens': updates * tokens / paper_tokens,
  }


def lines(result: dict[str, Any]) -> Iterator[str]:
  """Yields what estimate() has returned, in words."""
  step, search = result['step'], result['search']
  yield (
    f'{result["topology"]}: {result["devices"]} devices of '
    f'{result["memory"] / 1e9:.1f} GB, processes: {result["processes"]}; compiled, not '
    'run'
  )
  each = result['slices'] // result['devices']
  yield (
    f'  batch: {result["slices"]} slices of {step["rows"]} pairs of {step["length"]} '
    f'tokens; {each} a device, {step["slices_at_once"]} at once (memory has room for '
    f'some {step.get("slices_that_fit", 0)})'
  )
  for what, program in ('training step', step), ('search', search):
    yield f'  {what}: {_memory(program)}'
  if 'seconds' not in result:
    return
  sums = [f'{n / 1e6:,.1f} MB by {kind}' for kind, n in step['collectives'].items()]
  yield (
    f'  a step of one device: {step["flops"] / 1e12:.3f} TFLOP, '
    f'{step["bytes_moved"] / 1e9:.2f} GB to and from memory; between devices '
    + (', '.join(sums) or 'nothing')
  )
  ms = {name: f'{1e3 * x:.2f}' for name, x in result['seconds'].items()}
  yield (
    f'  least time: {ms["step"]} ms (compute {ms["compute"]}, memory {ms["memory"]}, '
    f'links {ms["links"]}; {result["binds"]} binds): at most '
    f'{result["target_tokens_per_second"]:,.0f} target tokens/s'
  )
  yield (
    f'  all updates: {result["hours"]:.2f} hours at least; they read '
    f"{result['of_paper_tokens']:.2f} times the tokens of the paper's base"
  )


def _memory(program: dict[str, Any]) -> str:
  if 'refused' in program:
    return f'the compiler refuses it: {program["refused"]}'
  return (
    f'{program["arguments"] / 1e9:.2f} GB of arguments, '
    f'{program["temporaries"] / 1e9:.2f} GB of temporaries; '
    + ('fits' if program['fits'] else 'does not fit')
  )
