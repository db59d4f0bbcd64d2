"""Jobs of a sweep, each of which trains and scores a run; runs them on this machine.

A small model keeps neither a GPU nor several cores busy: two jobs at once, each on half
of the machine, are done sooner than one after the other on the whole of it. No JAX is
started in this process.
"""

import contextlib
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
MEMORY = 0.9  # the fraction of a GPU's memory that the runs on it divide among them


class Job(NamedTuple):
  """A run, and the commands that train and score it, in their order."""

  run: Run
  commands: tuple[tuple[str, ...], ...]
  config: dict[str, Any]  # of the run
  split: str  # to score on
  average: int  # how many checkpoints to average

  @property
  def name(self) -> str:
    """The name of the run's folder."""
    return self.run.workdir.name

  @property
  def log(self) -> pathlib.Path:
    """The file that has what the commands print."""
    return self.run.workdir / 'sweep.log'

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
    records = self.run.records() if patience else []
    if Patience.of(records, patience).ended:
      return max(r['step'] for r in records if 'dev_perplexity' in r)
    return self.config['train_steps']

  def is_done(self) -> bool:
    """Tells whether the last step of the run is scored."""
    with contextlib.suppress(FileNotFoundError, UserError):
      return files.read_json_object(self.result).get('step') == self.last_step()
    return False

  def execute(self, part: 'MachinePart', is_stopped: Callable[[], bool]) -> int:
    """Runs the commands until one fails, and returns its exit code.

    Args:
      part: the cores and GPUs for the commands.
      is_stopped: once it is true, the command is sent SIGTERM and waited for, and
        EXIT_CODE is returned.
    """
    self.run.workdir.mkdir(parents=True, exist_ok=True)
    with self.log.open('a') as log:
      for command in self.commands:
        code = _run_command(command, part, is_stopped, log.fileno())
        if code or is_stopped():
          return code or EXIT_CODE
      if not self.is_done():
        log.write(f'{self.result}: no result of step {self.last_step()}\n')
        return 1
    return 0


def _run_command(
  command: Sequence[str],
  part: 'MachinePart',
  is_stopped: Callable[[], bool],
  log: int,
) -> int:
  """Runs a command that writes to the file descriptor `log`; returns its exit code."""
  if hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, part.cores)  # of this thread; its processes inherit it
  # In a session of its own: a terminal's Ctrl-C reaches it once, from here.
  process = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    stdout=log,
    stderr=subprocess.STDOUT,
    env=os.environ | part.environment,
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


def run_jobs(
  jobs: Sequence[Job],
  together: int,
  is_stopped: Callable[[], bool],
) -> dict[str, int]:
  """Runs the jobs that are not done, `together` at a time; a failure stops no other.

  Prints a line to stderr where a job begins or ends.

  Args:
    is_stopped: once it is true, no job begins and those that run are stopped.

  Returns: the exit code of each job that was not done, by the job's name.
  """
  left = [job for job in jobs if not job.is_done()]
  machine = divide_machine(max(1, min(together, len(left))))
  parts: queue.SimpleQueue[MachinePart] = queue.SimpleQueue()
  for part in machine:
    parts.put(part)

  def run_job(job: Job) -> int:
    part = parts.get()
    try:
      if is_stopped():
        return EXIT_CODE
      say(f'{job.name}: log in {job.log}')
      code = job.execute(part, is_stopped)
    except OSError as error:  # such as a folder that cannot be written: not the others'
      say(f'{job.name}: failed: {error}')
      return 1
    finally:
      parts.put(part)
    known = {0: 'done', EXIT_CODE: 'stopped'}
    say(f'{job.name}: {known.get(code, f"failed, exit code {code}: see {job.log}")}')
    return code

  with ThreadPoolExecutor(len(machine)) as pool:
    codes = pool.map(run_job, left)
  return dict(zip((job.name for job in left), codes, strict=True))


def say(text: str) -> None:
  """Prints a whole line to stderr; jobs call it in threads of their own."""
  print(f'{text}\n', end='', file=sys.stderr, flush=True)


# Parts of this machine


class MachinePart(NamedTuple):
  """The cores and GPUs that one of several jobs may use."""

  cores: tuple[int, ...]  # their numbers
  environment: dict[str, str]  # variables that tell JAX its GPUs


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
