"""What a config costs: memory on devices that are not here, time on those that are."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import ml_collections
import numpy as np

from transformer_jax import config as configs
from transformer_jax.data.batches import Shape
from transformer_jax.machine import platform
from transformer_jax.machine.devices import Devices, compile_if_it_fits
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.scale import compile, topologies
from transformer_jax.training.step import StepInput, TrainState, adam

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
UPDATES = 3  # that are timed


def on_topology(
  config: ml_collections.ConfigDict, name: str, length: int
) -> dict[str, Any]:
  """Returns what compile.compiled() returns for a topology; it takes minutes.

  Raises:
    UserError: there is no such topology, or no compiler for it here.
  """
  topology = topologies.topology(name)
  packages, extra = COMPILERS[topology.chip.platform]
  if not any(map(importlib.util.find_spec, packages)):
    raise UserError(f"{name} needs {packages[0]}: pip install -e '.[{extra}]'")
  request = {'topology': name, 'config': configs.as_json(config), 'length': length}
  compiler = subprocess.run(
    [sys.executable, '-m', compile.__name__],
    input=json.dumps(request),
    env=os.environ | ENVIRONMENT,
    capture_output=True,
    text=True,
  )
  if compiler.returncode:
    raise UserError(f'{name}: the compiler ended:\n{compiler.stderr[-2000:]}')
  head = {'topology': name, 'devices': topology.count, 'memory': topology.chip.memory}
  return head | json.loads(compiler.stdout.splitlines()[-1])


def lines(result: dict[str, Any]) -> Iterator[str]:
  """Yields what on_topology() has returned, in words."""
  yield (
    f'{result["topology"]}: {result["devices"]} devices of '
    f'{result["memory"] / 1e9:.1f} GB, processes: {result["processes"]}; compiled, not '
    'run'
  )
  yield (
    f'  batch: {result["slices"]} slices of {result["rows"]} pairs of '
    f'{result["length"]} tokens; {result["slices_per_device"]} a device, '
    f'{result["slices_per_pass"]} at once'
  )
  for what in 'step', 'search':
    yield f'  {what}: {_memory(result[what])}'
  yield (
    f'  a step of one device: {result["flops"] / 1e12:.3f} TFLOP; all-reduce sums '
    f'{result["all_reduce_bytes"] / 1e6:,.1f} MB over devices'
  )


def _memory(program: dict[str, Any]) -> str:
  if 'refused' in program:
    return f'the compiler refuses it: {program["refused"]}'
  return (
    f'{program["arguments"] / 1e9:.2f} GB of arguments, '
    f'{program["temporaries"] / 1e9:.2f} GB of temporaries; '
    + ('fits' if program['fits'] else 'does not fit')
  )


def here(config: ml_collections.ConfigDict, shape: Shape) -> dict[str, Any]:
  """Compiles the step for one shape of slice on all devices here, and times updates.

  Returns:
    The device, `seconds` of an update, and `hours` of all the config's updates. Padding
    is in the shape; dev scores and checkpoints come on top.
  """
  devices = Devices(config.slices)
  for slices_per_pass in devices.pass_sizes:
    lowered = compile.lower_step(config, jax.devices(), shape, slices_per_pass)
    step = compile_if_it_fits(lowered)
    if step is not None:
      break
  else:
    raise UserError('one slice does not fit into memory: raise --config.slices')
  _, params = build.transformer(config)
  state = TrainState(np.int32(0), params, adam(config).init(params))
  ids = lambda *sizes: np.ones((config.slices, *sizes), np.int32)
  pairs = ids(shape.rows, shape.source), ids(shape.rows, shape.target)
  inputs = devices.split(StepInput(*pairs, ids(2)))
  state, seed = devices.replicate((state, np.int32(config.seed)))
  for count in 1, UPDATES:  # the first warms up
    start = time.perf_counter()
    for _ in range(count):
      state, sums = step(state, inputs, seed)
    jax.block_until_ready(sums)
  seconds = (time.perf_counter() - start) / UPDATES
  return {
    'device': platform.describe_device(),
    'shape': [config.slices, *shape],
    'seconds': seconds,
    'hours': config.train_steps * seconds / 3600,
  }
