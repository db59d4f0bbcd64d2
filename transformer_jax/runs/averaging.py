"""Which checkpoints are averaged (section 6.1); no JAX."""

import sys

import ml_collections

from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run
from transformer_jax.runs.saved import flaw, numbered, steps


def chosen_steps(
  run: Run,
  config: ml_collections.ConfigDict,
  average: int | None,
  last: int | str | None,
) -> list[int]:
  """The steps of the checkpoints to average, ascending; each has its checkpoint.

  Args:
    average: how many; None is what the config says, and 1 where `last` is 'best'.
    last: the last of them; 'best' is run.best_step(), None the newest that was saved.

  Raises:
    UserError: `average` is less than 1, or a step has no finished checkpoint; it is
      named.
  """
  if average is None:
    average = 1 if last == 'best' else config.average_last
  if average < 1:
    raise UserError(f'average={average}: 1 or more')
  folder, there = run.checkpoints, steps(run.checkpoints)
  if not there:
    raise UserError(f'{folder}: no finished checkpoint there')
  last = run.best_step() if last == 'best' else last
  newest = max(*numbered(folder), run.newest_saved()) if last is None else last
  wanted = averaged_steps(newest, config.checkpoint_every_steps, average)
  missing = [step for step in wanted if step not in there]
  if missing:
    path = folder / str(missing[-1])
    after = len(wanted) - 1 - wanted.index(missing[-1])
    remedy = f'--average={after}' if after else f'--step, one of {there}'
    raise UserError(
      f'{path} {flaw(path)}, one of {len(wanted)} to average up to step {newest}: put '
      f'it back, or give {remedy}'
    )
  if len(wanted) < average:
    print(f'averaging {len(wanted)} checkpoints: no more were made', file=sys.stderr)
  return wanted


def averaged_steps(last: int, every: int, count: int) -> list[int]:
  """The `count` steps to average, up to and including `last`; fewer in a short run.

  All but `last` are multiples of `every`, the steps between two checkpoints. So an
  average spans as many steps in a run that was stopped and resumed as in any other.
  """
  before = (last - 1) // every  # multiples of `every`
  return [n * every for n in range(max(1, before - count + 2), before + 1)] + [last]
