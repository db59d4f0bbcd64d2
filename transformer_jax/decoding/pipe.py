"""A run as a filter of text: N lines in, N lines out, or N times K."""

import math
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine import platform
from transformer_jax.model.build import architecture
from transformer_jax.runs import config_checks
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint


def split_lines(content: bytes) -> list[str]:
  """The lines of a text, which end at LF alone; the last may lack its LF.

  Bytes that are not UTF-8 become U+FFFD, so that no line is lost.
  """
  lines = content.decode('utf-8-sig', errors='replace').split('\n')
  if lines[-1] == '':
    lines.pop()
  # NUL would end a string for SentencePiece; CR is the rest of a CRLF.
  return [line.removesuffix('\r').replace('\x00', ' ').strip() for line in lines]


def output_lines(
  found: Iterable[list[Hypothesis]], nbest: int, scores: bool
) -> Iterator[str]:
  """Exactly `nbest` lines for each sentence, empty ones if it has fewer hypotheses.

  With `scores`, each starts with its score and a tab.
  """
  for hypotheses in found:
    none = [Hypothesis('', -math.inf, [])] * (nbest - len(hypotheses))
    for hypothesis in hypotheses[:nbest] + none:
      yield (f'{hypothesis.score:.4f}\t' if scores else '') + hypothesis.text


def restore(
  run: Run, config: Any, average: int | None = None, step: int | None = None
) -> Any:
  """The average of a run's checkpoints, in float32; JAX is started for it.

  Args:
    average: how many checkpoints to average; None is what the config says.
    step: the last of them; None is the newest.

  Raises:
    UserError: there is no such checkpoint.
  """
  every, count = config.checkpoint_every_steps, average or config.average_last
  steps = checkpoint.to_average(run, every, count, step)
  platform.start(config.slices)
  _, shapes = architecture(config)
  return checkpoint.average(run.checkpoints, steps, shapes)


def translate(
  workdir: pathlib.Path,
  read: Callable[[], bytes],
  nbest: int,
  progress: Callable[[Iterable[Any]], Iterable[Any]],
  average: int | None = None,
  step: int | None = None,
) -> tuple[list[list[Hypothesis]], list[str]]:
  """Translates a text with a run's average of checkpoints, as its config says.

  Args:
    read: returns the text; called when the run is known to be whole.
    nbest: how many hypotheses there should be; the beam is as wide at least.
    progress: wraps the batches.
    average, step: see restore().

  Returns: the hypotheses of each line, and what to tell of lines that were cut.

  Raises:
    UserError: the run is not whole.
  """
  run = Run(workdir)
  config = run.config()
  config.beam = max(config.beam, nbest)
  config_checks.check_numbers(config.to_dict())
  vocabularies = run.vocabularies()
  params = restore(run, config, average, step)
  lines = split_lines(read())
  translator = Translator(config, vocabularies, params)
  return translator.translate(lines, progress), [*translator.cuts()]
