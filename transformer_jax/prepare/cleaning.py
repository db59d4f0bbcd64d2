"""Chooses the pairs of a corpus: drops bad ones, takes samples, checks languages.

Dev and test are cleaned only if they are drawn from training. Source and target that
look swapped are an error.
"""

import functools
import hashlib
import itertools
import pathlib
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from transformer_jax.config import Cleaning
from transformer_jax.data import text
from transformer_jax.data.corpus import SourceEntry, languages
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare.sources import Pair, Source, Sources

# NUL, and characters that some program takes for the end of a line: mostly damage.
# U+0085 is allowed: web text has it for the ellipsis of Windows' code page 1252.
_CONTROL = re.compile('[\x00\n\x0b\x0c\r\x1c-\x1e\u2028\u2029]')

_SAMPLE = 1_000  # pairs of a source whose languages are checked

# Fibonacci hashing's constant, 2**64 / phi (Knuth, volume 3, section 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Faults of lines that are not text, or are text in another encoding.
_NOT_UTF8, _CONTROLS = 'not UTF-8', 'control character'
_REPLACED = 'replacement character'

# Common words that only one of these languages has.
_COMMON = {
  'en': {'the', 'of', 'and', 'to', 'that', 'is', 'for', 'it', 'with', 'this', 'are'},
  'de': {'der', 'und', 'den', 'das', 'ist', 'von', 'nicht', 'zu', 'auf', 'ein', 'eine'},
  'fr': {'le', 'la', 'les', 'et', 'que', 'il', 'est', 'une', 'dans', 'pour', 'qui'},
}

# Text in another language has a smaller fraction of these words.
_COMMON_FRACTION = 0.02

# From _FEWEST_PAIRS pairs on, the lengths of lines that correspond have a higher rank
# correlation.
_FEWEST_PAIRS, _LEAST_CORRELATION = 50, 0.5


def fault(pair: Pair, limits: Cleaning) -> str | None:
  """Returns the reason to drop a pair from training, or None if the pair is good."""
  source, target = pair
  if source is None or target is None:
    return _NOT_UTF8
  if not source.strip() or not target.strip():
    return 'empty'
  if _CONTROL.search(source) or _CONTROL.search(target):
    return _CONTROLS
  if limits.off:
    return None
  if '\ufffd' in source or '\ufffd' in target:
    return _REPLACED  # a character was lost in an earlier conversion
  if max(len(source), len(target)) > limits.max_characters:
    return f'over {limits.max_characters} characters'
  counts = _count_words(source), _count_words(target)
  # Without spaces between words, assume the number of words that fits best.
  if any(a[0] > limits.max_ratio * b[1] for a, b in itertools.permutations(counts)):
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


def _count_words(line: str) -> tuple[int, int]:
  """Returns the fewest and the most words that a line may have.

  Words end at spaces. In scripts without spaces each letter may be a word.
  """
  spaced = len(line.split())
  if line.isascii():
    return spaced, spaced
  return spaced, spaced + sum(map(str.isalpha, text.UNSPACED_LETTER.findall(line)))


def _alphanumeric(line: str) -> float:
  """Returns the fraction of letters and digits among the non-spaces."""
  characters = len(line) - line.count(' ')
  return sum(map(str.isalnum, line)) / characters if characters else 1.0


def _without_marks(line: str) -> str:
  """Returns the line without accents, vowel signs and other combining marks."""
  return ''.join(c for c in line if unicodedata.category(c)[0] != 'M')


def _is_sentence(line: str) -> bool:
  """Returns True if a line is a sentence, and not names, numbers or an address.

  Over a third of a sentence's words consist of letters and begin with a small letter.
  In the name `Ludwig van Beethoven` exactly a third do. In a script without capitals, a
  sentence has more than three words; without spaces, two letters count as a word.
  """
  line = line if line.isascii() else _without_marks(line)
  if line.lower() == line.upper():
    unspaced = sum(map(str.isalpha, text.UNSPACED_LETTER.findall(line)))
    return len(re.findall(r'[^\W\d_]+', line)) + unspaced / 2 > 3
  words = [word.strip(string.punctuation) for word in line.split()]
  plain = sum(word.isalpha() and not word[0].isupper() for word in words)
  return 3 * plain > len(words)


def describe_faults(faults: Mapping[str, int]) -> str:
  """Returns faults and their counts in words, the commonest first."""
  ordered = Counter(faults).most_common()
  return ', '.join(f'{count:,} {fault}' for fault, count in ordered)


def check_is_text(name: str, read: int, faults: Mapping[str, int]) -> None:
  """Warns of pairs that are not text; raises UserError if they are over half."""
  not_text = _NOT_UTF8, _CONTROLS, _REPLACED
  wrong = {fault: faults[fault] for fault in not_text if faults.get(fault)}
  if not (count := sum(wrong.values())):
    return
  fact = f'{name}: {count:,} of {read:,} pairs are not text ({describe_faults(wrong)})'
  remedy = 'if it is in another encoding, convert it, as by iconv -f LATIN1 -t UTF-8'
  if 2 * count > read:
    raise UserError(f'{fact}: {remedy}')
  print(f'WARNING: {fact}; they are dropped; {remedy}', file=sys.stderr)


def write_clean_text(
  config: ConfigDict,
  sources: Sequence[Source],
  texts: Sequence[pathlib.Path],
  converters: Sequence[Callable[[str], str]],
) -> list[SourceEntry]:
  """Writes all good pairs to two files of lines; returns the counts of each source.

  Args:
    texts: the files for source and target sentences.
    converters: map a source and a target line to the text that is written.
  """
  entries, limits = [], Cleaning(**config.data.cleaning)
  with (
    texts[0].open('w', encoding='utf-8', newline='\n') as source_lines,
    texts[1].open('w', encoding='utf-8', newline='\n') as target_lines,
    tqdm(desc='reading', unit=' pairs', unit_scale=True) as bar,
  ):
    for source in sources:
      read, first_flaw = 0, ''
      faults: Counter[str] = Counter()
      sample: list[Any] = []
      for pair in source.pairs():
        read += 1
        bar.update()
        if isinstance(pair, UserError):
          first_flaw = first_flaw or f'flawed (the first: {pair})'
          faults[first_flaw] += 1
          continue
        if (reason := fault(pair, limits)) is not None:
          faults[reason] += 1
          continue
        source_line, target_line = map(str, pair)  # no fault: neither is None
        source_lines.write(f'{converters[0](source_line)}\n')
        target_lines.write(f'{converters[1](target_line)}\n')
        if len(sample) < _SAMPLE:
          sample.append(pair)
      check_is_text(source.name, read, faults)
      check_languages(sample, languages(config), source.name)
      entries.append(SourceEntry(source.name, read=read, dropped=dict(faults)))
  return entries


# Samples by a hash of the text


def choose_pairs(
  texts: Sequence[pathlib.Path], pairs: int, count: int, seed: int
) -> np.ndarray:
  """Returns which pairs are in a random sample of `count` pairs: [pairs] bool.

  They are the pairs with the smallest hashes of text and seed, so the order of the text
  does not matter.

  Args:
    texts: two files with a sentence a line, UTF-8.
    pairs: the number of lines of each file.
  """
  chosen = np.ones(pairs, bool)
  if count < pairs:
    chosen[:] = False
    chosen[np.argpartition(_hashes(texts, seed), count)[:count]] = True
  return chosen


def _sample_hash(text: bytes, seed: int) -> bytes:
  """Returns a hash that orders texts at random; a sample takes the smallest."""
  return hashlib.sha256(b'%d\t%b' % (seed, text)).digest()


def _hashes(texts: Sequence[pathlib.Path], seed: int) -> np.ndarray:
  """Returns a hash of each pair's text and its number among equals: [pairs] uint64."""
  digests = bytearray()
  with texts[0].open('rb') as source, texts[1].open('rb') as target:
    for a, b in zip(source, target, strict=True):
      digests += _sample_hash(a + b, seed)[:8]
  hashes = np.frombuffer(digests, '<u8')
  order = np.argsort(hashes, kind='stable')
  ordered = hashes[order]
  number = np.arange(len(hashes)) - np.searchsorted(ordered, ordered)
  # Spread the hashes of equal pairs, or all or none of them would be chosen.
  spread = np.empty_like(hashes)
  spread[order] = ordered + number.astype(np.uint64) * _GOLDEN
  return spread


def chosen_lines(
  path: pathlib.Path, chosen: Iterable[bool] = itertools.repeat(True)
) -> Iterator[str]:
  """Yields the lines of a file that are chosen ([lines] bool), or all."""
  with path.open(encoding='utf-8', newline='\n') as file:
    for line in itertools.compress(file, chosen):
      yield line.removesuffix('\n')


def keep_lines(texts: Sequence[pathlib.Path], chosen: np.ndarray) -> None:
  """Removes all lines of two files but the `chosen` ones ([pairs] bool)."""
  for path in texts:
    kept = path.with_suffix(f'{path.suffix}.kept')
    with path.open('rb') as lines, kept.open('wb') as file:
      file.writelines(itertools.compress(lines, chosen))
    kept.replace(path)


def check_pairing(name: str, source: np.ndarray, target: np.ndarray) -> None:
  """Warns if the lines of source and target do not correspond.

  Long sentences have long translations. The rank correlation of the two lengths was
  0.87 to 0.99 in 16 corpora, and 0.68 or more in all samples of 50 of their pairs. Once
  the target was shuffled, it was below 0.1, and with the target moved by a line below
  0.45, but for three corpora that are sorted by length (0.78).

  Args:
    name: of the split.
    source, target: lengths of its sentences, in tokens: [pairs].
  """
  if len(source) < _FEWEST_PAIRS:
    return
  sample = np.linspace(0, len(source) - 1, 10_000).astype(int)
  ranks = [np.unique(text[sample], return_inverse=True)[1] for text in (source, target)]
  counts = map(np.bincount, ranks)  # equal lengths have the mean of their ranks
  means = (np.cumsum(count) - count / 2 for count in counts)
  smooth = [mean[rank] for mean, rank in zip(means, ranks, strict=True)]
  a, b = (rank - rank.mean() for rank in smooth)
  spread = np.sqrt((a * a).sum() * (b * b).sum())
  if (a * b).sum() < _LEAST_CORRELATION * spread:
    print(
      f'WARNING: {name}: long sources have short targets too often (rank correlation '
      f'{(a * b).sum() / spread:.2f}; texts that pair up have some 0.9): is line n of '
      'the target the translation of line n of the source?',
      file=sys.stderr,
    )


# Dev and test out of training


def draw(splits: Sources, data: ConfigDict) -> Sources:
  """Draws dev or test from training, where the config says so.

  Training loses all pairs with the same sources. Sources are the same if _as_read()
  returns the same text. A hash of its source and the seed decides whether a pair is
  drawn, so the order of the text does not matter. Training is read when the first of
  the returned pairs is.

  Args:
    data: the config's. A pair beyond the limits of its cleaning is not taken.
  """
  sizes = {split: sum(s.sample_size for s in some) for split, some in splits.items()}
  counts = {split: size for split, size in sizes.items() if size}
  if not counts:
    return splits
  train = splits['train']
  choose = functools.cache(lambda: _choose_pairs(train, counts, data))
  first = 0
  for split, count in counts.items():
    pairs = functools.partial(_part_of, choose, slice(first, first + count))
    splits = splits | {split: [splits[split][0]._replace(pairs=pairs)]}
    first += count
  remaining = lambda source: functools.partial(
    _remaining, source, choose, data.lowercase
  )
  return splits | {'train': [s._replace(pairs=remaining(s)) for s in train]}


def _part_of(choose: Callable[[], list[Pair]], part: slice) -> Iterator[Pair]:
  yield from choose()[part]


def _remaining(
  whole: Source, choose: Callable[[], list[Pair]], lowercase: bool
) -> Iterator[Pair | UserError]:
  """Yields the pairs of a training source whose source sentence was not chosen.

  Prints how many it left out to stderr.
  """
  held_out = {_as_read(line, lowercase) for line, _ in choose() if line is not None}
  left_out = 0
  for pair in whole.pairs():
    sentence = None if isinstance(pair, UserError) else pair[0]
    if sentence is not None and _as_read(sentence, lowercase) in held_out:
      left_out += 1
    else:
      yield pair
  print(
    f'{whole.name}: {left_out:,} pairs are left out of training, since dev or test has '
    'their sources',
    file=sys.stderr,
  )


def _as_read(sentence: str, lowercase: bool) -> str:
  """Returns what is compared of a sentence: in NFC, with single spaces."""
  sentence = sentence.lower() if lowercase else sentence
  return ' '.join(text.nfc(sentence).split())


def _choose_pairs(
  train: Sequence[Source], counts: Mapping[str, int], data: ConfigDict
) -> list[Pair]:
  """Returns the good pairs of the smallest hashes, each with another source."""
  total, read, limits = sum(counts.values()), 0, Cleaning(**data.cleaning)
  chosen: dict[bytes, Pair] = {}
  faults: Counter[str] = Counter()
  pairs = itertools.chain.from_iterable(source.pairs() for source in train)
  for pair in tqdm(pairs, f'drawing {total:,} pairs', unit=' pairs', unit_scale=True):
    read += 1
    if (reason := fault(pair, limits)) is not None:
      faults[reason] += 1
      continue
    line = _as_read(pair[0], data.lowercase)
    key = _sample_hash(line.encode(), data.seed)
    chosen[key] = min(pair, chosen.get(key, pair))
    if len(chosen) == 2 * total:
      chosen = dict(sorted(chosen.items())[:total])
  check_is_text(' and '.join(source.name for source in train), read, faults)
  if len(chosen) < total:
    numbers = ' and '.join(f'{count:,} for {split}' for split, count in counts.items())
    raise UserError(
      f'training has {len(chosen)} good pairs of different sources, and {numbers} are '
      'to be drawn: give files for dev and test, or draw fewer '
      '(--config.data.files.dev="(\'drawn:9\',)")'
    )
  return [chosen[key] for key in sorted(chosen)[:total]]


# Languages


def guess_language(lines: Iterable[str]) -> str | None:
  """Returns the language of a text: en, de or fr; None if it is another."""
  words = [word for line in lines for word in line.lower().split()]
  count = lambda language: sum(word in _COMMON[language] for word in words)
  best = max(_COMMON, key=count)
  return best if count(best) > _COMMON_FRACTION * len(words) else None


def check_languages(
  pairs: Sequence[tuple[str, str]], codes: tuple[str, str], name: str
) -> None:
  """Raises UserError if the languages of the text `name` look swapped."""
  guesses = tuple(map(guess_language, zip(*pairs, strict=True)))
  if guesses == codes[::-1]:
    raise UserError(
      f'{name}: the source looks like {guesses[0]} and the target like {guesses[1]}, '
      f'but the config has {codes[0]} -> {codes[1]}: are the two swapped?'
    )
