"""The perplexity of held-out text."""

from typing import Any

import jax
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.data.corpus import Sentences
from transformer_jax.data.vocabulary import EOS
from transformer_jax.machine.devices import map_rows, map_sentences
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
    source: Sentences,
    target: Sentences,
  ):
    limit = build.longest_text(config)
    longer = np.maximum(source.lengths, target.lengths)
    self.cut_pairs = int((longer > limit).sum())
    about = 'pairs cut for the perplexity because they were too long'
    self.warnings = [f'{about}: {self.cut_pairs}'] if self.cut_pairs else []
    cut = lambda ids: [*ids[:-1][: limit - 1], EOS]
    rows = range(len(source))
    self._texts = [[cut(text[row]) for row in rows] for text in (source, target)]
    self._positions, self._longest = config.decode_tokens, limit

    def sums(params: PyTree, source: jax.Array, target: jax.Array) -> jax.Array:
      outputs = nnx.merge(graph, params)(source, target)
      return cross_entropy(outputs, target, 0.0)[1][None]

    self._sums = map_rows(sums)

  def __call__(self, params: PyTree) -> float:
    """Returns exp(nats per target piece), EOS included."""
    batches = map_sentences(
      self._sums,
      params,
      self._texts,
      positions=self._positions,
      longest=self._longest,
    )
    total = sum(float(sums.sum()) for _, sums in batches)
    return metrics.perplexity(total / sum(map(len, self._texts[1])))
