"""What training costs before the model: start-up, memory, and assembling batches."""

import pathlib
import statistics
import time
from collections.abc import Callable

from transformer_jax.data.batches import Batches


def private_megabytes() -> float | None:
  """Memory of this process that no file backs; None if the system does not tell."""
  path = pathlib.Path('/proc/self/smaps_rollup')
  if not path.is_file():
    return None
  lines = path.read_text().splitlines()
  kilobytes = next(x.split()[1] for x in lines if x.startswith('Anonymous:'))  # of 1024
  return int(kilobytes) * 1024 / 1e6


def measure(make: Callable[[], Batches], steps: int) -> dict:
  """Times make(), the first batch and `steps` batches more in this one process.

  Returns:
    One object for JSON. `first_batch_seconds` includes the ordering of an epoch.
  """
  before, begin = private_megabytes(), time.perf_counter()
  made = make()
  start = time.perf_counter() - begin
  made.batch(0)
  first = time.perf_counter() - begin - start
  taken, tokens = [], 0
  for step in range(1, steps + 1):
    begin = time.perf_counter()
    batch = made.batch(step)
    taken.append(time.perf_counter() - begin)
    tokens += batch.target_tokens
  after = private_megabytes()
  return {
    'steps': steps,
    'pairs': len(made.source),
    'start_seconds': start,
    'first_batch_seconds': first,
    'median_batch_seconds': statistics.median(taken),
    'target_tokens_per_second': tokens / sum(taken),
    'private_megabytes': None if before is None else after - before,
    'padding': made.padding,
  }
