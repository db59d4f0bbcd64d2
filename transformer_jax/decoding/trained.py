"""A trained model for Python programs: to translate, to score and to look inside."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx

from transformer_jax.data.task import Task
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.restored import Restored
from transformer_jax.decoding.translate import Hypothesis
from transformer_jax.machine.devices import map_rows
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build


class Scored(NamedTuple):
  """A target's pieces, </s> included, and the log probability of each, in nats."""

  pieces: list[str]
  log_probabilities: np.ndarray  # [pieces] float32

  @property
  def total(self) -> float:
    """log P of the whole target."""
    return float(self.log_probabilities.sum())


class TrainedModel:
  """A run, ready for use: what transformer_jax.load() returns.

  Attributes:
    run: the run's folder.
    config: the run's (configs/base.py has the keys), with `beam` and `alpha` as given.
    restored: the run with its search.
    params: its parameters, float32: a tree of arrays on all devices of this host.
  """

  def __init__(
    self,
    workdir: pathlib.Path,
    task: Task,
    *,
    average: int | None = None,
    step: int | str | None = None,
    beam: int | None = None,
    alpha: float | None = None,
  ):
    """Arguments and errors are those of transformer_jax.load()."""
    self.restored = Restored(workdir, task, average, step, beam, alpha)
    self.run, self.config = self.restored.run, self.restored.config
    self.params = self.restored.params

    def log_probabilities(
      params: Any, source: jax.Array, target: jax.Array
    ) -> jax.Array:
      logits = nnx.merge(self.restored.graph, params)(source, target).logits
      return -optax.softmax_cross_entropy_with_integer_labels(logits, target)

    self._log_probabilities = map_rows(log_probabilities)

  def translate(self, sentences: Sequence[str]) -> list[str]:
    """The best translation of each sentence; that of an empty one is empty."""
    return [best.text for (best,) in self.hypotheses(sentences, nbest=1)]

  def hypotheses(
    self,
    sentences: Sequence[str],
    progress: Callable[[Iterable], Iterable] = iter,
    *,
    nbest: int | None = None,
  ) -> list[list[Hypothesis]]:
    """At most `nbest` translations of each sentence, best first.

    Each has its text, its score (log P / length penalty, in nats) and its pieces' ids.
    The fewer are wanted, the sooner the search is over. `progress` wraps the batches,
    as tqdm does.

    Args:
      nbest: from 1 to the search's beam; None stands for the beam.

    Raises:
      ValueError: `nbest` is not from 1 to the search's beam.
    """
    check_strings(sentences, sentences)
    nbest = self.config.beam if nbest is None else nbest
    if not 1 <= nbest <= self.config.beam:
      raise ValueError(f'nbest={nbest}: 1 to {self.config.beam}, which is the beam')
    return self.restored.translator.translate(sentences, nbest, progress)

  def warm_up(self, nbest: int) -> None:
    """Compiles the search for short sentences, so that the first need not wait."""
    self.restored.translator.warm_up(nbest)

  def pieces(self, hypothesis: Hypothesis) -> list[str]:
    """A hypothesis's pieces, without </s>."""
    names = self.restored.vocabularies.target.pieces()
    return [names[i] for i in hypothesis.tokens if i != EOS]

  def cuts(self) -> list[str]:
    """What there is to tell of sentences and translations that were cut so far."""
    return [*self.restored.translator.cuts()]

  def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
    """How probable each target is as its source's translation, by teacher forcing.

    Raises:
      UserError: a side is longer than the model can take; the message numbers it.
    """
    check_strings(sources, targets)
    ids = self.restored.source_ids(sources), self.restored.target_ids(targets)
    pairs = [*zip(*ids, strict=True)]
    most = build.longest_side(self.config)
    for number, pair in enumerate(pairs, 1):
      if max(map(len, pair)) > most:
        raise UserError(f'pair {number} has a side of over {most} pieces: split it')
    names = self.restored.vocabularies.target.pieces()
    found = self.restored.over_pairs(self._log_probabilities, pairs)
    return [
      Scored([names[i] for i in target], row[: len(target)])
      for (_, target), row in zip(pairs, found, strict=True)
    ]


def check_strings(sources: Sequence[str], targets: Sequence[str]) -> None:
  """Raises TypeError for one string, which would be taken for many short sentences.

  Raises ValueError if there are not as many targets as sources.
  """
  if isinstance(sources, str) or isinstance(targets, str):
    raise TypeError("a list of sentences is needed, such as ['A man sleeps.']")
  if len(sources) != len(targets):
    raise ValueError(f'{len(sources)} sources and {len(targets)} targets')
