"""Vocabularies of trees' tokens, and of whole words and the classes of rare words.

Such a vocabulary has one id for each token between spaces. Of a rare word, the model
reads a class: its capitals, digits and ending, which predict its tag (Petrov et al.
2006, Dyer et al. 2016).
"""

import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer_jax.data.vocabulary import (
  SPACE,
  SPECIAL,
  TARGETS,
  Vocabulary,
)
from transformer_jax.prepare import prepare
from transformer_jax.prepare.sources import Learner

# SentencePiece trains on no text with this mark, which it writes for unknown text.
UNKNOWN = '\u2585'
# Begins every class: what SentencePiece decodes UNK to. It refuses '<unk>' in a piece.
CLASS = '\u2047-'
# Endings of words. The name of a class has the longest one that fits.
_ENDINGS = 'ing ed es s ly er est ion ity al ous ic ive able ment ness y or th an en'
_ENDINGS += ' ism ist age ate ize ful less ble'
_LONGEST_FIRST = sorted(_ENDINGS.split(), key=len, reverse=True)


# Learning


def learners(config: ConfigDict) -> tuple[Learner, Learner]:
  """Returns learners of the vocabulary of source or both texts, and of the target."""
  source = learn_words if config.data.whole_words else prepare.learners(config)[0]
  return source, learn_tokens


def learn_tokens(sentences: Iterable[str], path: pathlib.Path, size: int) -> None:
  """Learns a vocabulary of the tokens between spaces; the rarest ones become <unk>.

  It has exactly `size` pieces, one for each row of the model's embedding. Spare pieces
  are control symbols, which occur in no text.
  """
  counts = Counter(t for line in sentences for t in line.split(' '))
  _learn_counted(counts, path, size)


def learn_words(sentences: Iterable[str], path: pathlib.Path, size: int) -> None:
  """Learns a vocabulary of whole words, and of the classes of rare words.

  Words that occur once are rare, and so are the rarest of the others if `size` pieces
  cannot hold them all.
  """
  lines = [*sentences]
  counts = Counter(word for line in lines for word in line.split(' '))
  kept = {word for word, count in counts.items() if count > 1}
  # A word that loses its piece may be the first of its class, which then takes a piece.
  # So words are dropped until the pieces fit.
  over = 1
  while over > 0:
    read = [replace_unknown(line, kept.__contains__) for line in lines]
    pieces = Counter(word for line in read for word in line.split(' '))
    # Without any words, the rarest classes become <unk>.
    over = min(len(pieces) + SPECIAL - size, len(kept))
    kept -= set(sorted(kept, key=lambda word: (counts[word], word))[: max(0, over)])
  _learn_counted(pieces, path, size)


def _learn_counted(counts: Counter[str], path: pathlib.Path, size: int) -> None:
  """Learns a vocabulary of tokens; prints how many get no piece."""
  for token in [t for t in counts if UNKNOWN in t or not t.strip(SPACE)]:
    del counts[token]  # SentencePiece would leave it out
  spare = size - SPECIAL - len(counts)
  if spare < 0:
    key = 'target_vocab_size' if path.name == TARGETS else 'vocab_size'
    print(
      f'{-spare} of {len(counts)} different tokens get no piece and become <unk>: '
      f'--config.model.{key}={size - spare} would hold all',
      file=sys.stderr,
    )
  unused = [f'<unused{i}>' for i in range(spare)]
  options: dict[str, Any] = {'model_type': 'word', 'input_format': 'tsv'}
  options |= {'character_coverage': 1.0}  # a token of rarer characters would be lost
  options |= {'control_symbols': unused} if unused else {}
  lines = (f'{token}\t{count}' for token, count in counts.items())
  prepare.learn(lines, path, size, options)


# Classes of rare words


class WordShape(NamedTuple):
  """The characters of a word, as far as they hint at its tag."""

  digits: bool  # contains a digit
  letters: bool  # contains a letter
  capitals: bool  # all letters are capitals, and there are two characters or more
  capital: int  # 1 if it begins with a capital, 2 if it also begins a sentence, else 0
  dash: bool  # contains a hyphen that is neither first nor last


def word_shape(word: str, first: bool) -> WordShape:
  """Returns the shape of a word; `first` says that it begins a sentence."""
  return WordShape(
    any(map(str.isdigit, word)),
    any(map(str.isalpha, word)),
    word.isupper() and len(word) > 1,
    word[:1].isupper() and 1 + first,
    '-' in word[1:-1],
  )


def word_class(word: str, first: bool) -> str:
  """Returns the class of a word; `first` says that it begins a sentence."""
  shape = word_shape(word, first)
  dash = '-dash' if shape.dash else ''
  if shape.digits:
    return f'{CLASS}{"mixed" if shape.letters else "number"}{dash}'
  if not shape.letters:
    return f'{CLASS}sign'
  name = ('word', 'capital', 'first')[shape.capital]
  name = 'capitals' if shape.capitals else name
  dot = '-dot' if '.' in word or '@' in word else ''
  lower = word.lower()
  fits = (e for e in _LONGEST_FIRST if lower.endswith(e) and len(word) > len(e) + 2)
  ending = next((f'-{e}' for e in fits), '')
  return f'{CLASS}{name}{dot}{dash}{ending}'


def replace_unknown(sentence: str, is_known: Callable[[str], bool]) -> str:
  """Returns the sentence with its unknown words replaced by their classes.

  An unknown first word is lowercased if it is then known.
  """
  words = []
  for position, word in enumerate(sentence.split(' ')):
    if word and not is_known(word):
      lower = word.lower()
      small = not position and is_known(lower)
      word = lower if small else word_class(word, not position)
    words.append(word)
  return ' '.join(words)


def reader(source: Vocabulary) -> Callable[[str], str]:
  """Returns the map from a line of words to what a parser with this vocabulary reads.

  Rare words become their classes, if the vocabulary has classes.
  """
  tokens = {piece[1:] for piece in source.pieces() if piece.startswith(SPACE)}
  if not any(token.startswith(CLASS) for token in tokens):
    return lambda line: line
  return lambda line: replace_unknown(line, tokens.__contains__)
