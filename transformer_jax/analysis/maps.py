"""Attention weights of a run's model for any sentences, by pieces or by words."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx

from transformer_jax.data.vocabulary import BOS, EOS, SPACE, Vocabulary
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.devices import map_rows, map_sentences
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build

# The three attentions of section 3.2.3, and what tables and pictures call them.
KINDS = {
  'encoder': 'encoder self',
  'decoder': 'decoder self',
  'cross': 'encoder-decoder',
}
LONGEST = 128  # pieces of a sentence that a picture shows, EOS counted
POSITIONS = 2048  # of a batch: its weights take much memory

Pair = tuple[list[int], list[int]]  # ids of source and target, each with its EOS
SPECIAL_NAMES = {EOS: '</s>', BOS: '<s>'}

# Weights [N, H, T, S] of encoder [S, S], decoder [T, T] and cross-attention [T, S].
Weights = tuple[np.ndarray, np.ndarray, np.ndarray]


class Maps(NamedTuple):
  """The weights of all layers and heads for one sentence pair, without padding.

  A row of `decoder` and `cross` is the word that the model predicts. A column of
  `decoder` is a word of the decoder's input: <s>, and all of the target but its last.
  """

  source: list[str]
  target: list[str]
  encoder: np.ndarray  # [N, H, S, S]
  decoder: np.ndarray  # [N, H, T, T]
  cross: np.ndarray  # [N, H, T, S]

  def of(self, kind: str) -> tuple[np.ndarray, list[str], list[str]]:
    """Returns the weights of one of KINDS, and the words of its rows and columns."""
    rows = self.source if kind == 'encoder' else self.target
    columns = self.source
    if kind == 'decoder':
      columns = [SPECIAL_NAMES[BOS], *self.target][: self.decoder.shape[-1]]
    return getattr(self, kind), rows, columns


class Words:
  """The names of one language's pieces, and of the words that they make."""

  def __init__(self, vocabulary: Vocabulary):
    self._vocabulary, self.pieces = vocabulary, vocabulary.pieces()

  def names(self, ids: Sequence[int], merge: bool) -> list[str]:
    """Returns a name for each piece, or with `merge` for each word."""
    if not merge:
      return [SPECIAL_NAMES.get(i, self.pieces[i]) for i in ids]
    starts = np.flatnonzero(np.diff(word_numbers(self.pieces, ids))) + 1
    words = [word.tolist() for word in np.split(np.array(ids), starts)]
    texts = (text.strip() for text in self._vocabulary.decode(words))
    return [
      SPECIAL_NAMES.get(word[0], text or SPACE)
      for word, text in zip(words, texts, strict=True)
    ]


class RunAttention:
  """The attention weights of a run's model, for any sentences.

  Attributes:
    run: the loaded run.
    source, target: the names of each language's pieces and words.
  """

  def __init__(self, run: LoadedRun):
    self.run = run
    self.source, self.target = map(Words, run.vocabularies)
    # As [B, N, ...]: map_rows() takes sentences on axis 0.
    attention = lambda params, source, target: jax.tree.map(
      lambda x: x.swapaxes(0, 1),
      nnx.merge(run.graph, params).attention_weights(source, target),
    )
    self._attention = map_rows(attention)

  @property
  def longest(self) -> int:
    """Returns the most pieces of a sentence that can be shown, EOS counted."""
    return min(LONGEST, build.longest_text(self.run.config))

  def weights(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Weights]]:
    """Yields the number of each pair, the longest first, and its weights.

    Pairs are ids, and weights those of teacher forcing.
    """
    batches = map_sentences(
      self._attention,
      self.run.device_params,
      [*zip(*pairs, strict=True)],
      positions=POSITIONS,
      longest=build.longest_text(self.run.config),
    )
    for numbers, batch in batches:
      for row, number in enumerate(numbers):
        S, T = map(len, pairs[number])
        encoder, decoder, cross = (of_kind[row] for of_kind in batch)
        weights = encoder[:, :, :S, :S], decoder[:, :, :T, :T], cross[:, :, :T, :S]
        yield number, weights

  def maps(
    self, sentences: Sequence[str], translations: Sequence[str | None], merge: bool
  ) -> list[Maps]:
    """Returns the maps of sentences and their translations.

    Args:
      translations: one for each sentence. None: beam search translates it.
      merge: whether pieces are merged to words.

    Raises:
      UserError: a sentence or a translation is too long to be shown; the message
        numbers it.
    """
    pairs = self._pairs(sentences, translations)
    weights = dict(self.weights(pairs))
    return [self.to_maps(pair, weights[i], merge) for i, pair in enumerate(pairs)]

  def _pairs(
    self, sentences: Sequence[str], translations: Sequence[str | None]
  ) -> list[Pair]:
    sources = self.run.source_ids(sentences)
    self._check_lengths('sentence', sources)
    missing = [i for i, text in enumerate(translations) if text is None]
    targets = self.run.target_ids([text or '' for text in translations])
    searched = self.run.translator.translate([sentences[i] for i in missing], nbest=1)
    for i, (best,) in zip(missing, searched, strict=True):
      targets[i] = best.tokens if best.tokens[-1:] == [EOS] else [*best.tokens, EOS]
    self._check_lengths('translation', targets)
    return [*zip(sources, targets, strict=True)]

  def _check_lengths(self, what: str, sentences: Iterable[list[int]]) -> None:
    for number, ids in enumerate(sentences, 1):
      if len(ids) > self.longest:
        raise UserError(
          f'sentence {number}: the {what} has {len(ids)} pieces, and a picture shows '
          f'{self.longest} at most: split it'
        )

  def to_maps(self, pair: Pair, weights: Weights, merge: bool) -> Maps:
    """Returns the maps of a pair, from what weights() yields for it.

    Rows and columns are pieces, or with `merge` words.
    """
    encoder, decoder, cross = weights
    source = self.source.names(pair[0], merge)
    target = self.target.names(pair[1], merge)
    if merge:
      first = word_numbers(self.source.pieces, pair[0])
      second = word_numbers(self.target.pieces, pair[1])
      before = np.concatenate([[0], second[:-1] + 1])  # <s> is a word of its own
      encoder = merge_weights(encoder, first, first)
      decoder = merge_weights(decoder, second, before)
      cross = merge_weights(cross, second, first)
    return Maps(source, target, encoder, decoder, cross)


def word_numbers(pieces: Sequence[str], ids: Sequence[int]) -> np.ndarray:
  """Returns the number of the word that each id belongs to, from 0.

  A space starts a word. EOS is a word of its own, and so is each mark of punctuation
  that ends a word.
  """
  starts = []
  starts_word = True  # whether the next piece starts a word, so that this one ends one
  for i in reversed(ids):
    first = i in SPECIAL_NAMES or pieces[i].startswith(SPACE)
    starts_word = first or (starts_word and is_punctuation(pieces[i]))
    starts.append(starts_word)
  starts.reverse()
  return np.cumsum([False, *starts[1:]])  # the first piece is of word 0


def is_punctuation(piece: str) -> bool:
  """Returns True if a piece is punctuation alone."""
  text = piece.removeprefix(SPACE)
  return bool(text) and all(unicodedata.category(c).startswith('P') for c in text)


def merge_weights(
  weights: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
  """Returns the weights of words: sums over a key's pieces, means over a query's.

  Args:
    weights: [..., T, S], of pieces.
    rows, columns: the number of each piece's word, from word_numbers(), [T] and [S].
  """
  one_hot = lambda words: np.eye(words[-1] + 1, dtype=weights.dtype)[words]
  mean = one_hot(rows) / np.bincount(rows)[None]
  return mean.T @ weights @ one_hot(columns)
