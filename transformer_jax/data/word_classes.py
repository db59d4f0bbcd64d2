"""Classes of rare words, as parsers have them: by form and ending.

A vocabulary of whole words has no piece for a rare word, so the word's class stands for
it: capitals, figures and endings tell much of its tag (Petrov et al. 2006 and Dyer et
al. 2016 read rare words so).
"""

import collections
from collections.abc import Callable

CLASS = '\u2047-'  # a class begins so: SentencePiece would not take <unk> in a piece

# The longest that a word ends in counts.
_ENDINGS = 'ing ed es s ly er est ion ity al ous ic ive able ment ness y or th an en'
_ENDINGS += ' ism ist age ate ize ful less ble'
_LONGEST_FIRST = sorted(_ENDINGS.split(), key=len, reverse=True)


def word_class(word: str, first: bool) -> str:
  """The class of a word; `first` if it begins a sentence."""
  dashed = '-dash' if '-' in word else ''
  if any(map(str.isdigit, word)):
    kind = 'mixed' if any(map(str.isalpha, word)) else 'number'
    return f'{CLASS}{kind}{dashed}'
  if not any(map(str.isalpha, word)):
    return f'{CLASS}sign'
  form = 'word'
  if word.isupper() and len(word) > 1:
    form = 'capitals'
  elif word[0].isupper():
    form = 'first' if first else 'capital'
  if '.' in word or '@' in word:
    form += '-dot'
  lower = word.lower()
  fits = (e for e in _LONGEST_FIRST if lower.endswith(e) and len(word) > len(e) + 2)
  ending = next((f'-{e}' for e in fits), '')
  return f'{CLASS}{form}{dashed}{ending}'


def known(counts: collections.Counter[str], size: int) -> set[str]:
  """The words that have a piece of their own: `size` at most, and each seen twice."""
  often = (word for word, count in counts.most_common(size) if count > 1)
  return set(often)


def classed(sentence: str, is_known: Callable[[str], bool]) -> str:
  """The sentence with its unknown words' classes in their place.

  A word that begins a sentence is taken in small letters if only so it is known.
  """
  found = []
  for place, word in enumerate(sentence.split(' ')):
    if word and not is_known(word):
      lower = word.lower()
      small = not place and is_known(lower)
      word = lower if small else word_class(word, not place)
    found.append(word)
  return ' '.join(found)
