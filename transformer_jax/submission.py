"""Jobs of a sweep handed to Slurm, or to submitit's stand-in for it; no JAX.

Several stand side by side on a node and share its GPUs. submitit keeps the jobs,
in a folder beside the runs: whoever can write there can run code as the user.
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.sweep import POLL, Busy, Job, State, attempt, failure, state

MEMORY = 0.9  # of a GPU, for the runs that share it
SPELLS = 100  # of a job, each of the time it was submitted for; submitit's own are 4


class Node:
  """Jobs side by side on one machine: what is pickled, and called there by submitit."""

  def __init__(self, jobs: Sequence[Job]):
    self.jobs = jobs
    self._stopped = False
    self._ended: list[str] = []

  def __call__(self) -> dict[str, str]:
    """The state in which each job ended; one that failed stops no other."""
    visible = [x for x in os.environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if x]
    shared = shares(visible, len(self.jobs))
    # By scancel and at preemption, half a minute before SIGKILL, and to this process
    # alone: those that it started hear of it from here.
    before = signal.signal(signal.SIGTERM, self._stop)
    try:
      with concurrent.futures.ThreadPoolExecutor(len(self.jobs)) as pool:
        return dict(pool.map(self._run, self.jobs, shared))
    finally:
      signal.signal(signal.SIGTERM, before)

  def checkpoint(self) -> Any:
    """Told to make room: ends the jobs, which save, and returns what goes on later."""
    from submitit.helpers import DelayedSubmission

    self._stop()
    while len(self._ended) < len(self.jobs):
      time.sleep(POLL)
    return DelayedSubmission(Node(self.jobs))

  def _stop(self, *_: object) -> None:
    self._stopped = True

  def _run(self, job: Job, environment: dict[str, str]) -> tuple[str, str]:
    try:
      ended = state(job)
      if ended is State.WAITING:
        ended = attempt(job, lambda: self._stopped, environment=environment)
    except Busy:
      ended = State.RUNNING
    finally:
      self._ended.append(job.name)
    print(failure(job) if ended is State.FAILED else f'{job.name}: {ended}', flush=True)
    return job.name, str(ended)


def submit(
  jobs: Sequence[Job],
  cluster: str,
  folder: pathlib.Path,
  per_node: int,
  parameters: Mapping[str, int | str],
) -> list[str]:
  """Submits the jobs that wait, `per_node` of them as one; a line on each submission.

  `cluster` is 'slurm', or 'local' for processes of this machine. `folder` keeps what
  submitit writes; `parameters` are those of its AutoExecutor.update_parameters.
  """
  # Trainers save at USR1; USR2, submitit's own choice, would kill them.
  os.environ['SUBMITIT_PREEMPT_SIGNAL'] = 'USR1'
  import submitit

  queued = _queued(jobs)
  waiting = [job for job in jobs if state(job) is State.WAITING and job not in queued]
  if not waiting:
    return []
  executor = submitit.AutoExecutor(
    folder, cluster=cluster, slurm_max_num_timeout=SPELLS - 1
  )
  executor.update_parameters(name='sweep', **parameters)
  nodes = [Node(waiting[i : i + per_node]) for i in range(0, len(waiting), per_node)]
  with executor.batch():
    submitted = [executor.submit(node) for node in nodes]
  for node, one in zip(nodes, submitted, strict=True):
    for job in node.jobs:
      job.run.workdir.mkdir(parents=True, exist_ok=True)
      note = job.run.workdir / 'sweep.queued.json'
      note.write_text(json.dumps({'cluster': cluster, 'id': one.job_id}) + '\n')
  return [
    f'{one.job_id}: {" ".join(job.name for job in node.jobs)}'
    for node, one in zip(nodes, submitted, strict=True)
  ]


def _queued(jobs: Sequence[Job]) -> set[Job]:
  """Those that are part of a Slurm job which runs or will."""
  numbers = {}
  for job in jobs:
    note = job.run.workdir / 'sweep.queued.json'
    queued = json.loads(note.read_text()) if note.is_file() else {'cluster': None}
    if queued['cluster'] == 'slurm':
      numbers[job] = queued['id']
  if not numbers:
    return set()
  # submitit asks sacct, which knows of no job where no accounting daemon runs.
  command = 'squeue', '--noheader', '--array', '--format=%i'
  found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
  there = found.stdout.split()  # 12, or 12_0 of an array
  return {job for job, number in numbers.items() if number in there}


def shares(visible: Sequence[str], jobs: int) -> list[dict[str, str]]:
  """Environment of each of `jobs`, GPUs divided; of no GPU there is nothing to say."""
  if not visible:
    return [{}] * jobs
  each = max(1, len(visible) // jobs)
  found = []
  for i in range(jobs):
    first = i * each % len(visible)
    mine = {'CUDA_VISIBLE_DEVICES': ','.join(visible[first : first + each])}
    if jobs > len(visible):
      together = -(-jobs // len(visible))
      mine['XLA_PYTHON_CLIENT_MEM_FRACTION'] = f'{MEMORY / together:.3f}'
    found.append(mine)
  return found
