"""A sweep: plans its runs, and prints or runs their commands."""

import collections
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import ml_collections

from transformer_jax.data import prepare
from transformer_jax.data.corpus import DataFlags, rename_if_changed
from transformer_jax.data.task import Task
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE, Interruption
from transformer_jax.runs.config import as_json
from transformer_jax.runs.jobs import Job, run_jobs, say
from transformer_jax.runs.run import Run, start_from


class Plan(NamedTuple):
  """A sweep: its configs and seeds, a run for each pair, and the flags of all runs."""

  workdir: pathlib.Path  # holds the runs' folders
  configs: Sequence[str]  # FILE or FILE:ARGUMENT, as --config takes it
  seeds: Sequence[int]
  split: str  # what to score on
  average: int  # how many checkpoints to average
  data: DataFlags
  trainer_flags: Sequence[str]  # more flags of the trainer, --config.KEY=VALUE say
  task_of: Callable[[ml_collections.ConfigDict], Task]  # that a config chooses

  def jobs(self) -> list[Job]:
    """Returns all jobs: those of the first seed, one a config, then those of the next.

    Raises:
      UserError: the plan cannot be run, or not in these folders.
    """
    if not self.configs:
      raise UserError('give --rows, or --config')
    for flag in self.trainer_flags:
      if re.match('--?config([.]seed)?=', flag):  # a folder is named after both
        raise UserError(f'{flag}: give --rows, --config and --seeds before the --')
      if re.match('--?(workdir|data_dir|raw_dir|tfds_data_dir)=', flag):
        raise UserError(f'{flag}: give it before the --')
    jobs = [self._job(name, seed) for seed in self.seeds for name in self.configs]
    for name, count in collections.Counter(job.name for job in jobs).items():
      if count > 1:
        raise UserError(
          f'{name} would be the folder of {count} runs: a row, a config or a seed is '
          'given twice, or two configs have one name'
        )
    return jobs

  def prepare(self) -> None:
    """Prepares all corpora; jobs that start together would wait for each other."""
    for name in self.configs:
      runs = [self._run(name, seed) for seed in self.seeds]
      config = load_config(name, self.trainer_flags, runs[0])
      workdir = runs[0].workdir if all(run.is_started for run in runs) else None
      task = self.task_of(config)
      prepare.prepare_corpus(config, task, *self.data.folders(), workdir)

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
    data_dir = f'--data_dir={self.data.folders()[0]}'
    score = f'--split={self.split}', f'--average={self.average}'
    train = *python, 'scripts.train', f'--config={name}', *flags, where
    evaluate = *python, 'scripts.evaluate', where, data_dir, *score
    commands = (*train, *self.data.command_line()), evaluate
    return Job(run, commands, settings, self.split, self.average)

  def _run(self, config: str, seed: int) -> Run:
    return Run(self.workdir / _folder_name(config, seed))


def load_config(
  name: str, trainer_flags: Sequence[str], run: Run
) -> ml_collections.ConfigDict:
  """Returns the config that the trainer makes of --config=NAME and other flags."""
  words = [w for w in trainer_flags if re.match('--?(config[.]|init_from)', w)]
  table = Flags('')
  config = table.config('', rename_if_changed)
  parent = table.path('init_from', None, '')
  table.parse(['train', f'--config={name}', *words])
  if parent.value:
    start_from(config.value, parent.value, run.workdir)
  return config.value


def _folder_name(config: str, seed: int) -> str:
  """Returns table3.base.mini.seed-1 for configs/table3.py:base,mini and seed 1."""
  path, _, argument = config.partition(':')
  words = [pathlib.Path(path).stem, *re.split('[,/]', argument), f'seed-{seed}']
  return '.'.join(word for word in words if word)


def print_commands(jobs: Sequence[Job]) -> None:
  """Prints the commands that would be run to stdout, and what is done to stderr."""
  for job in jobs:
    is_done = job.is_done()
    print('done   ' if is_done else 'waiting', job.name, file=sys.stderr)
    if not is_done:
      print(*map(shlex.join, job.commands), sep='\n')


def run(jobs: Sequence[Job], together: int, interruption: Interruption) -> int:
  """Runs the jobs that are not done on this machine, `together` at a time.

  A signal stops them; then the process is ended.

  Returns: the exit code: 0 if all jobs are done, 1 if one failed, else EXIT_CODE.
  """
  with interruption.deferred():
    codes = run_jobs(jobs, together, lambda: interruption.requested)
    say(f'{sum(job.is_done() for job in jobs)} of {len(jobs)} runs are done')
    if interruption.requested:
      interruption.last_words = lambda: 'The same command resumes them.'
      interruption.leave()
  if {*codes.values()} <= {0}:
    return 0
  return EXIT_CODE if {*codes.values()} <= {0, EXIT_CODE} else 1
