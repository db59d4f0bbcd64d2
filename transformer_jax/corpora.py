"""From text to a prepared corpus: read, clean, learn the vocabulary, encode, card.

A prepared corpus is a folder: `vocabulary.model`, token files for each side and split
(see batches.py), dev and test text as given, and `card.json`, which says where all of
it came from and what was dropped.
"""

import collections
import hashlib
import importlib.metadata
import json
import pathlib
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from transformer_jax import batches, embedded_corpus, vocabulary

SPLITS = ('train', 'dev', 'test')
SIDES = ('source', 'target')
CARD = 'card.json'

# Longer lines are not sentences; they are dropped before anything is learnt from them.
MAX_CHARACTERS = 5000

# Characters that some reader somewhere takes for the end of a line, and NUL: a pair
# that has one inside is more likely damaged than meant.
_CONTROL = re.compile('[\x00\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]')

# What many translations keep: numbers, names, punctuation.
_KEPT = re.compile(r'\d+|[A-Z]\w+|[?!",:;()%/-]')


class Text(NamedTuple):
  """Both sides of a split as read; a line that is not UTF-8 is None."""

  source: list[str | None]
  target: list[str | None]
  origin: dict  # per side: what the card says about the file


class Corpus(NamedTuple):
  """What to prepare: all that decides how a prepared corpus comes out."""

  name: str
  source_language: str
  target_language: str
  vocab_size: int
  max_length: int  # tokens of a side, EOS counted
  corpus_seed: int


def read_lines(path: pathlib.Path) -> tuple[list[str | None], dict]:
  """Lines of a file, split at LF alone, and what the card says of the file.

  A byte order mark and the CR of CRLF are taken off and counted; a line that is not
  valid UTF-8 is None.
  """
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no such file; --raw_dir names its folder')
  content = path.read_bytes()
  about = {'file': path.name, 'sha256': hashlib.sha256(content).hexdigest()}
  if content.startswith(b'\xef\xbb\xbf'):
    content = content[3:]
    about['byte_order_mark'] = True
  raw = content.split(b'\n')
  if raw[-1] == b'':
    raw.pop()
  crlf = sum(line.endswith(b'\r') for line in raw)
  if crlf:
    about['carriage_returns_taken_off'] = crlf
  lines = [_decode(line.removesuffix(b'\r')) for line in raw]
  return lines, about | {'lines': len(lines)}


def _decode(line: bytes) -> str | None:
  try:
    return line.decode('utf-8')
  except UnicodeDecodeError:
    return None


def read_files(raw_dir: pathlib.Path, stem: str, source: str, target: str) -> Text:
  """The split in raw_dir/STEM.source and raw_dir/STEM.target, a sentence a line.

  Raises:
    ValueError: the two files do not have the same number of lines.
  """
  paths = [raw_dir / f'{stem}.{language}' for language in (source, target)]
  (sources, about_source), (targets, about_target) = map(read_lines, paths)
  if len(sources) != len(targets):
    raise ValueError(
      f'{paths[0]} has {len(sources)} lines and {paths[1]} has {len(targets)}: they '
      f'must pair up. First suspicious line: {_suspicious(sources, targets)}'
    )
  return Text(sources, targets, {'source': about_source, 'target': about_target})


def _suspicious(sources: Sequence[str | None], targets: Sequence[str | None]) -> int:
  """The line (from 1) from where on lines no longer go with those across from them.

  Judged by length, names, numbers and punctuation, for sides of unequal line counts.
  """
  short, long = sorted((sources, targets), key=len)
  size = lambda lines: np.log([len(line or '') + 8.0 for line in lines])
  marks = lambda lines: np.array([_marks(line or '') for line in lines], np.uint64)
  short_size, short_marks, long_size, long_marks = (
    feature(side) for side in (short, long) for feature in (size, marks)
  )

  def fit(shift: int) -> np.ndarray:
    """How well each line goes with the one `shift` lines further down."""
    there = slice(shift, shift + len(short))
    lengths = np.exp(-5 * np.abs(long_size[there] - short_size)) + 0.1
    return lengths * (1 + np.bitwise_count(long_marks[there] & short_marks))

  # Up to the place sought the lines as they stand go together best; behind it, those
  # do that are as far apart as lines are missing there: not all need be.
  missing = len(long) - len(short)
  shifted = np.mean([fit(shift) for shift in {1, min(2, missing), missing}], 0)
  gain = np.concatenate([[0.0], np.cumsum(np.log(fit(0) / shifted))])
  return int(gain.argmax()) + 1


def _marks(line: str) -> int:
  """64 bits, some set by what a translation often leaves as it is."""
  bits = {zlib.crc32(mark.encode()) % 64 for mark in _KEPT.findall(line)}
  return sum(1 << bit for bit in bits)


def clean(text: Text) -> tuple[list[str], list[str], collections.Counter]:
  """The pairs to train on, and how many were dropped for which reason."""
  dropped: collections.Counter = collections.Counter()
  kept: tuple[list[str], list[str]] = ([], [])
  for pair in zip(text.source, text.target, strict=True):
    reason = _fault(pair)
    if reason:
      dropped[reason] += 1
    else:
      kept[0].append(pair[0])
      kept[1].append(pair[1])
  return *kept, dropped


def _fault(pair: tuple[str | None, str | None]) -> str | None:
  if None in pair:
    return 'not UTF-8'
  if not all(side.strip() for side in pair):
    return 'empty'
  if any(map(_CONTROL.search, pair)):
    return 'control character'
  if max(map(len, pair)) > MAX_CHARACTERS:
    return f'over {MAX_CHARACTERS} characters'
  return None


def check_held_out(split: str, text: Text) -> None:
  """Dev and test text is never dropped from, so it must be whole."""
  for side in SIDES:
    lines = getattr(text, side)
    name = text.origin[side]['file']
    if not lines:
      raise ValueError(f'{name}: the {split} split is empty')
    for number, line in enumerate(lines, 1):
      if line is None:
        raise ValueError(f'{name}, line {number}: not UTF-8; mend the {split} file')


def embedded(source_language: str, target_language: str, seed: int) -> dict[str, Text]:
  """The corpus that comes with the package, in either direction.

  Raises:
    ValueError: it does not have this pair of languages.
  """
  if 'en' not in (source_language, target_language):
    raise ValueError(
      f'{source_language}-{target_language}: one side of the embedded corpus is en'
    )
  foreign = source_language if target_language == 'en' else target_language
  made = embedded_corpus.sentence_pairs(foreign, seed)
  versions = {name: importlib.metadata.version(name) for name in ('babel', 'num2words')}
  origin = {
    side: {'file': f'embedded corpus, seed {seed}', 'versions': versions}
    for side in SIDES
  }
  texts = {}
  for split, pairs in made.items():
    english, other = map(list, zip(*pairs, strict=True))
    sides = (other, english) if target_language == 'en' else (english, other)
    texts[split] = Text(*sides, origin)
  return texts


def prepare(corpus: Corpus, texts: dict[str, Text], data_dir: pathlib.Path) -> None:
  """Writes data_dir/NAME from the texts of all splits, whole or not at all."""
  final = data_dir / corpus.name
  partial = data_dir / f'{corpus.name}.partial'
  if partial.exists():
    shutil.rmtree(partial)
  partial.mkdir(parents=True)
  for split in SPLITS[1:]:
    check_held_out(split, texts[split])
  *train, dropped = clean(texts['train'])
  if not train[0]:
    raise ValueError(f'no training pair of {corpus.name} is left: {dict(dropped)}')
  vocabulary.train(
    (line for side in train for line in side),
    partial / 'vocabulary.model',
    corpus.vocab_size,
  )
  words = vocabulary.Vocabulary(partial / 'vocabulary.model')
  splits = {'train': _write_train(partial, train, words, corpus.max_length, dropped)}
  for split in SPLITS[1:]:
    splits[split] = _write_held_out(partial, split, texts[split], words)
  for split in SPLITS:
    splits[split] = {'from': texts[split].origin, **splits[split]}
  card = {
    **corpus._asdict(),
    'vocabulary': {'sha256': words.sha256, 'pieces': len(words)},
    'splits': splits,
    'versions': {'sentencepiece': importlib.metadata.version('sentencepiece')},
    'sha256': {
      path.name: hashlib.sha256(path.read_bytes()).hexdigest()
      for path in sorted(partial.iterdir())
    },
  }
  text = json.dumps(card, indent=1, ensure_ascii=False) + '\n'
  (partial / CARD).write_text(text, encoding='utf-8')
  partial.rename(final)


def _encode(
  words: vocabulary.Vocabulary, lines: list[str], what: str
) -> Iterator[list[int]]:
  block = 10_000
  with tqdm(total=len(lines), desc=what, unit=' lines', disable=None) as bar:
    for start in range(0, len(lines), block):
      yield from words.encode(lines[start : start + block])
      bar.update(min(block, len(lines) - start))


def _write_train(
  folder: pathlib.Path,
  sides: list[list[str]],
  words: vocabulary.Vocabulary,
  max_length: int,
  dropped: collections.Counter,
) -> dict:
  read = len(sides[0]) + dropped.total()
  ids = [
    list(_encode(words, lines, f'encoding {side}s'))
    for side, lines in zip(SIDES, sides, strict=True)
  ]
  fits = [max(map(len, pair)) < max_length for pair in zip(*ids, strict=True)]
  if not any(fits):
    raise ValueError(f'every training pair is over max_length={max_length} tokens')
  ids = [[i for i, fit in zip(side, fits, strict=True) if fit] for side in ids]
  if len(fits) > len(ids[0]):
    dropped[f'over {max_length} tokens'] = len(fits) - len(ids[0])
  tokens = {
    side: batches.write_tokens(folder / f'train.{side}', encoded)
    for side, encoded in zip(SIDES, ids, strict=True)
  }
  return {
    'read': read,
    'kept': len(ids[0]),
    'dropped': dict(dropped),
    'tokens': tokens,
    'longest': {s: max(map(len, e)) for s, e in zip(SIDES, ids, strict=True)},
  }


def _write_held_out(
  folder: pathlib.Path, split: str, text: Text, words: vocabulary.Vocabulary
) -> dict:
  tokens = {}
  for side in SIDES:
    lines = getattr(text, side)
    path = folder / f'{split}.{side}'
    path.with_suffix(f'.{side}.txt').write_bytes(
      ''.join(line + '\n' for line in lines).encode()
    )
    tokens[side] = batches.write_tokens(path, words.encode(lines))
  return {'read': len(text.source), 'kept': len(text.source), 'tokens': tokens}


def read_card(folder: pathlib.Path) -> dict:
  """The card of a prepared corpus, its own hash added as `corpus`."""
  path = folder / CARD
  if not path.is_file():
    raise FileNotFoundError(f'{path}: not there; run scripts.prepare_data')
  content = path.read_bytes()
  return json.loads(content) | {'corpus': hashlib.sha256(content).hexdigest()}


def held_out(folder: pathlib.Path, split: str) -> tuple[list[str], list[str]]:
  """Source and target sentences of dev or test, as given."""
  read = lambda side: (folder / f'{split}.{side}.txt').read_bytes().decode().split('\n')
  return read('source')[:-1], read('target')[:-1]
