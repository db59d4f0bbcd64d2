"""Which runs a sweep consists of, and the commands of each."""

import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

import ml_collections

from transformer_jax.data import preparing
from transformer_jax.data.corpus import name_apart
from transformer_jax.data.flags import DataFlags
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.flags import Flags
from transformer_jax.runs import config_checks
from transformer_jax.runs.job import Job
from transformer_jax.runs.run import Run


class Plan(NamedTuple):
  """Configs and seeds, each pair of which is a run, and how runs are made."""

  workdir: pathlib.Path  # holds the runs' folders
  configs: Sequence[str]  # FILE or FILE:ARGUMENT, as --config takes it
  seeds: Sequence[str]
  split: str  # what to score on
  average: int  # how many checkpoints to average
  data: DataFlags
  trainer_flags: Sequence[str]  # more flags of the trainer, --config.KEY=VALUE say

  def jobs(self) -> list[Job]:
    """All jobs, ordered by seed first: every config has a run before any has two.

    Raises:
      UserError: what was asked for cannot be run, or not in these folders.
    """
    if not self.configs:
      raise UserError('give --rows, or --config')
    if not self.seeds or not all(seed.isdecimal() for seed in self.seeds):
      raise UserError(f'--seeds={",".join(self.seeds)}: numbers, such as 1,2,3')
    jobs = [self._job(name, int(seed)) for seed in self.seeds for name in self.configs]
    if len({job.run for job in jobs}) < len(jobs):
      raise UserError('a row, a config or a seed is given twice')
    return jobs

  def prepare(self) -> None:
    """Prepares all corpora; jobs that start together would wait for each other."""
    for name in self.configs:
      config = load_config(name, self.trainer_flags)
      preparing.prepare(config, *self.data.folders())

  def _job(self, name: str, seed: int) -> Job:
    given = [f'--config.seed={seed}', *self.trainer_flags]
    config = load_config(name, given)
    if self.average > config.keep_checkpoints:
      raise UserError(
        f'--average={self.average}: {name} keeps {config.keep_checkpoints} checkpoints '
        '(-- --config.keep_checkpoints=...)'
      )
    run = Run(self.workdir / _folder_name(name, seed))
    if (run.workdir / 'config.json').is_file():
      run.check_same(json.loads(config.to_json_best_effort()))
    python, where = (sys.executable, '-m'), f'--workdir={run.workdir}'
    data_dir = f'--data_dir={self.data.folders()[0]}'
    score = f'--split={self.split}', f'--average={self.average}'
    train = *python, 'scripts.train', f'--config={name}', *given, where
    searched = config.beam, config.alpha
    result_of = lambda step: run.translations(
      self.split, step, self.average, *searched
    ).with_suffix('.json')
    return Job(
      run,
      (
        (*train, *self.data.command_line()),
        (*python, 'scripts.evaluate', where, data_dir, *score),
      ),
      config.train_steps,
      config.patience,
      result_of,
    )


def load_config(name: str, trainer_flags: Sequence[str]) -> ml_collections.ConfigDict:
  """The config that the trainer makes of --config=NAME and --config.KEY=VALUE."""
  overrides = [word for word in trainer_flags if word.startswith('--config.')]
  table = Flags('')
  config = table.config('', name_apart)
  table.parse(['train', f'--config={name}', *overrides])
  config_checks.check_numbers(config.value.to_dict())
  return config.value


def _folder_name(config: str, seed: int) -> str:
  """Such as table3.base.mini.seed-1, of configs/table3.py:base,mini."""
  path, _, argument = config.partition(':')
  words = [pathlib.Path(path).stem, *re.split('[,/]', argument), f'seed-{seed}']
  return '.'.join(word for word in words if word)
