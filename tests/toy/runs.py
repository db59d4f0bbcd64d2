"""A task that counts backwards in German, and runs of it by our commands."""

import copy
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from toy import config
from toy.corpus import write_raw
from toy.programs import Program
from transformer_jax.model import build
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint
from transformer_jax.training.step import TrainState, adam

# A model that trains in a second; no word is learnt.
TINY = config.TINY | {
  'slices': 2,
  'max_shapes': 1,
  'tokens_per_batch': 64,
  'train_steps': 30,
  'warmup_steps': 150,
  'rate_factor': 0.7,
  'checkpoint_every_steps': 5,
  'keep_checkpoints': 3,
  'average_last': 3,
  'log_every_steps': 2,
}
# One that learns the task.
SETTINGS = TINY | {
  'model.d_model': 64,
  'model.d_ff': 128,
  'model.h': 4,
  'model.d_k': 16,
  'model.d_v': 16,
  'model.P_drop': 0.0,
  'tokens_per_batch': 1000,
  'train_steps': 500,
  'checkpoint_every_steps': 100,
  'average_last': 2,
  'log_every_steps': 50,
}


class Toy:
  """A folder with a toy task, and our commands on it."""

  def __init__(self, folder: pathlib.Path, **settings: object):
    self.folder, self.workdir = folder, folder / 'run'
    self.checkpoints = self.workdir / 'checkpoints'
    if not (folder / 'raw').exists():
      write_raw(folder / 'raw', 100, 20, 20, order=-1)
    self._config = ['--config=configs/quickstart.py', f'--raw_dir={folder / "raw"}']
    for key, value in (TINY | settings).items():
      self._config.append(f'--config.{key}={value}')

  def train(self, *options: str, **how: Any) -> Program:
    """Starts a training; `how` are keyword arguments of Program."""
    folders = f'--workdir={self.workdir}', f'--data_dir={self.folder / "data"}'
    return Program(self.folder, 'train', *folders, *self._config, *options, **how)

  def in_another(self, workdir: str) -> 'Toy':
    """Returns the same task and settings with another run's folder."""
    other = copy.copy(self)
    other.workdir = self.folder / workdir
    other.checkpoints = other.workdir / 'checkpoints'
    return other


def finished(program: Program) -> Program:
  assert program.code() == 0, program.output
  return program


def records(toy: Toy) -> list[dict]:
  return [r for r in Run(toy.workdir).records() if 'loss' in r]


def state_shapes(config: ml_collections.ConfigDict) -> tuple[Any, Any]:
  """Returns the shapes of the parameters and of Adam's state."""
  _, params = build.architecture(config)
  return params, jax.eval_shape(adam(config).init, params)


def restored(toy: Toy, step: int) -> TrainState:
  shapes = state_shapes(Run(toy.workdir).config())
  return checkpoint.restore(toy.checkpoints, step, *shapes)


def assert_equal_runs(one: Toy, other: Toy) -> None:
  """Compares the last states bit for bit, and the records without their seconds."""
  step = Run(one.workdir).config().train_steps
  ends = [restored(toy, step) for toy in (one, other)]
  jax.tree.map(np.testing.assert_array_equal, *ends)
  logs = [
    [r | {'seconds': 0} for r in Run(toy.workdir).records() if 'saved' not in r]
    for toy in (one, other)
  ]
  # A checkpoint off the cadence cuts a record in two, each of fewer `steps`.
  spans = [{(r['step'], r.get('steps')) for r in log} for log in logs]
  in_both = lambda r: 'loss' not in r or (r['step'], r['steps']) in spans[0] & spans[1]
  assert [*filter(in_both, logs[0])] == [*filter(in_both, logs[1])]
  for key in ('target_tokens', 'steps', 'skipped'):
    totals = [sum(r[key] for r in records(toy)) for toy in (one, other)]
    assert totals[0] == totals[1], key
