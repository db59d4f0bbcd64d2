"""From the start of a program to its first update, with and without compiled programs.

Two processes of their own tell it: the first has an empty folder of compiled programs,
the second finds there what the first one left.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import jax
import ml_collections
import numpy as np

from transformer_jax.benchmark.fixed import FIRST_WORD
from transformer_jax.data import batches
from transformer_jax.machine import platform
from transformer_jax.training.trainer import Trainer

FIRST_STEP = 'first step'


def measure(command: Sequence[str], cache: pathlib.Path) -> dict:
  """Runs `command`, which calls take_steps(), twice; `cache` is empty.

  Returns:
    `cold` and `warm`, each what take_steps() found and `first_step_seconds`.
  """
  return {name: _run(command, cache) for name in ('cold', 'warm')}


def _run(command: Sequence[str], cache: pathlib.Path) -> dict:
  environment = os.environ | {'JAX_COMPILATION_CACHE_DIR': str(cache)}
  begin = time.perf_counter()
  with subprocess.Popen(
    command, env=environment, stdout=subprocess.PIPE, text=True
  ) as process:
    line = process.stdout.readline()
    taken = time.perf_counter() - begin
    found = process.stdout.read()
  if process.returncode or line.strip() != FIRST_STEP:
    raise RuntimeError(f'{" ".join(command)} failed: {process.returncode}')
  return {'first_step_seconds': taken} | json.loads(found)


def take_steps(config: ml_collections.ConfigDict, corpus: pathlib.Path) -> None:
  """An update of every shape of batch; says when the first is over, then what it took.

  That is `compile_seconds` of all shapes, and `peak_bytes` of the first device's memory
  or, where devices do not tell (a CPU), of the whole process's.
  """
  platform.start(config.slices)
  trainer = Trainer(config, corpus)
  state = trainer.initial()
  begin = time.perf_counter()
  trainer.compile(state, iter)
  seconds = time.perf_counter() - begin
  first = trainer.batch(0)
  state, sums = trainer.step(state, first)
  jax.block_until_ready(sums)
  print(FIRST_STEP, flush=True)
  for shape in {*trainer.batches.shapes} - {first.source.shape[1:]}:
    state, sums = trainer.step(state, full(trainer, shape))
    jax.block_until_ready(sums)
  print(json.dumps({'compile_seconds': seconds} | peak_memory()))


def full(trainer: Trainer, shape: batches.Shape) -> batches.Batch:
  """A batch of this shape without padding, of this host's slices."""
  slices = len(trainer.batch(0).source)
  side = np.full((slices, *shape), FIRST_WORD, np.int32)
  return batches.Batch(side, side, np.zeros(side.shape[:2], np.int64))


def peak_memory() -> dict:
  stats = jax.local_devices()[0].memory_stats()
  if stats is not None and 'peak_bytes_in_use' in stats:
    return {'peak_bytes': stats['peak_bytes_in_use'], 'memory_of': 'device'}
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  unit = 1 if sys.platform == 'darwin' else 1024
  return {'peak_bytes': most * unit, 'memory_of': 'process'}
