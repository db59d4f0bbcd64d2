"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX.

import transformer_jax
model = transformer_jax.load('runs/multi30k')
model.translate(['A man rides a horse.'])
"""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from transformer_jax.analysis.maps import Maps
  from transformer_jax.decoding.trained import TrainedModel

__version__ = '0.1.0'


def load(
  workdir: str | pathlib.Path,
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
  from transformer_jax.runs.run import Run
  from transformer_jax.tasks import task_of

  workdir = pathlib.Path(workdir)
  task = task_of(Run(workdir).config())
  return TrainedModel(workdir, task, average=average, step=step, beam=beam, alpha=alpha)


def attention(
  model: 'TrainedModel', sources: Sequence[str], targets: Sequence[str] | None = None
) -> 'list[Maps]':
  """Where every head looks, piece by piece: the weights of Figures 3 to 5.

  Args:
    model: from load().
    targets: the translations to look at; searched if None.

  Raises:
    UserError: a side is too long to be shown; the message numbers the sentence.
  """
  from transformer_jax.analysis.maps import RunAttention
  from transformer_jax.decoding.trained import check_strings

  check_strings(sources, sources if targets is None else targets)
  given = [None] * len(sources) if targets is None else targets
  return RunAttention(model.restored).maps(sources, given, merge=False)
