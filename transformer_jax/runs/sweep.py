"""Plans the runs of a sweep, and prints, runs or submits their commands."""

import collections
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import ml_collections
from absl import flags

from transformer_jax.config import as_json, check_row
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE, PARENT, Interruption
from transformer_jax.runs.flags import config_flag
from transformer_jax.runs.records import patience_has_ended
from transformer_jax.runs.run import Run, averaged_steps, start_from

POLL = 0.1  # seconds between two checks of a process
STARTS = 100  # of a Slurm job, which is requeued whenever its time is up


class Job(NamedTuple):
  """A run, and the commands that train and score it, in their order."""

  run: Run
  commands: tuple[tuple[str, ...], ...]
  config: dict[str, Any]  # of the run
  split: str  # to score on
  average: int  # how many checkpoints to average

  @property
  def name(self) -> str:
    """Returns the name of the run's folder."""
    return self.run.workdir.name

  def is_done(self) -> bool:
    """Returns True if the last step of the run is scored."""
    config, records = self.config, self.run.records()
    last = config['train_steps']
    if patience_has_ended(records, config):
      last = max(r['step'] for r in records if 'dev_perplexity' in r)
    averaged = averaged_steps(last, config['checkpoint_every_steps'], self.average)
    search = len(averaged), config['beam'], config['alpha']
    path = self.run.translations(self.split, last, *search).with_suffix('.json')
    return path.is_file()

  def execute(self, is_stopped: Callable[[], bool]) -> int:
    """Runs the commands until one fails; returns its exit code.

    Once is_stopped() is true, the command gets SIGTERM, so that it saves. The exit code
    is then EXIT_CODE, unless the command fails.
    """
    for command in self.commands:
      # In a new session: a terminal's Ctrl-C reaches it once, by is_stopped().
      # The command ends with this process: scripts/__init__.py reads PARENT.
      env = os.environ | {PARENT: str(os.getpid())}
      process = subprocess.Popen(command, start_new_session=True, env=env)
      while process.poll() is None and not is_stopped():
        time.sleep(POLL)
      if is_stopped():
        process.terminate()
        code = process.wait()
        return EXIT_CODE if code in (0, -signal.SIGTERM) else code
      if process.returncode:
        return process.returncode
    return 0


class Plan(NamedTuple):
  """A sweep: its configs and seeds, a run for each pair, and the flags of all runs."""

  workdir: pathlib.Path  # holds the runs' folders
  configs: Sequence[str]  # FILE or FILE:ARGUMENT, as --config takes it
  seeds: Sequence[int]
  split: str  # what to score on
  average: int  # how many checkpoints to average
  data: Sequence[flags.FlagHolder[Any]]  # data_flags()
  trainer_flags: Sequence[str]  # more flags of the trainer, --config.KEY=VALUE say

  def jobs(self) -> list[Job]:
    """Returns all jobs: one for each config with the first seed, then with the next.

    Raises:
      UserError: the plan cannot be run, or not in these folders.
    """
    if not self.configs:
      raise UserError('give --rows, or --config')
    before = '--?(config|config[.]seed|workdir|data_dir|raw_dir|tfds_data_dir)='
    for flag in self.trainer_flags:
      if re.match(before, flag):
        raise UserError(f'{flag}: give configs, --seeds and folders before the --')
    jobs = [self._job(name, seed) for seed in self.seeds for name in self.configs]
    for name, count in collections.Counter(job.name for job in jobs).items():
      if count > 1:
        raise UserError(
          f'{name} would be the folder of {count} runs: a row, a config or a seed is '
          'given twice, or two configs have one name'
        )
    return jobs

  def _job(self, name: str, seed: int) -> Job:
    flags = [f'--config.seed={seed}', *self.trainer_flags]
    run = self._run(name, seed)
    config = load_config(name, flags, run)
    if self.average > config.keep_checkpoints:
      raise UserError(
        f'--average={self.average}: {name} keeps {config.keep_checkpoints} checkpoints '
        '(-- --config.keep_checkpoints=...)'
      )
    settings = as_json(config)
    run.check_config(settings)
    python, where = (sys.executable, '-m'), f'--workdir={run.workdir}'
    data_dir = f'--data_dir={self.data[0].value}'
    score = f'--split={self.split}', f'--average={self.average}'
    train = *python, 'scripts.train', f'--config={name}', *flags, where
    evaluate = *python, 'scripts.evaluate', where, data_dir, *score
    data = (f'--{flag.name}={flag.value}' for flag in self.data if flag.value)
    commands = (*train, *data), evaluate
    return Job(run, commands, settings, self.split, self.average)

  def _run(self, config: str, seed: int) -> Run:
    """Returns the run table3.base.mini.seed-1 of configs/table3.py:base,mini, say."""
    path, _, argument = config.partition(':')
    parts = [pathlib.Path(path).stem, *re.split('[,/]', argument), f'seed-{seed}']
    return Run(self.workdir / '.'.join(filter(None, parts)))


def load_config(
  name: str, trainer_flags: Sequence[str], run: Run
) -> ml_collections.ConfigDict:
  """Returns the config that the trainer makes of --config=NAME and other flags."""
  flags = [x for x in trainer_flags if re.match('--?((no)?config[.]|init_from)', x)]
  table = Flags('')
  config = config_flag(table, '')
  parent = table.path('init_from', None, '')
  table.parse(['train', f'--config={name}', *flags])
  check_row(config.value, table.plain)
  if parent.value:
    start_from(config.value, parent.value, run.workdir)
  return config.value


def print_commands(jobs: Sequence[Job]) -> None:
  """Prints to stdout the commands to run, and to stderr which jobs are done."""
  for job in jobs:
    is_done = job.is_done()
    print('done   ' if is_done else 'waiting', job.name, file=sys.stderr)
    if not is_done:
      print(*map(shlex.join, job.commands), sep='\n')


def run(jobs: Sequence[Job], together: int, interruption: Interruption) -> int:
  """Runs the jobs that are not done, `together` at a time; a failure stops no other.

  A signal stops them; then the process is ended.

  Returns: the exit code: 0 if all jobs are done, 1 if one failed, else EXIT_CODE.
  """

  def execute(job: Job) -> int:
    if interruption.requested:
      return EXIT_CODE
    _say(f'{job.name}: starts')
    code = job.execute(lambda: interruption.requested)
    if code not in (0, EXIT_CODE):
      _say(f'{job.name}: failed, exit code {code}')
    return code

  waiting = [job for job in jobs if not job.is_done()]
  with interruption.deferred(), ThreadPoolExecutor(together) as pool:
    futures = [pool.submit(execute, job) for job in waiting]
    # With no timeout, a signal that comes just as wait() begins would go unhandled.
    while wait(futures, POLL).not_done:
      pass
    codes = {future.result() for future in futures} - {0}
    _say(f'{sum(job.is_done() for job in jobs)} of {len(jobs)} runs are done')
    interruption.last_words = lambda: 'The same command resumes them.'
    interruption.leave_if_requested()
  return 1 if codes - {EXIT_CODE} else max(codes, default=0)


def _say(text: str) -> None:
  """Prints a whole line to stderr; jobs call it in threads of their own."""
  print(f'{text}\n', end='', file=sys.stderr, flush=True)


# Slurm


class Submission:
  """A job that submitit unpickles and calls on a node of the cluster."""

  def __init__(self, job: Job):
    self.job = job
    self._stopped = False
    self._running: Future[int]

  def __call__(self) -> int:
    """Runs the job; returns its exit code."""
    # scancel and preemption send SIGTERM half a minute before SIGKILL, to this process
    # alone.
    signal.signal(signal.SIGTERM, self._stop)
    with ThreadPoolExecutor(1) as pool:
      self._running = pool.submit(self.job.execute, lambda: self._stopped)
      return self._running.result()

  def checkpoint(self) -> Any:
    """Stops the job, which saves; returns what submitit is to queue again.

    submitit calls it in its handler of the preemption signal.
    """
    from submitit.helpers import DelayedSubmission

    self._stop()
    # The handler runs within the main thread's result(), so this cannot wait for it.
    while not self._running.done():
      time.sleep(POLL)
    return DelayedSubmission(Submission(self.job))

  def _stop(self, *_: object) -> None:
    self._stopped = True


def submit(
  workdir: pathlib.Path, jobs: Sequence[Job], parameters: Sequence[str]
) -> list[str]:
  """Submits the jobs that are not done to Slurm.

  Args:
    workdir: gets the logs, in submitit/.
    parameters: KEY=VALUE of submitit's AutoExecutor.update_parameters.

  Returns: a line on each job, its number and its name, or that all runs are done.

  Raises:
    UserError: `parameters` lack timeout_min, which submitit takes to be 5.
  """
  pairs = (word.partition('=') for word in parameters)
  values = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
  if 'timeout_min' not in values:
    raise UserError('--submit=slurm needs --slurm=timeout_min=MINUTES')
  import submitit  # of an extra

  executor = submitit.AutoExecutor(
    workdir / 'submitit', cluster='slurm', slurm_max_num_timeout=STARTS - 1
  )
  executor.update_parameters(name='sweep', **values)
  waiting = [job for job in jobs if not job.is_done()]
  if not waiting:
    return [f'{len(jobs)} of {len(jobs)} runs are done']
  with executor.batch():
    submitted = [executor.submit(Submission(job)) for job in waiting]
  return [f'{s.job_id}: {j.name}' for s, j in zip(submitted, waiting, strict=True)]
