"""Jobs of a sweep submitted to Slurm, or to submitit's local stand-in for it; no JAX.

submitit pickles the jobs into a folder beside the runs: whoever can write there can run
code as the user.
"""

import concurrent.futures
import os
import pathlib
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.machine.errors import UserError
from transformer_jax.runs.jobs import POLL, Job, run_jobs

STARTS = 100  # of a submission: it is queued again whenever its time is up


class Node:
  """Jobs that run at once on one machine, where submitit unpickles and calls it."""

  def __init__(self, jobs: Sequence[Job]):
    self.jobs = jobs
    self._stopped = False
    self._running: concurrent.futures.Future[dict[str, int]]

  def __call__(self) -> dict[str, int]:
    """Runs the jobs; returns the exit code of each, by its name."""
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


def make_executor(
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
    executor = submitit.AutoExecutor(
      folder, cluster=cluster, slurm_max_num_timeout=STARTS - 1
    )
    executor.update_parameters(name='sweep', **parameters)
  # submitit asserts the types of its parameters.
  except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
    raise UserError(f'--submit={cluster}: {error}') from error
  return executor


def submit(jobs: Sequence[Job], executor: Any, per_node: int) -> list[str]:
  """Submits the jobs that are not done, `per_node` of them as one.

  Returns: a line on each submission, its number and its jobs.
  """
  left = [job for job in jobs if not job.is_done()]
  nodes = [Node(left[i : i + per_node]) for i in range(0, len(left), per_node)]
  with executor.batch():
    submitted = [executor.submit(node) for node in nodes]
  return [
    f'{one.job_id}: {" ".join(job.name for job in node.jobs)}'
    for node, one in zip(nodes, submitted, strict=True)
  ]
