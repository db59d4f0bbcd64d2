"""What a run adds to its embeddings for each position (section 3.5)."""

import pathlib

import numpy as np

from transformer_jax.data import card
from transformer_jax.data.lines import SIDES
from transformer_jax.decoding.restored import Restored
from transformer_jax.model import build
from transformer_jax.model.layers import sinusoids
from transformer_jax.runs.run import Run


def encodings(
  workdir: pathlib.Path, average: int | None = None, step: int | str | None = None
) -> dict[str, np.ndarray]:
  """Tables [positions, d_model]: sinusoids, and the run's own if it has learnt some.

  They are as long as the longest sentence of the training text: rows behind that are as
  they were initialised. Of a run without a corpus, they are as long as its config lets
  a sentence be. `average` and `step` are as Restored has them.
  """
  run = Run(workdir)
  config, splits = run.config(), card.read_card(workdir)['splits']
  most = dict.fromkeys(SIDES, min(config.max_length, build.longest_side(config)))
  longest = splits['train']['longest'] if splits else most
  length = max(longest.values())
  tables = {'sinusoids': sinusoids(length, config.model.d_model)}
  if config.model.positions == 'learned':
    params = Restored(workdir, average, step).params
    for side in ('source', 'target'):
      table = np.asarray(params[f'{side}_positions'])
      tables[f'learned, {side}'] = table[: longest[side]]
  return tables
