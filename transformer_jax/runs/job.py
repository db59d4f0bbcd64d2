"""One job of a sweep: the commands that train and score a run; no JAX.

The run's folder alone says how the job stands, so that several sweeps, on this machine
or on a cluster, may share it. `sweep.lock` is locked while a job works in the folder,
`sweep.json` says how its last command ended, `sweep.log` has what the commands printed.
"""

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
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.metrics import Patience
from transformer_jax.runs.run import Run

# Seconds between two looks at a process. Less than signals.REPEATED, so that a trainer
# counts a cluster's signal and ours as one.
POLL = 0.1
TAIL = 5  # lines of a failed job's log that are shown


class JobState(enum.StrEnum):
  DONE = 'done'
  RUNNING = 'running'
  FAILED = 'failed'
  WAITING = 'waiting'  # not begun, or stopped and to be resumed


class JobClaimed(Exception):
  """Another process works on the job."""


class Job(NamedTuple):
  """A run, and the commands that train and score it, in their order."""

  run: Run
  commands: tuple[tuple[str, ...], ...]
  train_steps: int
  patience: int  # checkpoints without a better dev perplexity that end it; 0: none do
  # Takes a step; returns the result file that the last command writes for it. submitit
  # pickles it.
  result_of: Callable[[int], pathlib.Path]

  @property
  def name(self) -> str:
    return self.run.workdir.name

  @property
  def log(self) -> pathlib.Path:
    return self.run.workdir / 'sweep.log'

  @property
  def _note(self) -> pathlib.Path:
    return self.run.workdir / 'sweep.json'

  @property
  def result(self) -> pathlib.Path:
    """The file of the result of the run's last step, there or not."""
    return self.result_of(self.last_step())

  def last_step(self) -> int:
    """The step that ends the run: train_steps, or where its patience has ended."""
    records = self._records() if self.patience else []
    if Patience.of(records, self.patience).ended:
      return max(r['step'] for r in records if 'dev_perplexity' in r)
    return self.train_steps

  def state(self) -> JobState:
    """As the run's folder says it."""
    if any(_is_locked(self.run.workdir / name) for name in ('sweep.lock', 'lock')):
      return JobState.RUNNING
    if self._is_scored():
      return JobState.DONE
    if self._note.is_file() and self._read_note()[1] not in (0, EXIT_CODE):
      return JobState.FAILED
    return JobState.WAITING

  def forgive(self) -> None:
    """Lets a failed job wait again."""
    if self.state() is JobState.FAILED:
      self._note.unlink()

  def failure(self) -> str:
    """What to tell of a failed job: exit code, command and the end of its log."""
    command, code = self._read_note()
    log = self.log.read_text(errors='replace') if self.log.is_file() else ''
    head = f'{self.name} failed, exit code {code}: {command}'
    lines = [f'  {line}' for line in log.splitlines()[-TAIL:]]
    return '\n'.join([head, *lines, f'  (all of it: {self.log})'])

  def steps_made(self) -> int:
    """Steps up to train_steps that metrics.jsonl tells of."""
    steps = (record['step'] for record in self._records() if 'seconds' in record)
    return max((step for step in steps if step <= self.train_steps), default=0)

  def _records(self) -> list[dict]:
    try:
      return self.run.records()
    except UserError:  # the trainer and the report name the damage
      return []

  def doing(self) -> str:
    """What a job that runs is at."""
    made = self.steps_made()
    is_trained = made >= self.last_step()
    return 'scoring' if is_trained else f'step {made}/{self.train_steps}'

  def attempt(
    self,
    is_stopped: Callable[[], bool],
    environment: Mapping[str, str],
    say: Callable[[str], None],
  ) -> JobState:
    """Runs the commands until one fails, and returns the state they leave.

    Args:
      is_stopped: once it is true, the command is sent SIGTERM and waited for.
      environment: variables that the commands get beside this process's.
      say: called with a line when the scoring begins.

    Raises:
      JobClaimed: another process works on the job.
    """
    with self._claimed(), self.log.open('ab') as log:
      for command in self.commands:
        begin = time.monotonic()
        if command is not self.commands[0]:
          say(f'{self.name}: is trained, scoring')
        code = _run(command, is_stopped, environment, log.fileno())
        if code == 0 and command is self.commands[-1] and not self._is_scored():
          line = f'{self.result}: no result of step {self.last_step()}\n'
          log.write(line.encode())
          code = 1
        self._write_note(command, code, time.monotonic() - begin)
        if code or is_stopped():
          break
    return self.state()

  @contextlib.contextmanager
  def _claimed(self) -> Iterator[None]:
    """Keeps other jobs out of the run's folder."""
    self.run.workdir.mkdir(parents=True, exist_ok=True)
    with (self.run.workdir / 'sweep.lock').open('a') as file:
      if not files.claim_lock(file, _without_locks):
        raise JobClaimed(self.name)
      try:
        yield
      finally:
        # Closing the file does not suffice: a process that another thread is just
        # starting has inherited it.
        files.take_lock(file, fcntl.LOCK_UN, _without_locks)

  def _is_scored(self) -> bool:
    step = self.last_step()
    try:
      return json.loads(self.result_of(step).read_text())['step'] == step
    except (FileNotFoundError, ValueError, KeyError, TypeError):
      return False

  def _read_note(self) -> tuple[str, int]:
    """The last command and its exit code."""
    try:
      note = json.loads(self._note.read_text())
      return note['command'], note['exit_code']
    except (ValueError, KeyError, TypeError) as error:
      raise UserError(
        f'{self._note}: damaged ({error!r}); delete it, and the run waits to be resumed'
      ) from error

  def _write_note(self, command: Sequence[str], code: int, seconds: float) -> None:
    note = {
      'command': shlex.join(command),
      'exit_code': code,
      'seconds': round(seconds, 1),
      'ended': time.strftime('%Y-%m-%d %H:%M:%S %z'),
    }
    files.write_json(self._note, note)


def _run(
  command: Sequence[str],
  is_stopped: Callable[[], bool],
  environment: Mapping[str, str],
  log: int,
) -> int:
  """The exit code of a command, which writes to the file of descriptor `log`."""
  # In a session of its own: a terminal's Ctrl-C reaches it once, from here.
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
  if stopped and process.returncode == -signal.SIGTERM:  # it had no handler yet
    return EXIT_CODE
  return process.returncode


def _is_locked(path: pathlib.Path) -> bool:
  if not path.is_file():
    return False
  with path.open() as file:
    free = files.take_lock(file, fcntl.LOCK_SH, _without_locks)
    if free:
      files.take_lock(file, fcntl.LOCK_UN, _without_locks)
  return not free


def _without_locks(error: OSError) -> None:
  """Says nothing of a file system without locks, for the trainer does."""
