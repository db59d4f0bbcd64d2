"""A run's model, which translates and scores; the scripts and siblings share it."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import PyTree

from transformer_jax import config as configs
from transformer_jax.data import text
from transformer_jax.data.vocabulary import EOS, Vocabularies
from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine import platform
from transformer_jax.machine.devices import (
  map_rows,
  map_sentences,
  replicate_read_only,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.scoring.output import Output
from transformer_jax.training import checkpoint


class TargetScore(NamedTuple):
  """A target's pieces, </s> included, and the log probability of each, in nats."""

  pieces: list[str]
  log_probabilities: np.ndarray  # [pieces] float32

  @property
  def total(self) -> float:
    """Returns log P of the whole target."""
    return float(self.log_probabilities.sum())


class LoadedRun:
  """The average of a run's checkpoints: what transformer_jax.load() returns.

  Vocabularies and checkpoints are read, and arrays put on devices, when they are first
  needed.

  Attributes:
    run: the run's folder.
    output: of the task that its config chooses.
    config: the run's (config.py has the keys), with the caller's options of search.
    steps: the steps of the averaged checkpoints, in ascending order. Reading `params`
      may change them.
    graph: the model without its parameters; nnx.merge() puts them together.
  """

  def __init__(
    self,
    run: Run,
    output: Output,
    average: int | None = None,
    step: int | str | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    decode_dtype: str | None = None,
  ):
    """Starts the devices. Arguments and errors are those of transformer_jax.load()."""
    self.run, self.output = run, output
    self.config = run.config()
    search = {'beam': beam, 'alpha': alpha, 'decode_dtype': decode_dtype}
    self.config.update({k: value for k, value in search.items() if value is not None})
    configs.check(self.config.to_dict(), flag='--')
    self._warned: set[str] = set()
    self._choose = lambda: chosen_steps(run, self.config, average, step)
    self.steps = self._choose()
    platform.start(self.config.slices)
    self.graph, self._shapes = build.architecture(self.config)

  @functools.cached_property
  def vocabularies(self) -> Vocabularies:
    """Returns the source's and the target's vocabulary."""
    return self.run.vocabularies()

  @functools.cached_property
  def params(self) -> PyTree:
    """Returns the averaged parameters: a tree of float32 arrays of the host.

    If the run trains and has deleted one of `steps`, they are chosen anew.
    """
    self.steps, params = checkpoint.average_kept(
      self.run.checkpoints, self.steps, self._choose, self._shapes
    )
    return params

  @functools.cached_property
  def device_params(self) -> PyTree:
    """Returns `params` on all devices of this host, in float32."""
    return replicate_read_only(self.params)

  @functools.cached_property
  def translator(self) -> Translator:
    """Returns the beam search, which puts parameters of its dtype on the devices."""
    params = self.params  # which settles self.steps
    nats = self.run.dev_nats(self.steps[-1])
    return Translator(self.config, self.output, self.vocabularies, params, nats)

  def translate(self, sentences: Sequence[str]) -> list[str]:
    """Returns the best translation of each sentence; of an empty sentence, ''.

    Warns, once, of each kind of text that the model cannot translate well.
    """
    return [best.text for (best,) in self._translate(sentences, 1)]

  def hypotheses(
    self, sentences: Sequence[str], *, nbest: int | None = None
  ) -> list[list[Hypothesis]]:
    """Returns at most `nbest` translations of each sentence, best first.

    Each has its text, its score (log P / length penalty, in nats) and its pieces' ids.

    Args:
      nbest: from 1 to the search's beam. None: the beam. A search for fewer ends
        sooner.
    """
    nbest = self.config.beam if nbest is None else nbest
    if not 1 <= nbest <= self.config.beam:
      raise ValueError(f'nbest={nbest}: 1 to {self.config.beam}, which is the beam')
    return self._translate(sentences, nbest)

  def _translate(self, sentences: Sequence[str], nbest: int) -> list[list[Hypothesis]]:
    check_strings(sentences, sentences)
    translations = self.translator.translate(sentences, nbest)
    for message in self.translator.warnings():
      kind = message.partition(':')[0]
      if kind not in self._warned:
        self._warned.add(kind)
        warnings.warn(message, stacklevel=3)
    return translations

  def pieces(self, hypothesis: Hypothesis) -> list[str]:
    """Returns a hypothesis's pieces, without </s>."""
    names = self.vocabularies.target.pieces()
    return [names[i] for i in hypothesis.tokens if i != EOS]

  def warnings(self) -> list[str]:
    """Returns messages that count the sentences that were not translated well."""
    return [*self.translator.warnings()]

  def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[TargetScore]:
    """Returns log P of each target's pieces, given its source, by teacher forcing.

    Raises:
      UserError: a text is longer than the model can take; the message numbers it.
    """
    check_strings(sources, targets)
    ids = self.source_ids(sources), self.target_ids(targets)
    longest = build.longest_text(self.config)
    for number, pair in enumerate(zip(*ids, strict=True), 1):
      if max(map(len, pair)) > longest:
        raise UserError(f'pair {number} has a text of over {longest} pieces: split it')
    log_probabilities = {}
    batches = map_sentences(
      self._log_probabilities,
      self.device_params,
      ids,
      positions=self.config.decode_tokens,
      longest=longest,
    )
    for numbers, rows in batches:
      for number, row in zip(numbers, rows, strict=False):  # then rows of padding
        log_probabilities[number] = row[: len(ids[1][number])]
    names = self.vocabularies.target.pieces()
    return [
      TargetScore([names[i] for i in target], log_probabilities[number])
      for number, target in enumerate(ids[1])
    ]

  @functools.cached_property
  def _log_probabilities(self) -> Callable[..., Any]:
    def log_probabilities(
      params: PyTree, source: jax.Array, target: jax.Array
    ) -> jax.Array:
      logits = nnx.merge(self.graph, params)(source, target).logits
      return -optax.softmax_cross_entropy_with_integer_labels(logits, target)

    return map_rows(log_probabilities)

  def source_ids(self, sentences: Sequence[str]) -> list[list[int]]:
    """Returns each sentence's ids as the model reads them, with EOS."""
    vocabulary = self.vocabularies.source
    lines = map(self.output.source(vocabulary), self._lines(sentences))
    return [[*ids, EOS] for ids in vocabulary.encode([*lines])]

  def target_ids(self, sentences: Sequence[str]) -> list[list[int]]:
    """Returns each sentence's ids as the model would write them, with EOS."""
    lines = map(self.output.target(self.config), self._lines(sentences))
    return [[*ids, EOS] for ids in self.vocabularies.target.encode([*lines])]

  def _lines(self, sentences: Sequence[str]) -> list[str]:
    return [text.input_line(line, self.config.data) for line in sentences]


def check_strings(sources: Sequence[str], targets: Sequence[str]) -> None:
  """Raises TypeError for a string, and ValueError for lists of unequal lengths."""
  if isinstance(sources, str) or isinstance(targets, str):
    raise TypeError("a list of sentences is needed, such as ['A man sleeps.']")
  if len(sources) != len(targets):
    raise ValueError(f'{len(sources)} sources and {len(targets)} targets')
