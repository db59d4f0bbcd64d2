"""Classes of rare words, by their form and their ending.

A vocabulary of whole words has no piece for a rare word. The word's class stands for
it: capitals, figures and endings tell much of a word's tag (Petrov et al. 2006 and Dyer
et al. 2016 read rare words so).
"""

from collections.abc import Callable
from typing import NamedTuple

# Every class begins with this, and not with '<unk>': SentencePiece would not take that
# in a piece.
CLASS = '\u2047-'

# A word's class names the longest of these endings that fits the word.
_ENDINGS = 'ing ed es s ly er est ion ity al ous ic ive able ment ness y or th an en'
_ENDINGS += ' ism ist age ate ize ful less ble'
_LONGEST_FIRST = sorted(_ENDINGS.split(), key=len, reverse=True)


class Form(NamedTuple):
  """What a word looks like."""

  figures: bool  # contains a digit
  letters: bool  # contains a letter
  capitals: bool  # all letters are capitals, and there are two characters or more
  capital: int  # 1 if it begins with a capital, 2 if it also begins a sentence, else 0
  dash: bool  # contains a hyphen that is neither first nor last


def form(word: str, first: bool) -> Form:
  """The form of a word; `first` says that it begins a sentence."""
  return Form(
    any(map(str.isdigit, word)),
    any(map(str.isalpha, word)),
    word.isupper() and len(word) > 1,
    word[:1].isupper() and 1 + first,
    '-' in word[1:-1],
  )


def word_class(word: str, first: bool) -> str:
  """The class of a word; `first` says that it begins a sentence."""
  found = form(word, first)
  dash = '-dash' if found.dash else ''
  if found.figures:
    return f'{CLASS}{"mixed" if found.letters else "number"}{dash}'
  if not found.letters:
    return f'{CLASS}sign'
  name = ('word', 'capital', 'first')[found.capital]
  name = 'capitals' if found.capitals else name
  dot = '-dot' if '.' in word or '@' in word else ''
  lower = word.lower()
  fits = (e for e in _LONGEST_FIRST if lower.endswith(e) and len(word) > len(e) + 2)
  ending = next((f'-{e}' for e in fits), '')
  return f'{CLASS}{name}{dot}{dash}{ending}'


def classed(sentence: str, is_known: Callable[[str], bool]) -> str:
  """The sentence, with a class in place of each unknown word.

  If the first word is known in small letters alone, it is written in small letters.
  """
  found = []
  for place, word in enumerate(sentence.split(' ')):
    if word and not is_known(word):
      lower = word.lower()
      small = not place and is_known(lower)
      word = lower if small else word_class(word, not place)
    found.append(word)
  return ' '.join(found)
