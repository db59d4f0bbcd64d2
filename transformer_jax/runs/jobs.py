"""A job of a sweep, which trains and scores a run, and jobs on this machine.

The run's folder alone says how the job stands, so that several sweeps, on this machine
or on a cluster, may share it. `sweep.lock` is locked while a job works in the folder,
`sweep.json` says how its last command ended, `sweep.log` has what the commands printed.
No JAX is started in this process.

A small model keeps neither a GPU nor several cores busy: two jobs at once, each on half
of the machine, are done sooner than one after the other on the whole of it.
"""

import concurrent.futures
import contextlib
import dataclasses
import enum
import fcntl
import os
import pathlib
import queue
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from transformer_jax.machine import environment, files
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.metrics import Patience
from transformer_jax.runs.run import Run

# Seconds between two looks at a process. Less than signals.REPEATED, so that a trainer
# counts a cluster's signal and ours as one.
POLL = 0.1
TAIL = 5  # lines of a failed job's log that are shown
MEMORY = 0.9  # the fraction of a GPU that the runs on it divide among them


class JobState(enum.StrEnum):
  DONE = 'done'
  RUNNING = 'running'
  FAILED = 'failed'
  WAITING = 'waiting'  # not started, or stopped and to be resumed


class JobClaimed(Exception):
  """Another process works on the job."""


@dataclasses.dataclass(frozen=True)
class Ended:
  """How a job's last command ended: its sweep.json."""

  command: str
  exit_code: int
  seconds: float
  ended: str  # when


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
    if self._note.is_file() and self._last_command().exit_code not in (0, EXIT_CODE):
      return JobState.FAILED
    return JobState.WAITING

  def forgive(self) -> None:
    """Lets a failed job wait again."""
    if self.state() is JobState.FAILED:
      self._note.unlink()

  def failure(self) -> str:
    """What to tell of a failed job: exit code, command and the end of its log."""
    last = self._last_command()
    log = self.log.read_text(errors='replace') if self.log.is_file() else ''
    head = f'{self.name} failed, exit code {last.exit_code}: {last.command}'
    lines = [f'  {line}' for line in log.splitlines()[-TAIL:]]
    return '\n'.join([head, *lines, f'  (all of it: {self.log})'])

  def progress(self) -> str:
    """What a job that runs is at."""
    steps = (record['step'] for record in self._records() if 'seconds' in record)
    trained = max((step for step in steps if step <= self.train_steps), default=0)
    if trained >= self.last_step():
      return 'scoring'
    return f'step {trained}/{self.train_steps}'

  def _records(self) -> list[dict]:
    try:
      return self.run.records()
    except UserError:  # the trainer and the report name the damage
      return []

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
        code = _run_command(command, is_stopped, environment, log.fileno())
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
      return files.read_json_object(self.result_of(step)).get('step') == step
    except (FileNotFoundError, UserError):
      return False

  def _last_command(self) -> Ended:
    try:
      return msgspec.json.decode(self._note.read_bytes(), type=Ended)
    except msgspec.DecodeError as error:
      raise UserError(
        f'{self._note}: damaged ({error}); delete it, and the run waits to be resumed'
      ) from error

  def _write_note(self, command: Sequence[str], code: int, seconds: float) -> None:
    when = time.strftime('%Y-%m-%d %H:%M:%S %z')
    ended = Ended(shlex.join(command), code, round(seconds, 1), when)
    files.write_json(self._note, dataclasses.asdict(ended))


def _run_command(
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


# On this machine


class MachinePart(NamedTuple):
  """The cores and GPUs that one of several jobs may use."""

  cores: tuple[int, ...]  # their numbers
  environment: dict[str, str]  # variables that tell JAX its GPUs


def run_jobs(
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
      ended[job.name] = _run_job(job, part, is_stopped, say)

  parts = divide_machine(max(1, min(together, waiting)))
  with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
    workers = [pool.submit(work, part) for part in parts]
    while not all(worker.done() for worker in workers):
      tick()
      time.sleep(POLL)
  for worker in workers:
    worker.result()  # raises the exception of its thread
  return {job.name: job.state() for job in jobs} | ended


def _run_job(
  job: Job,
  part: MachinePart,
  is_stopped: Callable[[], bool],
  say: Callable[[str], None],
) -> JobState:
  state = job.state()
  if state is JobState.FAILED:
    say(f'{job.failure()}\n  --retry_failed runs it again')
  if state is not JobState.WAITING:
    return state
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
  listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
  return listed.stdout.split() if listed.returncode == 0 else []


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
