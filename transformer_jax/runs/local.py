"""Jobs of a sweep on this machine, several at a time, each on a part of the machine.

A small model keeps neither a GPU nor several cores busy: two at once, each on half of
the machine, are done sooner than one after the other on the whole of it.
"""

import concurrent.futures
import os
import queue
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer_jax.machine import environment
from transformer_jax.runs.job import POLL, Job, JobClaimed, JobState

MEMORY = 0.9  # the fraction of a GPU that the runs on it divide among them


class MachinePart(NamedTuple):
  """The cores and GPUs that one of several jobs may use."""

  cores: tuple[int, ...]  # their numbers
  environment: dict[str, str]  # variables that tell JAX its GPUs


def run(
  jobs: Sequence[Job],
  together: int,
  is_stopped: Callable[[], bool],
  tick: Callable[[], None],
  say: Callable[[str], None],
) -> dict[str, JobState]:
  """Runs the jobs that wait, `together` at a time; one that fails stops no other.

  Args:
    is_stopped: once it is true, no job begins and those that run are stopped.
    tick: called again and again from this thread.
    say: called with a line or more where a job begins or ends.

  Returns: the state in which each job was left, by the job's name.
  """
  left: queue.SimpleQueue[Job] = queue.SimpleQueue()
  for job in jobs:
    left.put(job)
  waiting = sum(job.state() is JobState.WAITING for job in jobs)
  ended: dict[str, JobState] = {}

  def work(part: MachinePart) -> None:
    if hasattr(os, 'sched_setaffinity'):
      # Of this thread, from which the processes that it starts inherit it.
      os.sched_setaffinity(0, part.cores)
    while not is_stopped():
      try:
        job = left.get_nowait()
      except queue.Empty:
        return
      ended[job.name] = _run_one(job, part, is_stopped, say)

  parts = divide_machine(max(1, min(together, waiting)))
  with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
    workers = [pool.submit(work, part) for part in parts]
    while not all(worker.done() for worker in workers):
      tick()
      time.sleep(POLL)
  for worker in workers:
    worker.result()  # raises the exception of its thread
  return {job.name: job.state() for job in jobs} | ended


def _run_one(
  job: Job,
  part: MachinePart,
  is_stopped: Callable[[], bool],
  say: Callable[[str], None],
) -> JobState:
  found = job.state()
  if found is JobState.FAILED:
    say(f'{job.failure()}\n  --retry_failed runs it again')
  if found is not JobState.WAITING:
    return found
  say(f'{job.name}: log in {job.log}')
  try:
    ended = job.attempt(is_stopped, part.environment, say)
  except JobClaimed:
    ended = JobState.RUNNING
  except OSError as error:  # such as a folder that cannot be written: not the others'
    say(f'{job.name} failed: {error}')
    return JobState.FAILED
  say(job.failure() if ended is JobState.FAILED else f'{job.name}: {ended}')
  return ended


def divide_machine(jobs: int) -> list[MachinePart]:
  """A part for each job. If there are fewer cores or GPUs than jobs, some share one."""
  cores = environment.cores()
  gpus = _visible_gpus() if jobs > 1 else []  # one job alone uses all that it finds
  return [
    MachinePart(
      tuple(cores[n] for n in _indices(len(cores), jobs, i)),
      _gpu_variables(gpus, jobs, i),
    )
    for i in range(jobs)
  ]


def _visible_gpus() -> list[str]:
  """Numbers or names of the GPUs that CUDA may use here."""
  if 'CUDA_VISIBLE_DEVICES' in os.environ:
    return [x for x in os.environ['CUDA_VISIBLE_DEVICES'].split(',') if x]
  if shutil.which('nvidia-smi') is None:
    return []
  command = 'nvidia-smi', '--query-gpu=index', '--format=csv,noheader'
  asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
  return asked.stdout.split() if asked.returncode == 0 else []


def _gpu_variables(gpus: Sequence[str], jobs: int, i: int) -> dict[str, str]:
  """Variables that give job i its GPUs, and its part of the memory of one it shares."""
  if not gpus:
    return {}
  part = [gpus[n] for n in _indices(len(gpus), jobs, i)]
  variables = {'CUDA_VISIBLE_DEVICES': ','.join(part)}
  if jobs > len(gpus):
    sharing = -(-jobs // len(gpus))
    variables['XLA_CLIENT_MEM_FRACTION'] = f'{MEMORY / sharing:.3f}'
    # The variable's old name is unset, because JAX refuses to have both.
    variables['XLA_PYTHON_CLIENT_MEM_FRACTION'] = ''
  return variables


def _indices(count: int, jobs: int, i: int) -> range:
  """Which of `count` cores or GPUs job i has: as many as any other, at least one."""
  each = max(1, count // jobs)
  first = i * each % count
  return range(first, first + each)
