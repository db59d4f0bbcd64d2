"""Jobs of a sweep submitted to Slurm, or to submitit's local stand-in for it; no JAX.

submitit pickles the jobs into a folder beside the runs: whoever can write there can run
code as the user. `sweep.queued.json` in a run's folder names the cluster and the number
of the submission that the run is part of.
"""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.jobs import POLL, Job, JobState, run_jobs
from transformer_jax.runs.sweep import Plan, describe_progress

STARTS = 100  # of a submission: it is queued again whenever its time is up
_NOTE = 'sweep.queued.json'  # in a run's folder


class Node:
  """Jobs that run at once on one machine, where submitit unpickles and calls it."""

  def __init__(self, jobs: Sequence[Job]):
    self.jobs = jobs
    self._stopped = False
    self._running: concurrent.futures.Future[dict[str, JobState]]

  def __call__(self) -> dict[str, JobState]:
    """Runs the jobs; returns the state in which each was left, by its name."""
    # scancel and preemption send SIGTERM half a minute before SIGKILL, to this process
    # alone. It passes it on to the processes that it started.
    before = signal.signal(signal.SIGTERM, self._stop)
    try:
      with concurrent.futures.ThreadPoolExecutor(1) as pool:
        self._running = pool.submit(
          run_jobs,
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
    """Stops the jobs, which save; returns what submitit is to queue again.

    submitit calls it in the handler of the signal that tells it to make room.
    """
    from submitit.helpers import DelayedSubmission

    self._stop()
    # The handler runs within the main thread's result(), so this cannot wait for it.
    while not self._running.done():
      time.sleep(POLL)
    return DelayedSubmission(Node(self.jobs))

  def _stop(self, *_: object) -> None:
    self._stopped = True


def parse(words: Sequence[str], cluster: str) -> dict[str, int | str]:
  """Returns the parameters of --slurm=KEY=VALUE, digits as integers."""
  pairs = [word.partition('=') for word in words]
  for key, equals, _ in pairs:
    if not key or not equals:
      raise UserError(f'--slurm={key}: KEY=VALUE, such as timeout_min=1440')
  if cluster == 'slurm' and 'timeout_min' not in {key for key, _, _ in pairs}:
    raise UserError('--submit=slurm needs --slurm=timeout_min=MINUTES')
  return {key: int(v) if v.isdecimal() else v for key, _, v in pairs}


def executor(
  cluster: str, folder: pathlib.Path, parameters: Mapping[str, int | str]
) -> Any:
  """Returns submitit's AutoExecutor, which submits jobs.

  Args:
    cluster: 'slurm', or 'local' for processes of this machine.
    folder: where submitit writes its files.
    parameters: of submitit's AutoExecutor.update_parameters.

  Raises:
    UserError: the cluster is missing, or it knows no such parameter.
  """
  # USR1 makes a trainer save; USR2, which submitit sends by default, would kill it.
  os.environ['SUBMITIT_PREEMPT_SIGNAL'] = 'USR1'
  import submitit  # of an extra

  try:
    by = submitit.AutoExecutor(
      folder, cluster=cluster, slurm_max_num_timeout=STARTS - 1
    )
    by.update_parameters(name='sweep', **parameters)
  # submitit asserts the types of its parameters.
  except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
    raise UserError(f'--submit={cluster}: {error}') from error
  return by


def submit_plan(
  plan: Plan,
  jobs: Sequence[Job],
  cluster: str,
  per_node: int,
  parameters: Sequence[str],
  interruption: Interruption,
) -> None:
  """Submits a plan's jobs that wait, `per_node` of them as one; prints a line on each.

  `parameters` are KEY=VALUE of submitit's update_parameters. A signal waits until it is
  noted which jobs are submitted: else the same command would submit them twice.
  """
  by = executor(cluster, plan.workdir / 'submitit', parse(parameters, cluster))
  plan.prepare()
  with interruption.deferred():
    for line in submit(jobs, by, cluster, per_node):
      print(line, flush=True)
    interruption.leave_if_requested()
  for job in jobs:
    if job.state() is JobState.FAILED:
      print(job.failure(), file=sys.stderr)
  print(describe_progress(jobs), file=sys.stderr)


def submit(jobs: Sequence[Job], by: Any, cluster: str, per_node: int) -> list[str]:
  """Submits the jobs that wait and are not queued yet, `per_node` of them as one.

  `by` is the executor() of the cluster.

  Returns: a line on each submission, its number and its jobs.
  """
  queued = _queued(jobs)
  waiting = [j for j in jobs if j.state() is JobState.WAITING and j.name not in queued]
  if not waiting:
    return []
  nodes = [Node(waiting[i : i + per_node]) for i in range(0, len(waiting), per_node)]
  with by.batch():
    submitted = [by.submit(node) for node in nodes]
  for node, one in zip(nodes, submitted, strict=True):
    for job in node.jobs:
      job.run.workdir.mkdir(parents=True, exist_ok=True)
      note = {'cluster': cluster, 'id': one.job_id}
      files.write_json(job.run.workdir / _NOTE, note)
  return [
    f'{one.job_id}: {" ".join(job.name for job in node.jobs)}'
    for node, one in zip(nodes, submitted, strict=True)
  ]


def _queued(jobs: Sequence[Job]) -> set[str]:
  """Returns the names of those that a queued or running Slurm job is to run."""
  numbers = {}
  for job in jobs:
    note = job.run.workdir / _NOTE
    if note.is_file():
      queued = files.read_json_object(note)
      if queued['cluster'] == 'slurm':
        numbers[job.name] = queued['id']
  if not numbers:
    return set()
  # Not sacct, as submitit does: without an accounting daemon it knows of no job.
  command = 'squeue', '--noheader', '--array', '--format=%i'
  try:
    queue = subprocess.run(command, check=True, capture_output=True, text=True)
  except subprocess.CalledProcessError as error:
    raise UserError(
      f'squeue cannot tell what is queued ({error.stderr.strip()}): try again'
    ) from error
  queued = queue.stdout.split()  # 12, or 12_0 for a member of an array
  return {name for name, number in numbers.items() if number in queued}
