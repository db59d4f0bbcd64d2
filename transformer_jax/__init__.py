"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX.

import transformer_jax
model = transformer_jax.load('runs/multi30k')
model.translate(['A man rides a horse.'])
"""

import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from transformer_jax.analysis.maps import Maps, RunAttention
  from transformer_jax.decoding.loaded_run import LoadedRun

__version__ = '0.1.0'


def load(
  workdir: str | pathlib.Path,
  *,
  average: int | None = None,
  step: int | str | None = None,
  beam: int | None = None,
  alpha: float | None = None,
) -> 'LoadedRun':
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
  from transformer_jax.decoding.loaded_run import LoadedRun  # JAX takes seconds
  from transformer_jax.runs.run import Run
  from transformer_jax.tasks import task_of

  run = Run(pathlib.Path(workdir))
  return LoadedRun(run, task_of(run.config()), average, step, beam, alpha)


def attention(
  model: 'LoadedRun', sources: Sequence[str], targets: Sequence[str] | None = None
) -> 'list[Maps]':
  """The attention weights of every head, piece by piece: those of Figures 3 to 5.

  Args:
    model: from load().
    targets: translations of the sources; None stands for those that beam search finds.

  Raises:
    UserError: a text is too long to be shown; the message numbers the sentence.
  """
  from transformer_jax.decoding.loaded_run import check_strings

  check_strings(sources, sources if targets is None else targets)
  translations = [None] * len(sources) if targets is None else targets
  return _attention_of(model).maps(sources, translations, merge=False)


@functools.lru_cache(maxsize=1)
def _attention_of(model: 'LoadedRun') -> 'RunAttention':
  """Keeps what is compiled for a model's attention between two calls."""
  from transformer_jax.analysis.maps import RunAttention

  return RunAttention(model)
