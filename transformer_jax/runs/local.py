"""Jobs of a sweep on this machine, several at a time, its cores and GPUs divided.

A small model keeps neither a GPU nor several cores busy: two of them at once, each with
half of the machine, are sooner done than one after the other with the whole of it.
"""

import concurrent.futures
import os
import queue
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer_jax.machine import processor
from transformer_jax.runs.sweep import POLL, Busy, Job, State, attempt, failure, state

MEMORY = 0.9  # of a GPU, for the runs that share it


class Share(NamedTuple):
  """What one of several jobs has of the machine."""

  cores: tuple[int, ...]  # their numbers
  environment: dict[str, str]


def run(
  jobs: Sequence[Job],
  together: int,
  is_stopped: Callable[[], bool],
  tick: Callable[[], None],
  say: Callable[[str], None],
) -> dict[str, State]:
  """Runs the jobs that wait, `together` at a time; those that fail stop no other.

  `tick` is called again and again from this thread, `say` with a line or more where a
  job begins or ends. Once `is_stopped()`, no job begins and those that run are stopped.

  Returns: in what state each job was left, by its name.
  """
  left: queue.SimpleQueue[Job] = queue.SimpleQueue()
  for job in jobs:
    left.put(job)
  waiting = sum(state(job) is State.WAITING for job in jobs)
  ended: dict[str, State] = {}

  def work(share: Share) -> None:
    if hasattr(os, 'sched_setaffinity'):
      os.sched_setaffinity(0, share.cores)  # this thread's, and what it starts has them
    while not is_stopped():
      try:
        job = left.get_nowait()
      except queue.Empty:
        return
      ended[job.name] = _one(job, share, is_stopped, say)

  machine = shares(max(1, min(together, waiting)))
  with concurrent.futures.ThreadPoolExecutor(len(machine)) as pool:
    workers = [pool.submit(work, share) for share in machine]
    while not all(worker.done() for worker in workers):
      tick()
      time.sleep(POLL)
  for worker in workers:
    worker.result()  # raises what was raised there
  return {job.name: state(job) for job in jobs} | ended


def _one(
  job: Job, share: Share, is_stopped: Callable[[], bool], say: Callable[[str], None]
) -> State:
  found = state(job)
  if found is not State.WAITING:
    return found
  say(f'{job.name}: log in {job.run.workdir / "sweep.log"}')
  try:
    ended = attempt(job, is_stopped, share.environment)
  except Busy:
    ended = State.RUNNING
  except OSError as error:  # its folder cannot be written, say: no reason to end others
    say(f'{job.name} failed: {error}')
    return State.FAILED
  say(failure(job) if ended is State.FAILED else f'{job.name}: {ended}')
  return ended


def shares(jobs: int) -> list[Share]:
  """This machine's cores and GPUs divided by `jobs`, or shared where they are fewer."""
  cores = processor.cores()
  visible = gpus() if jobs > 1 else []  # one alone has what it finds
  return [
    Share(
      tuple(cores[n] for n in _part(len(cores), jobs, i)),
      _environment(visible, jobs, i),
    )
    for i in range(jobs)
  ]


def gpus() -> list[str]:
  """Numbers or names of the GPUs that CUDA has here."""
  if 'CUDA_VISIBLE_DEVICES' in os.environ:
    return [x for x in os.environ['CUDA_VISIBLE_DEVICES'].split(',') if x]
  if shutil.which('nvidia-smi') is None:
    return []
  command = 'nvidia-smi', '--query-gpu=index', '--format=csv,noheader'
  asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
  return asked.stdout.split() if asked.returncode == 0 else []


def _environment(visible: Sequence[str], jobs: int, i: int) -> dict[str, str]:
  if not visible:
    return {}
  part = [visible[n] for n in _part(len(visible), jobs, i)]
  mine = {'CUDA_VISIBLE_DEVICES': ','.join(part)}
  if jobs > len(visible):
    sharing = -(-jobs // len(visible))
    mine['XLA_CLIENT_MEM_FRACTION'] = f'{MEMORY / sharing:.3f}'
    mine['XLA_PYTHON_CLIENT_MEM_FRACTION'] = ''  # its old name; JAX refuses both
  return mine


def _part(there: int, jobs: int, i: int) -> range:
  """Which of them job i has: as many as any other; where they are fewer, one."""
  if not there:
    return range(0)
  each = max(1, there // jobs)
  first = i * each % there
  return range(first, first + each)
