"""Which training pairs are left out, and why (dev and test are never touched)."""

import contextlib
import itertools
import pathlib
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from transformer_jax.data import languages as spoken
from transformer_jax.data.lines import Bitext, Pair

# NUL, and characters that some reader takes for the end of a line. In a training pair
# they are more likely damage than meant. U+0085 is another, but web text has it for the
# three dots of Windows' code page 1252, so it stays as it is.
_CONTROL = re.compile('[\x00\n\x0b\x0c\r\x1c-\x1e\u2028\u2029]')

# Chinese, Japanese, Thai, Lao, Tibetan, Burmese and Khmer, which have no spaces between
# words.
_UNSPACED = re.compile(
  '[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff'
  '\u0e00-\u0fff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff]'
)

# So many pairs are enough to tell which language each side is in.
_ENOUGH_PAIRS = 1_000


class Cleaning(NamedTuple):
  """Limits of a training pair. The limit on tokens is applied when it is encoded."""

  off: bool  # no limits: only what is no text is left out
  max_characters: int  # of either side
  max_ratio: float  # words of one side to words of the other, as Moses cleans
  drop_untranslated: bool  # both sides the same, and no list of names or numbers
  min_alphanumeric: float  # share of letters and digits; spaces and accents not counted


def fault(pair: Pair, limits: Cleaning) -> str | None:
  """Why a pair is left out of training, as the card counts it; None if it is good."""
  source, target = pair
  if source is None or target is None:
    return 'not UTF-8'
  if not source.strip() or not target.strip():
    return 'empty'
  if _CONTROL.search(source) or _CONTROL.search(target):
    return 'control character'
  return None if limits.off else _beyond(limits, source, target)


def counted(faults: Mapping[str, int]) -> str:
  """Faults and their counts in words, the commonest first."""
  ordered = sorted(faults.items(), key=lambda found: -found[1])
  return ', '.join(f'{count:,} {fault}' for fault, count in ordered)


def _beyond(limits: Cleaning, source: str, target: str) -> str | None:
  """Which limit a pair is beyond; None if it is within all of them."""
  if '\ufffd' in source or '\ufffd' in target:
    return 'replacement character'  # a character was lost in an earlier conversion
  if max(len(source), len(target)) > limits.max_characters:
    return f'over {limits.max_characters} characters'
  words = _words(source), _words(target)
  # A side with a script without spaces is given the number of words that fits best.
  if any(a[0] > limits.max_ratio * b[1] for a, b in itertools.permutations(words)):
    return f'length ratio over {limits.max_ratio:g}'
  if limits.drop_untranslated and source.strip() == target.strip():
    if _is_sentence(source):
      return 'not translated'
  for line in (source, target):
    if _alphanumeric(line) < limits.min_alphanumeric and (
      line.isascii() or _alphanumeric(_without_marks(line)) < limits.min_alphanumeric
    ):
      return f'letters and digits under {limits.min_alphanumeric:g} of the characters'
  return None


def _words(line: str) -> tuple[int, int]:
  """The fewest and the most words that a line may have.

  Spaces tell the number, but in scripts without spaces any letter may be a word.
  """
  spaced = len(line.split())
  if line.isascii():
    return spaced, spaced
  return spaced, spaced + sum(map(str.isalpha, _UNSPACED.findall(line)))


def _alphanumeric(line: str) -> float:
  """The share of letters and digits among the characters that are no spaces."""
  characters = len(line) - line.count(' ')
  return sum(map(str.isalnum, line)) / characters if characters else 1.0


def _without_marks(line: str) -> str:
  """Without accents, vowel signs and other marks that stand at a letter."""
  return ''.join(c for c in line if unicodedata.category(c)[0] != 'M')


def _is_sentence(line: str) -> bool:
  """Whether over a third of the words are of letters and begin without a capital.

  Names, numbers and addresses are the same in both languages. A third is for the `van`
  of Ludwig van Beethoven. A script without capitals does not tell names apart: there a
  sentence has more than three words, two letters for one if no spaces part them.
  """
  line = line if line.isascii() else _without_marks(line)
  if line.lower() == line.upper():
    unspaced = sum(map(str.isalpha, _UNSPACED.findall(line)))
    return len(re.findall(r'[^\W\d_]+', line)) + unspaced / 2 > 3
  words = [word.strip(string.punctuation) for word in line.split()]
  plain = sum(word.isalpha() and not word[0].isupper() for word in words)
  return 3 * plain > len(words)


def keep(texts: Sequence[pathlib.Path], chosen: np.ndarray) -> None:
  """Removes the lines of two files that are not `chosen` ([pairs] bool)."""
  for path in texts:
    kept = path.with_suffix(f'{path.suffix}.kept')
    with path.open('rb') as lines, kept.open('wb') as file:
      file.writelines(itertools.compress(lines, chosen))
    kept.replace(path)


def write_clean_text(
  bitexts: Sequence[Bitext],
  texts: Sequence[pathlib.Path],
  languages: tuple[str, str],
  limits: Cleaning,
  target: Callable[[str], str],
) -> dict:
  """Writes all good pairs to two files, a sentence a line.

  Args:
    bitexts: what to read, one after another.
    texts: where the source and the target sentences go.
    languages: of source and target; a bitext with the two swapped is refused.
    target: maps a target line to the text that the model learns to write.

  Returns:
    What the card says: how many pairs were `read` and `kept`, and how many were
    `dropped` by reason; under `from` the same of each bitext, and its origin.
  """
  origins, read, kept, dropped = [], 0, 0, Counter()
  with contextlib.ExitStack() as stack:
    writers = [
      stack.enter_context(path.open('w', encoding='utf-8', newline='\n'))
      for path in texts
    ]
    bar = stack.enter_context(tqdm(desc='reading', unit=' pairs', unit_scale=True))
    for bitext in bitexts:
      faults, sample, before = Counter(), [], read
      for pair in bitext.pairs():
        read += 1
        if read % 1000 == 0:
          bar.update(1000)
        reason = fault(pair, limits)
        if reason is not None:
          faults[reason] += 1
          continue
        kept += 1
        writers[0].write(f'{pair[0]}\n')
        writers[1].write(f'{target(pair[1])}\n')
        if len(sample) < _ENOUGH_PAIRS:
          sample.append(pair)
      spoken.check(sample, languages, bitext.name)
      about = {'read': read - before, 'dropped': dict(faults)}
      origins.append({'name': bitext.name, **bitext.origin(), **about})
      dropped += faults
    bar.update(read % 1000)
  return {'from': origins, 'read': read, 'kept': kept, 'dropped': dict(dropped)}
