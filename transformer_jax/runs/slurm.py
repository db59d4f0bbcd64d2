"""Jobs of a sweep handed to Slurm, or to submitit's stand-in for it; no JAX.

submitit keeps the jobs, in a folder beside the runs: whoever can write there can run
code as the user.
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

from transformer_jax.runs import local
from transformer_jax.runs.sweep import POLL, Job, State, state

SPELLS = 100  # of a job, each of the time it was submitted for; submitit's own are 4


class Node:
  """Jobs side by side on one machine: what is pickled, and called there by submitit."""

  def __init__(self, jobs: Sequence[Job]):
    self.jobs = jobs
    self._stopped = False
    self._running: concurrent.futures.Future[dict[str, State]]

  def __call__(self) -> dict[str, State]:
    """The state in which each job was left; one that failed stops no other."""
    # By scancel and at preemption, half a minute before SIGKILL, and to this process
    # alone: those that it started hear of it from here.
    before = signal.signal(signal.SIGTERM, self._stop)
    try:
      with concurrent.futures.ThreadPoolExecutor(1) as pool:
        self._running = pool.submit(
          local.run,
          self.jobs,
          together=len(self.jobs),
          is_stopped=lambda: self._stopped,
          tick=lambda: None,
          say=lambda text: print(text, flush=True),
        )
        return self._running.result()
    finally:
      signal.signal(signal.SIGTERM, before)

  def checkpoint(self) -> Any:
    """Told to make room: ends the jobs, which save, and returns what goes on later."""
    from submitit.helpers import DelayedSubmission

    self._stop()
    # In a signal's handler, within the other's result().
    while not self._running.done():
      time.sleep(POLL)
    return DelayedSubmission(Node(self.jobs))

  def _stop(self, *_: object) -> None:
    self._stopped = True


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
