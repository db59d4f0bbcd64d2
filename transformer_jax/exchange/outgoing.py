"""A run's model on its way out: its average, its vocabulary, its scores."""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from transformer_jax.data import card
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.training import checkpoint

Tree = Any


class Outgoing(NamedTuple):
  """What every format is made of.

  Attributes:
    config: the run's config.json.
    imported: the name of the folder that the run was made of, if it was imported.
    steps: of the checkpoints that were averaged.
    params: float32.
    pieces: of every row of the embeddings; of the target's where it has its own.
    spm: the SentencePiece models of source and target, which may be one file.
    results: of all evaluations of the same checkpoints.
  """

  run: Run
  config: dict[str, Any]
  imported: str | None
  steps: list[int]
  params: Tree
  pieces: list[str]
  spm: tuple[pathlib.Path, pathlib.Path]
  results: list[Result]

  @classmethod
  def read(cls, run: Run, average: int | None, step: int | str | None) -> 'Outgoing':
    """Averages checkpoints as an evaluation does; None is what the config says.

    Raises:
      UserError: the run is not whole, or has no such checkpoint.
    """
    config = run.config()
    vocabularies = run.vocabularies()
    steps = chosen_steps(run, config, average, step)
    platform.start(config.slices)
    _, shapes = build.architecture(config)
    made = card.read_card(run.workdir)
    params = checkpoint.average(run.checkpoints, steps, shapes)
    return cls(
      run,
      config.to_dict(),
      made['imported']['folder'] if 'imported' in made else None,
      steps,
      params,
      vocabularies.target.pieces(),
      run.vocabulary_files(),
      [*_results(run, steps)],
    )


def _results(run: Run, steps: list[int]) -> Iterator[Result]:
  for path in sorted((run.workdir / 'translations').glob('*.json')):
    try:
      result = Result.read(path)
    except UserError as error:  # damaged, or of another version
      print(f'not on the page: {error}', file=sys.stderr)
      continue
    if result.averaged == steps:
      yield result
