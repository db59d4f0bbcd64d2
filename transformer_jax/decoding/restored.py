"""A run's model as its checkpoints have it, and how pairs pass through it."""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.data import token_files
from transformer_jax.data.task import Task
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.translate import Translator
from transformer_jax.machine import platform
from transformer_jax.machine.devices import replicate_read_only, round_up
from transformer_jax.model import build
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.training import checkpoint

Pair = tuple[list[int], list[int]]  # ids of source and target, each with its EOS

# A batch has ROWS pairs. Lengths are rounded up to multiples of STEP, but not beyond
# what the model takes.
ROWS, STEP = 16, 16


class Restored:
  """The average of a run's checkpoints; JAX is started for it.

  Attributes:
    run, config: the run's, with `beam` and `alpha` as asked for.
    task: that the config chooses.
    vocabularies: of source and target.
    graph: what nnx.merge needs beside parameters.
    params: float32, on all devices of this host.
    translator: searches, as the config says.
  """

  def __init__(
    self,
    workdir: pathlib.Path,
    task: Task,
    average: int | None = None,
    step: int | str | None = None,
    beam: int | None = None,
    alpha: float | None = None,
  ):
    """Arguments and errors are those of transformer_jax.load()."""
    self.run, self.task = Run(workdir), task
    self.config = self.run.config_to_search(beam, alpha)
    self.vocabularies = self.run.vocabularies()
    steps = chosen_steps(self.run, self.config, average, step)
    platform.start(self.config.slices)
    self.graph, shapes = build.architecture(self.config)
    params = checkpoint.average(self.run.checkpoints, steps, shapes)
    self.params = replicate_read_only(params)
    self.translator = Translator(self.config, task, self.vocabularies, params)

  def source_ids(self, sentences: Sequence[str]) -> list[list[int]]:
    """Each sentence as the model reads it, with its EOS."""
    read = [self.task.read(sentence) for sentence in sentences]
    return [[*ids, EOS] for ids in self.vocabularies.source.encode(read)]

  def target_ids(self, sentences: Sequence[str]) -> list[list[int]]:
    """Each sentence as the model would write it, with its EOS."""
    return [[*ids, EOS] for ids in self.vocabularies.target.encode(sentences)]

  def over_pairs(self, function: Callable, pairs: Sequence[Pair]) -> Iterator[Any]:
    """What `function` makes of each pair, in order.

    `function` comes from map_rows(). It takes parameters and both sides' ids,
    padded: [B, S] and [B, T]. Axis 0 of the arrays that it returns is the batch's rows;
    those of rows that only fill the batch are left out here.
    """
    longest = build.longest_side(self.config)
    for start in range(0, len(pairs), ROWS):
      chosen = pairs[start : start + ROWS]
      sides = [_padded(side, longest) for side in zip(*chosen, strict=True)]
      found = function(self.params, *sides)()
      for row in range(len(chosen)):
        yield jax.tree.map(lambda part, row=row: part[row], found)


def _padded(side: Sequence[list[int]], longest: int) -> np.ndarray:
  """Rows of ids, of a length that few programs are compiled for."""
  length = min(-(-max(map(len, side)) // STEP) * STEP, longest)
  return token_files.padded(side, round_up(len(side)), length)
