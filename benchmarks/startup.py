"""From the start of a program to its first update, with a cold and a warm cache.

Two processes measure it: the first has an empty cache of compiled programs, the second
finds there what the first one compiled.
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

from benchmarks.fixed_shape import FIRST_WORD
from transformer_jax.data import batches
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError, in_one_line
from transformer_jax.training.trainer import Trainer

FIRST_STEP = 'first step'


def measure(command: Sequence[str], cache: pathlib.Path) -> dict:
  """Runs `command`, this module as a program, twice; `cache` is an empty folder.

  Returns:
    `cold` and `warm`, each what take_steps() prints and `first_step_seconds`.

  Raises:
    UserError: the program failed; it has said why on stderr.
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
    raise UserError(f'{" ".join(command)} failed: exit code {process.returncode}')
  return {'first_step_seconds': taken} | json.loads(found)


def take_steps(config: ml_collections.ConfigDict, corpus: pathlib.Path) -> None:
  """Makes an update of every shape of batch, and prints FIRST_STEP after the first.

  Then prints, as JSON, `compile_seconds`, after which all shapes were compiled, and the
  `peak_bytes` of the first device's memory, or of the whole process's where devices do
  not tell (a CPU).
  """
  platform.start(config.slices)
  trainer = Trainer(config, corpus)
  state = trainer.initial()
  begin = time.perf_counter()
  with trainer.compile(state, trainer.batches.shapes_from(0)) as programs:
    first = trainer.batch(0)
    state, sums = trainer.step(state, first)
    jax.block_until_ready(sums)
    print(FIRST_STEP, flush=True)
    programs.wait_for_all()
  seconds = time.perf_counter() - begin
  for shape in {*trainer.batches.shapes} - {first.shape}:
    state, sums = trainer.step(state, full_batch(trainer, shape))
    jax.block_until_ready(sums)
  print(json.dumps({'compile_seconds': seconds} | peak_memory()))


def full_batch(trainer: Trainer, shape: batches.Shape) -> batches.Batch:
  """This host's slices of a batch of this shape that has no padding."""
  slices = len(trainer.batch(0).source)
  side = lambda most: np.full((slices, shape.rows, most), FIRST_WORD, np.int32)
  pairs = np.zeros((slices, shape.rows), np.int64)
  return batches.Batch(side(shape.source), side(shape.target), pairs)


def peak_memory() -> dict:
  stats = jax.local_devices()[0].memory_stats()
  if stats is not None and 'peak_bytes_in_use' in stats:
    return {'peak_bytes': stats['peak_bytes_in_use'], 'memory_of': 'device'}
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  unit = 1 if sys.platform == 'darwin' else 1024
  return {'peak_bytes': most * unit, 'memory_of': 'process'}


if __name__ == '__main__':  # CONFIG.json CORPUS
  read = ml_collections.ConfigDict(json.loads(pathlib.Path(sys.argv[1]).read_text()))
  with in_one_line():
    take_steps(read, pathlib.Path(sys.argv[2]))
