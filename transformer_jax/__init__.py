"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX.

import transformer_jax
model = transformer_jax.load('runs/multi30k')
model.translate(['A man rides a horse.'])
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pathlib

  from transformer_jax.decoding.trained import TrainedModel

__version__ = '0.1.0'


def load(
  workdir: 'str | pathlib.Path',
  *,
  average: int | None = None,
  step: int | str | None = None,
  beam: int | None = None,
  alpha: float | None = None,
) -> 'TrainedModel':
  """Loads a trained run, to translate, score and look inside.

  The first call should come before the program uses JAX, for it tells XLA how a CPU is
  to multiply (docs/speed.md) and how many devices to make of its cores.

  None stands for what the run's config says; a `step` of None for the newest.

  Args:
    workdir: the run's folder.
    average: how many checkpoints to average.
    step: the last of them. 'best' is the one that was best on dev, and then `average`
      is 1 by default.
    beam, alpha: of the search (section 6.1).

  Raises:
    UserError: the run is not whole, has no such checkpoint, or a number is impossible.
  """
  from transformer_jax.decoding.trained import TrainedModel  # JAX takes seconds

  return TrainedModel(workdir, average=average, step=step, beam=beam, alpha=alpha)
