"""Many runs: which are done, running, failed or waiting, and running the rest; no JAX.

A run's folder tells it all, so that several sweeps, here or on a cluster, may share it:
`sweep.lock` is held while a job works there, `sweep.json` says how the last one ended,
`sweep.log` what its commands printed, `sweep.queued.json` as what it was submitted.
"""

import collections
import contextlib
import enum
import fcntl
import json
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.machine import files
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.run import Run

# Less than interruption.SAME: what a cluster's signal and ours tell a trainer is one.
POLL = 0.1  # seconds
TAIL = 5  # lines of a failed job's log that are shown


class State(enum.StrEnum):
  DONE = 'done'
  RUNNING = 'running'
  FAILED = 'failed'
  WAITING = 'waiting'  # not begun, or cut off and to be gone on with


class Job(NamedTuple):
  """A run and the commands that make it, one after the other."""

  run: Run
  commands: tuple[tuple[str, ...], ...]
  train_steps: int
  result: pathlib.Path  # JSON that the last command leaves, of step train_steps
  flops: float  # of a step; the unit in which jobs are weighed against each other

  @property
  def name(self) -> str:
    return self.run.workdir.name


class Busy(RuntimeError):
  """Another job works in the folder."""


@contextlib.contextmanager
def _claimed(job: Job) -> Iterator[None]:
  """Keeps other jobs out of the run's folder; raises Busy if one is in it."""
  job.run.workdir.mkdir(parents=True, exist_ok=True)
  with (job.run.workdir / 'sweep.lock').open('a') as file:
    if not files.claim_lock(file, _without_locks):
      raise Busy(job.name)
    try:
      yield
    finally:
      # Closing is not enough: a process that a thread is just starting has it as well.
      files.take_lock(file, fcntl.LOCK_UN, _without_locks)


def _is_locked(path: pathlib.Path) -> bool:
  if not path.is_file():
    return False
  with path.open() as file:
    free = files.take_lock(file, fcntl.LOCK_SH, _without_locks)
    if free:
      files.take_lock(file, fcntl.LOCK_UN, _without_locks)
  return not free


def _without_locks(error: OSError) -> None:
  """The trainer says it."""


def _note(job: Job) -> dict:
  """How the last job there ended: command, exit_code, seconds; empty before."""
  path = job.run.workdir / 'sweep.json'
  if not path.is_file():
    return {}
  try:
    note = json.loads(path.read_text())
    return {key: note[key] for key in ('command', 'exit_code', 'seconds')}
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f'{path}: damaged ({error!r}); delete it, and the run waits to be gone on with'
    ) from error


def _write_note(job: Job, command: Sequence[str], code: int, seconds: float) -> None:
  path = job.run.workdir / 'sweep.json'
  note = {
    'command': shlex.join(command),
    'exit_code': code,
    'seconds': round(seconds, 1),
    'ended': time.strftime('%Y-%m-%d %H:%M:%S %z'),
  }
  files.write(path, json.dumps(note, indent=1) + '\n')


def _is_scored(job: Job) -> bool:
  try:
    return json.loads(job.result.read_text())['step'] == job.train_steps
  except (FileNotFoundError, ValueError, KeyError, TypeError):
    return False


def state(job: Job) -> State:
  """Read from the run's folder alone."""
  if _is_locked(job.run.workdir / 'sweep.lock') or _is_locked(job.run.workdir / 'lock'):
    return State.RUNNING
  if _is_scored(job):
    return State.DONE
  note = _note(job)
  if note and note['exit_code'] not in (0, EXIT_CODE):
    return State.FAILED
  return State.WAITING


def forgive(job: Job) -> None:
  """Makes a failed job one that waits."""
  if state(job) is State.FAILED:
    (job.run.workdir / 'sweep.json').unlink()


def failure(job: Job) -> str:
  """Of a failed job: exit code, command and the end of its log."""
  note, log = _note(job), job.run.workdir / 'sweep.log'
  lines = log.read_text(errors='replace').splitlines()[-TAIL:] if log.is_file() else []
  head = f'{job.name} failed, exit code {note["exit_code"]}: {note["command"]}'
  return '\n'.join([head, *(f'  {line}' for line in lines), f'  (all of it: {log})'])


def attempt(
  job: Job,
  is_stopped: Callable[[], bool],
  environment: Mapping[str, str],
) -> State:
  """Runs the job's commands, with more of an `environment`, until one fails.

  Once `is_stopped()`, the command is sent SIGTERM and waited for.

  Raises:
    Busy: another one works there.
  """
  with _claimed(job), (job.run.workdir / 'sweep.log').open('ab') as log:
    for command in job.commands:
      begin = time.monotonic()
      # In a session of its own, for a terminal's Ctrl-C to reach it through us, once.
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=os.environ | dict(environment),
        start_new_session=True,
      )
      stopped = False
      while process.poll() is None:
        if is_stopped() and not stopped:
          process.terminate()
          stopped = True
        time.sleep(POLL)
      code = process.returncode
      if stopped and code == -signal.SIGTERM:  # it was too young to handle it
        code = EXIT_CODE
      if code == 0 and command is job.commands[-1] and not _is_scored(job):
        log.write(f'{job.result}: no result of step {job.train_steps}\n'.encode())
        code = 1
      _write_note(job, command, code, time.monotonic() - begin)
      if code or is_stopped():
        break
  return state(job)


class Progress(NamedTuple):
  counts: dict[State, int]
  fraction: float  # of all training, weighed by FLOPs
  seconds_left: float | None  # on this machine; None before anything was measured
  current: str  # what runs, and how far it has come

  def __str__(self) -> str:
    counts = ', '.join(f'{n} {state}' for state, n in self.counts.items())
    if self.seconds_left is None:
      left = 'time left not known yet'
    else:
      hours, minutes = divmod(round(self.seconds_left / 60), 60)
      left = f'{hours} h {minutes:02} min left'
    return f'{counts}; {100 * self.fraction:.1f} % trained, {left}' + self.current


def progress(jobs: Sequence[Job], together: int) -> Progress:
  """How far all have come, and how long it takes at their own speed, some together."""
  states = {job: state(job) for job in jobs}
  done = total = ahead = seconds = 0.0
  current, scoring = '', []
  for job, found in states.items():
    step, taken = trained(job)
    done, seconds = done + step * job.flops, seconds + taken
    total += job.train_steps * job.flops
    if found is not State.FAILED:  # with those nobody goes on
      ahead += (job.train_steps - step) * job.flops
    if found is State.RUNNING:
      current += f'; {job.name} step {step}/{job.train_steps}'
    elif found is State.DONE and _note(job):
      scoring.append(_note(job)['seconds'])
  left = None
  if done:
    over = State.DONE, State.FAILED
    unscored = sum(found not in over for found in states.values())
    each = sum(scoring) / len(scoring) if scoring else 0
    left = (ahead * seconds / done + unscored * each) / max(1, min(together, unscored))
  counted = collections.Counter(states.values())
  counts = {kind: counted[kind] for kind in State if counted[kind]}
  return Progress(counts, done / total, left, current)


def trained(job: Job) -> tuple[int, float]:
  """Steps up to train_steps that metrics.jsonl tells of, and the seconds they took."""
  step, seconds = 0, 0.0
  try:
    records = job.run.records()
  except ValueError:  # the trainer and the report name it; here it is only progress
    return step, seconds
  for record in records:
    if 'seconds' in record and record['step'] <= job.train_steps:
      step, seconds = record['step'], seconds + record['seconds']
  return step, seconds
