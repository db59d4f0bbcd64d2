"""A sweep of jobs: what it would run, running it here or on a cluster, its progress."""

import collections
import shlex
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.machine.signals import EXIT_CODE, Interruption
from transformer_jax.runs import local, slurm
from transformer_jax.runs.job import Job, JobState
from transformer_jax.runs.planning import Plan

EVERY = 60  # seconds between two lines of progress
_CLEARED = '\x1b[K'  # what stands in the terminal's line from here on is deleted


class SweepProgress(NamedTuple):
  """How many jobs are in each state, and how far those have come that run."""

  counts: dict[JobState, int]
  running: list[str]

  def __str__(self) -> str:
    parts = [f'{count} {state}' for state, count in self.counts.items()]
    if JobState.RUNNING in self.counts:
      parts[[*self.counts].index(JobState.RUNNING)] += f' ({", ".join(self.running)})'
    return ', '.join(parts)


def progress(jobs: Sequence[Job]) -> SweepProgress:
  states = [job.state() for job in jobs]
  counted = collections.Counter(states)
  return SweepProgress(
    {state: counted[state] for state in JobState if counted[state]},
    [
      f'{job.name} {job.doing()}'
      for job, state in zip(jobs, states, strict=True)
      if state is JobState.RUNNING
    ],
  )


def print_commands(jobs: Sequence[Job], retry: bool) -> None:
  """Prints a shell script of what would be run to stdout, and all states to stderr."""
  for job in jobs:
    state = job.state()
    print(f'{state:8}{job.name}', file=sys.stderr)
    if state is JobState.WAITING or (retry and state is JobState.FAILED):
      print(*map(shlex.join, job.commands), sep='\n')
  print(progress(jobs), file=sys.stderr)


def submit(
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
  settings = slurm.parse(parameters, cluster)
  by = slurm.executor(cluster, plan.workdir / 'submitit', settings)
  plan.prepare()
  with interruption.deferred():
    for line in slurm.submit(jobs, by, cluster, per_node):
      print(line, flush=True)
    interruption.leave_if_requested()
  for job in jobs:
    if job.state() is JobState.FAILED:
      print(job.failure(), file=sys.stderr)
  print(progress(jobs), file=sys.stderr)


def run(jobs: Sequence[Job], together: int, interruption: Interruption) -> int:
  """Runs the jobs that wait on this machine, `together` at a time.

  A signal stops them; then the process is ended.

  Returns: the exit code: 0 if all jobs are done, 1 if one failed, else EXIT_CODE.
  """
  line = _ProgressLine(jobs)
  with interruption.deferred():
    ended = local.run(
      jobs, together, lambda: interruption.requested, line.tick, line.say
    )
    line.say(str(progress(jobs)))
    if interruption.requested:
      interruption.last_words = lambda: 'The same command goes on.'
      interruption.leave()
  states = {*ended.values()}
  if JobState.FAILED in states:
    return 1
  return 0 if states == {JobState.DONE} else EXIT_CODE


class _ProgressLine:
  """The sweep's progress: a line a minute, or one line that changes on a terminal."""

  def __init__(self, jobs: Sequence[Job]):
    self._jobs, self._next = jobs, time.monotonic()
    self._is_terminal = sys.stderr.isatty()

  def tick(self) -> None:
    if time.monotonic() < self._next:
      return
    self._next = time.monotonic() + (1 if self._is_terminal else EVERY)
    if self._is_terminal:
      print(f'{_CLEARED}{progress(self._jobs)}\r', end='', file=sys.stderr, flush=True)
    else:
      self.say(str(progress(self._jobs)))

  def say(self, text: str) -> None:
    """Prints lines that stay; jobs call it in threads of their own."""
    cleared = _CLEARED if self._is_terminal else ''
    # The end of the line is written with it: else the progress could come in between.
    print(f'{cleared}{text}\n', end='', file=sys.stderr, flush=True)
