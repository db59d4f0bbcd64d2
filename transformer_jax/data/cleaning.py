"""Which training pairs are left out, and why (dev and test are never touched)."""

import re
from typing import NamedTuple

from transformer_jax.data.lines import Pair

# Characters that some reader somewhere takes for the end of a line, and NUL: a pair
# that has one inside is more likely damaged than meant.
_CONTROL = re.compile('[\x00\n\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]')


class Cleaning(NamedTuple):
  """Limits a training pair must keep. Those on tokens come when it is encoded."""

  max_characters: int  # of either side
  max_ratio: float  # words of one side to words of the other, as Moses cleans
  drop_identical: bool  # both sides the same: not translated
  min_letters: float  # share of letters among a side's characters, spaces not counted


def fault(pair: Pair, limits: Cleaning) -> str | None:
  """Why a pair is left out of training, as the card counts it; None if it is good."""
  source, target = pair
  if source is None or target is None:
    return 'not UTF-8'
  words = len(source.split()), len(target.split())
  if not min(words):
    return 'empty'
  if _CONTROL.search(source) or _CONTROL.search(target):
    return 'control character'
  if '\ufffd' in source or '\ufffd' in target:
    return 'replacement character'  # was another encoding once, and is lost
  if max(len(source), len(target)) > limits.max_characters:
    return f'over {limits.max_characters} characters'
  if max(words) > limits.max_ratio * min(words):
    return f'length ratio over {limits.max_ratio:g}'
  if limits.drop_identical and source.strip() == target.strip():
    return 'identical sides'
  for line in (source, target):
    characters = len(line) - line.count(' ')
    if sum(map(str.isalpha, line)) < limits.min_letters * characters:
      return f'letters under {limits.min_letters:g} of the characters'
  return None
