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
  decode_dtype: str | None = None,
) -> 'LoadedRun':
  """Loads a trained run, which then translates and scores sentences.

  Call it before the program uses JAX: it sets how XLA multiplies on a CPU
  (docs/speed.md), and how many devices XLA makes of the CPU's cores.

  Args:
    workdir: the run's folder.
    average: how many checkpoints to average. None: as many as the config says, or 1 if
      `step` is 'best'.
    step: the last of these checkpoints. 'best': the best one on dev. None: the newest.
    beam, alpha: the search's K and the exponent of its length penalty (section 6.1).
    decode_dtype: of the search's products: 'float32', 'bfloat16', or 'auto' for the
      faster one. Only float32 makes each result independent of the other sentences.
      None, for beam, alpha and decode_dtype: what the config says.

  Raises:
    UserError: the run is incomplete, has no such checkpoint, or an argument has a value
      that it cannot have.
  """
  from transformer_jax.decoding.loaded_run import LoadedRun  # JAX takes seconds
  from transformer_jax.runs.run import Run
  from transformer_jax.tasks import output_of

  run = Run(pathlib.Path(workdir).absolute())  # weights are read later
  output = output_of(run.config())
  return LoadedRun(run, output, average, step, beam, alpha, decode_dtype)


def attention(
  model: 'LoadedRun', sources: Sequence[str], targets: Sequence[str] | None = None
) -> 'list[Maps]':
  """Returns the attention weights of every head, as Figures 3 to 5 show them.

  There is one Maps for each sentence. Its rows and columns are pieces, not words.

  Args:
    targets: translations of the sources. None: beam search translates them.

  Raises:
    UserError: a text has more pieces than a picture shows; the message has the
      sentence's number.
  """
  from transformer_jax.decoding.loaded_run import check_strings

  check_strings(sources, sources if targets is None else targets)
  translations = [None] * len(sources) if targets is None else targets
  return _attention_of(model).maps(sources, translations, merge=False)


@functools.lru_cache(maxsize=1)
def _attention_of(model: 'LoadedRun') -> 'RunAttention':
  """Returns a RunAttention, which keeps its compiled programs between two calls."""
  from transformer_jax.analysis.maps import RunAttention

  return RunAttention(model)
