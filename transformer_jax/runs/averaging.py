"""Which checkpoints are averaged (section 6.1); no JAX."""

import ml_collections

from transformer_jax.machine.errors import UserError


def averaging(
  config: ml_collections.ConfigDict, average: int | None, step: int | str | None
) -> tuple[int, int]:
  """How many steps lie between checkpoints, and how many checkpoints to average.

  An `average` of None is what the config says, and 1 where the step is 'best'.

  Raises:
    UserError: `average` is less than 1.
  """
  if average is None:
    average = 1 if step == 'best' else config.average_last
  if average < 1:
    raise UserError(f'average={average}: 1 or more')
  return config.checkpoint_every_steps, average


def averaged_steps(last: int, every: int, count: int) -> list[int]:
  """The last `count` steps up to and with `last`, or all of a run that is shorter.

  All but `last` are multiples of `every`, the steps between two checkpoints: an average
  spans the same time, no matter how often a run was stopped and gone on with.
  """
  before = (last - 1) // every  # multiples of `every`
  return [n * every for n in range(max(1, before - count + 2), before + 1)] + [last]
