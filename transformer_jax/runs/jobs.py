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
from typing import Any, NamedTuple

from transformer_jax.machine import environment, files
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.checkpoints import averaged_steps
from transformer_jax.runs.metrics import Patience
from transformer_jax.runs.run import Run

# Seconds between two checks of a process. Less than signals.REPEATED, so that a trainer
# counts a cluster's signal and ours as one.
POLL = 0.1
TAIL = 5  # lines of a failed job's log that are shown
MEMORY = 0.9  # the fraction of a GPU that the runs on it divide among them


class JobState(enum.StrEnum):
  DONE = 'done'
  RUNNING = 'running'
  FAILED = 'failed'
  WAITING = 'waiting'  # not started, or stopped and to be resumed


class Job(NamedTuple):
  """A run, and the commands that train and score it, in their order."""

  run: Run
  commands: tuple[tuple[str, ...], ...]
  config: dict[str, Any]  # of the run
  split: str  # to score on
  average: int  # how many checkpoints to average

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
    """The file that the last command writes the result of the last step to."""
    step, config = self.last_step(), self.config
    averaged = averaged_steps(step, config['checkpoint_every_steps'], self.average)
    searched = len(averaged), config['beam'], config['alpha']
    return self.run.translations(self.split, step, *searched).with_suffix('.json')

  def last_step(self) -> int:
    """Returns the step that ends the run: train_steps, or where its patience ended."""
    patience = self.config['patience']
    records = self._records() if patience else []
    if Patience.of(records, patience).ended:
      return max(r['step'] for r in records if 'dev_perplexity' in r)
    return self.config['train_steps']

  def state(self) -> JobState:
    """Returns what the run's folder says."""
    if any(_is_locked(self.run.workdir / name) for name in ('sweep.lock', 'lock')):
      return JobState.RUNNING
    if self._is_scored():
      return JobState.DONE
    if self._note.is_file() and self._last_command()['exit_code'] not in (0, EXIT_CODE):
      return JobState.FAILED
    return JobState.WAITING

  def forgive(self) -> None:
    """Makes a failed job wait again."""
    if self.state() is JobState.FAILED:
      self._note.unlink()

  def failure(self) -> str:
    """Returns a failed job's exit code, command and the end of its log, as text."""
    last = self._last_command()
    log = self.log.read_text(errors='replace') if self.log.is_file() else ''
    head = f'{self.name} failed, exit code {last["exit_code"]}: {last["command"]}'
    lines = [f'  {line}' for line in log.splitlines()[-TAIL:]]
    return '\n'.join([head, *lines, f'  (all of it: {self.log})'])

  def progress(self) -> str:
    """Returns how far a running job is, such as 'step 200/1000'."""
    steps = (record['step'] for record in self._records() if 'seconds' in record)
    last = self.config['train_steps']
    trained = max((step for step in steps if step <= last), default=0)
    return 'scoring' if trained >= self.last_step() else f'step {trained}/{last}'

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

    Returns: RUNNING, without a command, if another process works on the job.
    """
    with self._claimed() as is_claimed, self.log.open('ab') as log:
      if not is_claimed:
        return JobState.RUNNING
      for command in self.commands:
        if command is not self.commands[0]:
          say(f'{self.name}: is trained, scoring')
        code = _run_command(command, is_stopped, environment, log.fileno())
        if code == 0 and command is self.commands[-1] and not self._is_scored():
          line = f'{self.result}: no result of step {self.last_step()}\n'
          log.write(line.encode())
          code = 1
        note = {'command': shlex.join(command), 'exit_code': code}
        files.write_json(self._note, note)
        if code or is_stopped():
          break
    return self.state()

  @contextlib.contextmanager
  def _claimed(self) -> Iterator[bool]:
    """Keeps other jobs out of the run's folder; False if one is in it."""
    self.run.workdir.mkdir(parents=True, exist_ok=True)
    with (self.run.workdir / 'sweep.lock').open('a') as file:
      if not files.claim_lock(file):
        yield False
        return
      try:
        yield True
      finally:
        # Closing the file does not suffice: a process that another thread is just
        # starting has inherited it.
        files.take_lock(file, fcntl.LOCK_UN)

  def _is_scored(self) -> bool:
    try:
      return files.read_json_object(self.result).get('step') == self.last_step()
    except (FileNotFoundError, UserError):
      return False

  def _last_command(self) -> dict[str, Any]:
    return files.read_json_object(self._note)


def _run_command(
  command: Sequence[str],
  is_stopped: Callable[[], bool],
  environment: Mapping[str, str],
  log: int,
) -> int:
  """Runs a command that writes to the file descriptor `log`; returns its exit code."""
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
    free = files.take_lock(file, fcntl.LOCK_SH)
    if free:
      files.take_lock(file, fcntl.LOCK_UN)
  return not free


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
  except OSError as error:  # such as a folder that cannot be written: not the others'
    say(f'{job.name} failed: {error}')
    return JobState.FAILED
  say(job.failure() if ended is JobState.FAILED else f'{job.name}: {ended}')
  return ended


def divide_machine(jobs: int) -> list[MachinePart]:
  """Divides cores and GPUs among jobs, which share one if there are too few."""
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
  """Returns numbers or names of the GPUs that CUDA may use here."""
  if 'CUDA_VISIBLE_DEVICES' in os.environ:
    return [x for x in os.environ['CUDA_VISIBLE_DEVICES'].split(',') if x]
  if shutil.which('nvidia-smi') is None:
    return []
  command = 'nvidia-smi', '--query-gpu=index', '--format=csv,noheader'
  listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
  return listed.stdout.split() if listed.returncode == 0 else []


def _gpu_variables(gpus: Sequence[str], jobs: int, i: int) -> dict[str, str]:
  """Returns variables that limit job i to its GPUs and its part of their memory."""
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
  """Returns which of `count` cores or GPUs job i has: at least one."""
  each = max(1, count // jobs)
  first = i * each % count
  return range(first, first + each)
