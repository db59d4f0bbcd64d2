"""Which training pairs are left out, and why; and in which language a text is.

Dev and test are never cleaned.
"""

import contextlib
import difflib
import itertools
import pathlib
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from transformer_jax.data.corpus import Cleaning, Pair, Source
from transformer_jax.machine.errors import UserError

# NUL, and characters that some reader takes for the end of a line. In a training pair
# they are more likely damage than meant. U+0085 is another, but web text has it for the
# three dots of Windows' code page 1252, so it stays as it is.
_CONTROL = re.compile('[\x00\n\x0b\x0c\r\x1c-\x1e\u2028\u2029]')

# Scripts without spaces between words: languages that are written in them (ISO 639),
# and their letters. Where words are counted, such a letter may be one.
UNSPACED = (
  (
    {'zh', 'ja', 'gan', 'hak', 'lzh', 'wuu', 'yue'},
    '\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff',
  ),
  ({'th', 'lo'}, '\u0e00-\u0eff'),
  ({'bo', 'dz'}, '\u0f00-\u0fff'),
  ({'my'}, '\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f'),
  ({'km'}, '\u1780-\u17ff'),
)
UNSPACED_LETTER = re.compile(f'[{"".join(letters for _, letters in UNSPACED)}]')

# So many pairs are enough to tell which language each side is in.
_ENOUGH_PAIRS = 1_000


# Faults of what is no text, or text of another encoding.
_NO_TEXT = (_NOT_UTF8, _CONTROLS, _REPLACED) = (
  'not UTF-8',
  'control character',
  'replacement character',
)

CODE = re.compile('[a-z]{2,3}(_[A-Za-z0-9]+)?')  # de, hsb, pt_BR

# The commonest words of each language, without those that another of them shares.
_COMMON = {
  'en': {'the', 'of', 'and', 'to', 'that', 'is', 'for', 'it', 'with', 'this', 'are'},
  'de': {'der', 'und', 'den', 'das', 'ist', 'von', 'nicht', 'zu', 'auf', 'ein', 'eine'},
  'fr': {'le', 'la', 'les', 'et', 'que', 'il', 'est', 'une', 'dans', 'pour', 'qui'},
}

# The fraction of common words that a text must have. In other languages it has fewer.
_ENOUGH = 0.02


def fault(pair: Pair, limits: Cleaning) -> str | None:
  """Why a pair is left out of training, as the card counts it; None if it is good."""
  source, target = pair
  if source is None or target is None:
    return _NOT_UTF8
  if not source.strip() or not target.strip():
    return 'empty'
  if _CONTROL.search(source) or _CONTROL.search(target):
    return _CONTROLS
  return None if limits.off else _beyond(limits, source, target)


def describe_faults(faults: Mapping[str, int]) -> str:
  """Faults and their counts in words, the commonest first."""
  ordered = sorted(faults.items(), key=lambda item: -item[1])
  return ', '.join(f'{count:,} {fault}' for fault, count in ordered)


def _beyond(limits: Cleaning, source: str, target: str) -> str | None:
  """Which limit a pair is beyond; None if it is within all of them."""
  if '\ufffd' in source or '\ufffd' in target:
    return _REPLACED  # a character was lost in an earlier conversion
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
  return spaced, spaced + sum(map(str.isalpha, UNSPACED_LETTER.findall(line)))


def _alphanumeric(line: str) -> float:
  """The fraction of letters and digits among the characters that are no spaces."""
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
    unspaced = sum(map(str.isalpha, UNSPACED_LETTER.findall(line)))
    return len(re.findall(r'[^\W\d_]+', line)) + unspaced / 2 > 3
  words = [word.strip(string.punctuation) for word in line.split()]
  plain = sum(word.isalpha() and not word[0].isupper() for word in words)
  return 3 * plain > len(words)


def check_is_text(name: str, read: int, faults: Mapping[str, int]) -> None:
  """Tells on stderr how many of the pairs that were read are no text.

  Raises:
    UserError: over half of them are no text: the file is in another encoding.
  """
  wrong = {fault: faults[fault] for fault in _NO_TEXT if faults.get(fault)}
  if not (count := sum(wrong.values())):
    return
  told = f'{name}: {count:,} of {read:,} pairs are no text ({describe_faults(wrong)})'
  remedy = 'if it is in another encoding, convert it, as by iconv -f LATIN1 -t UTF-8'
  if 2 * count > read:
    raise UserError(f'{told}: {remedy}')
  print(f'WARNING: {told}; they are left out. {remedy.capitalize()}', file=sys.stderr)


class SourceCounts(NamedTuple):
  """A source as cleaning left it."""

  read: int  # pairs
  kept: int
  dropped: dict[str, int]  # by reason


def write_clean_text(
  sources: Sequence[Source],
  texts: Sequence[pathlib.Path],
  languages: tuple[str, str],
  limits: Cleaning,
  target: Callable[[str], str],
) -> list[SourceCounts]:
  """Writes all good pairs of the sources, one after another, to two files of lines.

  Args:
    texts: where the source and the target sentences go.
    languages: of source and target; text with the two swapped is refused.
    target: maps a target line to the text that the model learns to write.

  Returns:
    What became of each source.

  Raises:
    UserError: a source cannot be read, is mostly no text, or its languages are swapped.
  """
  cleaned = []
  with contextlib.ExitStack() as stack:
    writers = [
      stack.enter_context(path.open('w', encoding='utf-8', newline='\n'))
      for path in texts
    ]
    bar = stack.enter_context(tqdm(desc='reading', unit=' pairs', unit_scale=True))
    for source in sources:
      read, faults, sample, flawed = 0, Counter(), [], ''
      for pair in source.pairs():
        read += 1
        if read % 1000 == 0:
          bar.update(1000)
        if isinstance(pair, UserError):
          flawed = flawed or f'flawed (the first: {pair})'
          reason = flawed
        else:
          reason = fault(pair, limits)
        if reason is not None:
          faults[reason] += 1
          continue
        writers[0].write(f'{pair[0]}\n')
        writers[1].write(f'{target(pair[1])}\n')
        if len(sample) < _ENOUGH_PAIRS:
          sample.append(pair)
      bar.update(read % 1000)
      check_is_text(source.name, read, faults)
      check_languages(sample, languages, source.name)
      cleaned.append(SourceCounts(read, read - faults.total(), dict(faults)))
  return cleaned


def keep_lines(texts: Sequence[pathlib.Path], chosen: np.ndarray) -> None:
  """Removes the lines of two files that are not `chosen` ([pairs] bool)."""
  for path in texts:
    kept = path.with_suffix(f'{path.suffix}.kept')
    with path.open('rb') as lines, kept.open('wb') as file:
      file.writelines(itertools.compress(lines, chosen))
    kept.replace(path)


# Languages


def is_unspaced(code: str) -> bool:
  """Whether a language has no spaces between words."""
  return any(code in codes for codes, _ in UNSPACED)


def looks_like(lines: Iterable[str]) -> str | None:
  """The one of en, de and fr whose common words occur most; None if they are rare."""
  counts, total = dict.fromkeys(_COMMON, 0), 0
  for line in lines:
    words = line.lower().split()
    total += len(words)
    for language, common in _COMMON.items():
      counts[language] += sum(word in common for word in words)
  best = max(counts, key=lambda language: counts[language])
  return best if counts[best] > _ENOUGH * total else None


def check_languages(
  pairs: Sequence[tuple[str, str]], languages: tuple[str, str], what: str
) -> None:
  """Raises UserError if the sides of `pairs`, called `what`, look swapped."""
  looks = tuple(looks_like(side) for side in zip(*pairs, strict=True))
  if looks == languages[::-1]:
    raise UserError(
      f'{what}: the source looks like {looks[0]} and the target like {looks[1]}, but '
      f'the config has {languages[0]} -> {languages[1]}: are the two swapped?'
    )


def check_code(code: str) -> None:
  """Raises UserError for what is no code of a language, and says what is meant."""
  from babel import Locale  # here, since it loads slowly
  from babel.core import get_global

  language, _, region = code.replace('-', '_').partition('_')
  language = language.lower()
  usual = f'{language}_{region}' if region else language
  short = get_global('language_aliases').get(language, '')
  # A scorer knows how to split Japanese by the code ja alone.
  if len(language) == 3 and len(short) == 2:
    raise UserError(f'{code!r}: this language has a code of two letters, {short}')
  names = {name.lower(): key for key, name in Locale('en').languages.items()}
  if CODE.fullmatch(usual) and (len(language) == 3 or language in names.values()):
    if usual == code:
      return
    hint = f': write {usual}'
  else:
    near = difflib.get_close_matches(code.lower(), names, 1)
    hint = f': {near[0].title()} is {names[near[0]]}' if near else ', such as de or hsb'
  raise UserError(f'{code!r} is no code of a language (ISO 639){hint}')
