"""Translates lines of text: makes batches, searches, decodes ids (section 6.1)."""

import codecs
import math
import os
import pathlib
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.data import text
from transformer_jax.data.vocabulary import BOS, EOS, PAD, Vocabularies
from transformer_jax.decoding.beam_search import Cache, Hypotheses, Memory, Search
from transformer_jax.machine import platform
from transformer_jax.machine.devices import (
  map_rows,
  map_sentences,
  replicate_read_only,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.model.transformer import SearchWeights, search_weights
from transformer_jax.scoring.output import Mask, Output

# Lines to translate before they are written. An interruption loses no more than these.
LINES_AT_ONCE = 10_000
PAUSE = 0.1  # seconds; after such a pause on stdin the lines so far are translated


class Hypothesis(NamedTuple):
  """An output for a line."""

  text: str  # in one line, as the task finishes it
  score: float  # log P / length penalty, in nats; 0 for an empty line
  tokens: list[int]  # with EOS, unless it was cut at its limit
  valid: bool = True  # False if the task repaired the text, see Output.finish


class Translator:
  """Translates sentences by beam search.

  A line without words is not searched; its translation is ''.

  Attributes:
    dtype: the dtype of matrix products.
    unknown_sources: how many sentences have characters outside the vocabulary.
    cut_sources: how many sentences were longer than the model can take, and cut.
    cut_outputs: how many best hypotheses met their length limit before EOS.
    improbable: how many best hypotheses have a -log P per piece above `nats`.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    output: Output,
    vocabularies: Vocabularies,
    params: PyTree,
    nats: float = math.inf,
  ):
    """Makes a search.

    Args:
      params: in float32, as a checkpoint has them.
      nats: -log P per piece of dev's references. Best hypotheses have less, unless the
        text is in another language.
    """
    self._config, self._vocabularies = config, vocabularies
    self.dtype = platform.decoding_dtype(config.decode_dtype)
    self._graph, _ = build.architecture(config, dtype=self.dtype)
    self._prepare = jax.jit(lambda params: search_weights(params, self.dtype))
    self.replace_params(params)
    self._longest = build.longest_text(config)
    self._output, self._mask = output, None
    if config.constrained and output.constraint:
      self._mask = output.constraint(vocabularies)
    self._unknown = {*np.flatnonzero(vocabularies.source.is_unknown).tolist()}
    self._nats = nats
    self.unknown_sources = self.cut_sources = self.cut_outputs = self.improbable = 0
    self._searches: dict[int, Callable[..., Callable[[], Hypotheses]]] = {}

  def replace_params(self, params: PyTree) -> None:
    """Replaces the parameters; nothing is compiled again."""
    self._weights = replicate_read_only(self._prepare(params))

  def translate(
    self,
    sentences: Sequence[str],
    nbest: int,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
  ) -> list[list[Hypothesis]]:
    """Returns at most `nbest` hypotheses of each sentence, best first.

    `nbest` is at most the beam. `progress` wraps the iterable of batches, as tqdm does.
    """
    vocabulary = self._vocabularies.source
    sentences = [text.input_line(line, self._config.data) for line in sentences]
    lines = [*map(self._output.source(vocabulary), sentences)]
    ids = [self._ids(line) for line in vocabulary.encode(lines)]
    results = [[self._finish(s, '', 0.0, [])] for s in sentences]
    batches = map_sentences(
      self._search(nbest),
      self._weights,
      [ids],
      positions=self._config.decode_tokens,
      longest=self._longest,
      progress=progress,
    )
    for numbers, outputs in batches:
      self.cut_outputs += int((~outputs.finished[: len(numbers), 0]).sum())
      for row, number in enumerate(numbers):
        tokens, scores = outputs.tokens[row], outputs.scores[row]
        results[number] = self._hypotheses(sentences[number], tokens, scores)
        limit = self._nats * (tokens[0] != PAD).sum()
        self.improbable += bool(-outputs.log_probs[row, 0] > limit)
    return results

  def warnings(self) -> Iterable[str]:
    """Yields a message for each problem of the lines so far, with its count."""
    number = lambda count, noun: f'{count:,} {noun}{"s" if count > 1 else ""}'
    if count := self.unknown_sources:
      yield f'characters outside the vocabulary: {number(count, "line")}'
    if count := self.cut_sources:
      yield f'cut to the {self._longest - 1} pieces that fit: {number(count, "line")}'
    if count := self.cut_outputs:
      yield f'cut at the length limit, without an end: {number(count, "translation")}'
    if count := self.improbable:
      language = self._config.data.source_language
      yield (
        f'less probable than references of dev: {number(count, "translation")}; is the '
        f'text in {language}, and like the text of training?'
      )

  def _ids(self, ids: list[int]) -> list[int]:
    self.unknown_sources += not self._unknown.isdisjoint(ids)
    if len(ids) >= self._longest:
      self.cut_sources += 1
      ids = ids[: self._longest - 1]
    return [*ids, EOS] if ids else []

  def _search(self, nbest: int) -> Callable[..., Callable[[], Hypotheses]]:
    if nbest not in self._searches:
      search = search_of(self._config, self._graph, nbest, self._mask)
      self._searches[nbest] = map_rows(search)
    return self._searches[nbest]

  def _hypotheses(
    self, sentence: str, tokens: np.ndarray, scores: np.ndarray
  ) -> list[Hypothesis]:
    is_finite = np.isfinite(scores)
    if not is_finite.any():
      raise UserError(
        'no translation has a finite score: the training of these parameters has '
        'diverged. Take an earlier checkpoint (--step), if one is good'
      )
    ids = [row[row != PAD].tolist() for row in tokens[is_finite]]
    texts = self._vocabularies.target.decode(ids)
    parts = zip(texts, scores[is_finite].tolist(), ids, strict=True)
    return [self._finish(sentence, *part) for part in parts]

  def _finish(
    self, sentence: str, text: str, score: float, ids: list[int]
  ) -> Hypothesis:
    line, valid = self._output.finish(sentence, text)
    return Hypothesis(line, score, ids, valid)


def search_of(
  config: ml_collections.ConfigDict,
  graph: nnx.GraphDef[Any],
  nbest: int,
  mask: Mask | None = None,
) -> Callable[[SearchWeights, jax.Array], Hypotheses]:
  """Returns the search as a function of weights and padded sources [B, S].

  Args:
    graph: from build.architecture(), with the dtype of the search's products.
    mask: what Output.constraint returns. None: outputs are free.
  """
  beam, alpha, extra = (config[key] for key in ('beam', 'alpha', 'extra_length'))

  def search(weights: SearchWeights, source: jax.Array) -> Hypotheses:
    model = nnx.merge(graph, weights.params)
    length = source.shape[1]
    limit = length + extra
    if config.model.positions == 'learned':
      limit = min(limit, config.model.max_positions)
    # A step attends to the whole cache, and few translations are longer than the padded
    # source. So the cache starts small.
    lengths = sorted({min(size, limit) for size in (length // 2, length, limit)})

    def step(
      tokens: jax.Array, position: jax.Array, cache: Cache, memory: Memory
    ) -> tuple[jax.Array, Cache]:
      cross_attention, _ = memory
      return model.step(tokens, position, cache, cross_attention, weights.table)

    source_lengths = (source != PAD).sum(1)
    beam_search = Search(
      step=step,
      cache_lengths=lengths,
      beam=beam,
      nbest=nbest,
      alpha=alpha,
      bos=BOS,
      eos=EOS,
      pad=PAD,
      mask=mask and (lambda s: mask(s.live, s.position, s.memory[1], s.limits)),
    )
    cache = model.empty_cache(len(source), beam, lengths[0])
    memory = model.precompute_cross_attention(source), source
    limits = (source_lengths + extra) * (source_lengths > 0)
    return beam_search(cache, memory, limits)

  return search


def split_lines(content: bytes) -> list[str]:
  """Returns the lines of a text. Only LF ends a line; the last line may lack it.

  Bytes that are not UTF-8 become U+FFFD, so that no line is lost. A message on stderr
  counts such lines.
  """
  lines = content.removeprefix(codecs.BOM_UTF8).split(b'\n')
  return _decode(lines if lines[-1] else lines[:-1])


def _decode(lines: Sequence[bytes]) -> list[str]:
  texts = [line.decode(errors='replace') for line in lines]
  damaged = sum(text.encode() != line for text, line in zip(texts, lines, strict=True))
  if damaged:
    print(f'lines with bytes that are not UTF-8: {damaged:,}', file=sys.stderr)
  return [text.removesuffix('\r') for text in texts]  # of a CRLF


def line_batches(path: pathlib.Path) -> Iterator[list[str]]:
  """Yields lists of at most LINES_AT_ONCE lines, decoded as by split_lines().

  Args:
    path: a file, plain or compressed. '-' is stdin: after a pause of PAUSE seconds the
      lines so far are yielded.
  """
  buffer: list[bytes] = []
  tail = b''  # the last line, whose LF has not been read yet
  mark = codecs.BOM_UTF8  # only the first line may begin with it
  for block in _stdin_blocks() if str(path) == '-' else text.read_blocks(path):
    *lines, tail = (tail + block).split(b'\n')
    if lines:
      lines[0] = lines[0].removeprefix(mark)
      buffer, mark = buffer + lines, b''
    while len(buffer) >= LINES_AT_ONCE or (buffer and not block):
      yield _decode(buffer[:LINES_AT_ONCE])
      del buffer[:LINES_AT_ONCE]
  if last := tail.removeprefix(mark):
    buffer.append(last)
  if buffer:
    yield _decode(buffer)


def _stdin_blocks() -> Iterator[bytes]:
  """Yields blocks of bytes from stdin, and b'' after each pause of PAUSE seconds.

  Raises UserError if they are compressed.
  """
  block, is_first = b'', True
  while True:
    ready, *_ = select.select([sys.stdin], [], [], PAUSE if block else None)
    block = os.read(sys.stdin.fileno(), 1 << 20) if ready else b''
    if ready and not block:
      return
    if is_first and (end := text.packing(block)):
      remedy = f', or give --input=FILE{end}' if end in text.PACKED else ''
      raise UserError(f'stdin is compressed: unpack it{remedy}')
    is_first = False
    yield block


def output_lines(
  translations: Iterable[list[Hypothesis]], nbest: int, scores: bool, first: int
) -> Iterator[str]:
  """Yields a line for each hypothesis.

  If `nbest` is above 1, a line starts with the sentence's number and a tab; numbers
  start at `first`. With `scores`, the hypothesis's score and a tab follow.
  """
  for number, hypotheses in enumerate(translations, first):
    for hypothesis in hypotheses:
      fields = [str(number)] if nbest > 1 else []
      fields += [f'{hypothesis.score:.4f}'] if scores else []
      yield '\t'.join([*fields, hypothesis.text])
