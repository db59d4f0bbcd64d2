"""Where every head looks while a run reads a sentence and writes its translation."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx

from transformer_jax.data.vocabulary import BOS, EOS, Vocabulary
from transformer_jax.decoding.restored import Pair, Restored
from transformer_jax.machine.devices import map_rows
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build

KINDS = ('encoder', 'decoder', 'cross')
LONGEST = 128  # pieces of a side that a picture shows, EOS counted
NAMES = {EOS: '</s>', BOS: '<s>'}
SPACE = '\u2581'  # SentencePiece's, which starts a word


class Maps(NamedTuple):
  """The weights of all layers and heads for one pair, without padding.

  A row of `decoder` and `cross` is the word that is being written. A column of
  `decoder` is a word written before: <s>, and all of the target but its last.
  """

  source: list[str]
  target: list[str]
  encoder: np.ndarray  # [N, H, S, S]
  decoder: np.ndarray  # [N, H, T, T]
  cross: np.ndarray  # [N, H, T, S]

  def of(self, kind: str) -> tuple[np.ndarray, list[str], list[str]]:
    """The weights of one of KINDS, and what its rows and its columns are."""
    rows = self.source if kind == 'encoder' else self.target
    columns = self.source
    if kind == 'decoder':
      columns = [NAMES[BOS], *self.target][: self.decoder.shape[-1]]
    return getattr(self, kind), rows, columns


class Words:
  """How the pieces of one side are called and put together to words."""

  def __init__(self, vocabulary: Vocabulary):
    self._vocabulary, self.pieces = vocabulary, vocabulary.pieces()

  def names(self, ids: Sequence[int], whole: bool) -> list[str]:
    """What a reader calls each word, or each piece: SentencePiece's, U+2581 and all."""
    if not whole:
      return [NAMES[i] if i in NAMES else self.pieces[i] for i in ids]
    words: list[list[int]] = []
    for i, word in zip(ids, word_of(self.pieces, ids), strict=True):
      if word == len(words):
        words.append([])
      words[word].append(i)
    texts = (text.strip() for text in self._vocabulary.decode(words))
    return [
      NAMES[word[0]] if word[0] in NAMES else text or SPACE
      for word, text in zip(words, texts, strict=True)
    ]


class Watcher:
  """A run's model, to look at; its search is used where no translation is given.

  Attributes:
    source, target: the pieces and words of each side.
  """

  def __init__(self, restored: Restored):
    self.restored = restored
    self.source, self.target = (Words(words) for words in restored.vocabularies)
    look = lambda params, *pair: jax.tree.map(
      lambda x: x.swapaxes(0, 1), nnx.merge(restored.graph, params).attention(*pair)
    )
    self._look = map_rows(look)

  @property
  def longest(self) -> int:
    """Pieces of the longest side that can be shown, EOS counted."""
    return min(LONGEST, build.longest_side(self.restored.config))

  def weights(self, pairs: Sequence[Pair]) -> Iterator[tuple[np.ndarray, ...]]:
    """Encoder's, decoder's and cross-attention's weights of each pair, in order."""
    found = self.restored.over_pairs(self._look, pairs)
    for (source, target), (encoder, decoder, cross) in zip(pairs, found, strict=True):
      S, T = len(source), len(target)
      yield encoder[:, :, :S, :S], decoder[:, :, :T, :T], cross[:, :, :T, :S]

  def maps(
    self, sentences: Sequence[str], translations: Sequence[str | None], whole: bool
  ) -> list[Maps]:
    """Maps of sentences and their translations; a translation of None is searched.

    Args:
      whole: whether pieces are merged to words.

    Raises:
      UserError: a side is too long to be shown; the message numbers the sentence.
    """
    pairs = self._pairs(sentences, translations)
    found = zip(pairs, self.weights(pairs), strict=True)
    return [self.named(pair, weights, whole) for pair, weights in found]

  def _pairs(
    self, sentences: Sequence[str], translations: Sequence[str | None]
  ) -> list[Pair]:
    sources = self.restored.source_ids(sentences)
    self._check_lengths('sentence', sources)
    missing = [i for i, text in enumerate(translations) if text is None]
    targets = self.restored.target_ids([text or '' for text in translations])
    untranslated = [sentences[i] for i in missing]
    searched = self.restored.translator.translate(untranslated, nbest=1)
    for i, (best,) in zip(missing, searched, strict=True):
      targets[i] = best.tokens if best.tokens[-1:] == [EOS] else [*best.tokens, EOS]
    self._check_lengths('translation', targets)
    return [*zip(sources, targets, strict=True)]

  def _check_lengths(self, what: str, sides: Iterable[list[int]]) -> None:
    most = self.longest
    for number, ids in enumerate(sides, 1):
      if len(ids) > most:
        raise UserError(
          f'sentence {number}: the {what} has {len(ids)} pieces, and a picture shows '
          f'{most} at most: split it'
        )

  def named(self, pair: Pair, weights: tuple[np.ndarray, ...], whole: bool) -> Maps:
    """What weights() has for a pair, with its pieces' names, or merged to words."""
    sides = [*zip((self.source, self.target), pair, strict=True)]
    source, target = (words.names(ids, whole) for words, ids in sides)
    if not whole:
      return Maps(source, target, *weights)
    first, second = (word_of(words.pieces, ids) for words, ids in sides)
    before = np.concatenate([[0], second[:-1] + 1])  # <s> is a word of its own
    encoder, decoder, cross = weights
    return Maps(
      source,
      target,
      merged(encoder, first, first),
      merged(decoder, second, before),
      merged(cross, second, first),
    )


def word_of(pieces: Sequence[str], ids: Sequence[int]) -> np.ndarray:
  """The number of the word that each id belongs to.

  A space starts one. EOS is a word of its own, and so is each mark of punctuation that
  ends a word.
  """
  starts = []
  ends = True  # whether the word of the piece ends with it: the next one starts a word
  for i in reversed(ids):
    ends = i in NAMES or pieces[i].startswith(SPACE) or ends and is_mark(pieces[i])
    starts.append(ends)
  starts.reverse()
  return np.cumsum([False, *starts[1:]])  # the first piece is of word 0


def is_mark(piece: str) -> bool:
  """Whether a piece is punctuation alone."""
  text = piece.removeprefix(SPACE)
  return bool(text) and all(unicodedata.category(c).startswith('P') for c in text)


def merged(weights: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
  """[..., T, S] of pieces as [..., words, words]: summed over keys, mean of queries."""
  one_hot = lambda words: np.eye(words[-1] + 1, dtype=weights.dtype)[words]
  mean = one_hot(rows) / np.bincount(rows)[None]
  return mean.T @ weights @ one_hot(columns)
