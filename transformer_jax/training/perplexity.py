"""The perplexity of held-out text."""

from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.data import batches
from transformer_jax.machine.devices import decode_tokens, map_rows, round_up
from transformer_jax.model import build
from transformer_jax.training import metrics
from transformer_jax.training.step import cross_entropy


class Perplexity:
  """The perplexity per piece of a split, without label smoothing (Table 3's column).

  EOS counts as a piece. Call it with parameters on this host's devices.

  Attributes:
    cut_pairs: how many pairs are cut, because a text is over build.longest_text().
    warnings: a message about these pairs, if there are some.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    graph: nnx.GraphDef[Any],
    source: batches.Sentences,
    target: batches.Sentences,
  ):
    limit = build.longest_text(config)
    longer = np.maximum(source.lengths, target.lengths)
    self.cut_pairs = int((longer > limit).sum())
    about = 'pairs cut for the perplexity because they were too long'
    self.warnings = [f'{about}: {self.cut_pairs}'] if self.cut_pairs else []
    self._batches = batches.Batches(
      source.cut(limit),
      target.cut(limit),
      tokens=decode_tokens(config.decode_tokens),
      slices=round_up(1),
      max_shapes=4,
      seed=0,
      padded=True,
    )

    def sums(params: PyTree, source: jax.Array, target: jax.Array) -> jax.Array:
      outputs = nnx.merge(graph, params)(source, target)
      return cross_entropy(outputs, target, 0.0)[1][None]

    self._sums = map_rows(sums)

  def __call__(self, params: PyTree) -> float:
    """Returns exp(nats per target piece), EOS counted."""
    total, tokens = 0.0, 0
    started: list[Callable[[], np.ndarray]] = []  # each waits for its batch
    for step in range(self._batches.steps_per_epoch):
      batch = self._batches.batch(step)
      rows = lambda ids: ids.reshape(-1, ids.shape[-1])
      started.append(self._sums(params, rows(batch.source), rows(batch.target)))
      tokens += batch.target_tokens
      # One batch waits behind another, not all: they would fill the devices' memory.
      if len(started) > 1:
        total += float(started.pop(0)().sum())
    total += float(started.pop()().sum())
    return metrics.perplexity(total / tokens)
