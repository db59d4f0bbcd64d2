"""Readers of lines: files of text, a user's own folder, the embedded corpus."""

import functools
import hashlib
import itertools
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from ml_collections import ConfigDict
from tqdm import tqdm

from transformer_jax.config import Cleaning
from transformer_jax.data import text
from transformer_jax.data.corpus import SACREBLEU, SPLITS, languages
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning, sources
from transformer_jax.prepare.sources import Pair, Source, Sources

# The embedded corpus: English, a tab and German a line, and the lines of each split.
EMBEDDED = pathlib.Path(__file__).with_name('embedded.en-de.tsv.xz')
EMBEDDED_LINES = {'train': (0, 70_000), 'dev': (70_000, 71_000), 'test': (71_000, None)}

# In place of a file's name in a config, takes this many pairs from training.
DRAW = 'drawn:'
MOST_HELD_OUT = 1000  # pairs of dev or test that are taken from a user's own text
# Characters of a token with 8,000 pieces: 3.3 to 4.5 in English, French and German.
TOKEN = 4.5
# Names of the files of dev in a user's own folder; the first that exists counts.
DEV_NAMES = ('dev', 'valid', 'val', 'validation')


def from_files(
  config: ConfigDict, raw_dir: pathlib.Path | None, _: pathlib.Path | None = None
) -> Sources:
  """Reads files of text in `raw_dir`, test sets of sacreBLEU, and pairs of training."""
  raw_dir = check_folder(config, raw_dir)
  pair, counts = languages(config), {}
  splits: Sources = {}
  for split in SPLITS:
    stems = config.data.files[split]
    if split != 'train' and any(stem.startswith(DRAW) for stem in stems):
      number = stems[0].removeprefix(DRAW)
      if len(stems) > 1 or not number.isdecimal() or not int(number):
        raise UserError(
          f'data.files.{split}={tuple(stems)}: {DRAW} and a number, which stands '
          f"alone, such as ('{DRAW}1000',)"
        )
      counts[split] = int(number)
      continue
    splits[split] = [
      sources.sacrebleu_source(stem, pair)
      if stem.startswith(SACREBLEU)
      else sources.file_source(raw_dir, stem + config.data.suffix, pair)
      for stem in stems
    ]
  if counts:
    splits |= draw(splits['train'], counts, config.data)
  return splits


def check_folder(config: ConfigDict, raw_dir: pathlib.Path | None) -> pathlib.Path:
  """Returns the folder of the raw text; raises UserError if there is none."""
  if raw_dir is None:
    raise UserError(
      f'{config.data.name} is not prepared in --data_dir: give --raw_dir to prepare it'
    )
  if not raw_dir.is_dir():
    raise UserError(f'{raw_dir}: no such folder (--raw_dir)')
  return raw_dir


# Dev and test out of training


def draw(
  train: Sequence[Source], counts: Mapping[str, int], data: ConfigDict
) -> Sources:
  """Takes dev or test from training, which loses all pairs with the same sources.

  Sources are the same if a model reads the same text, see _as_read().

  A hash of its source and the seed decides whether a pair is taken, so the order of the
  text does not matter. The first pair that is read causes training to be read.

  Args:
    counts: the number of pairs of each split to take.
    data: the config's. A pair beyond the limits of its cleaning is not taken.
  """
  choose = functools.cache(lambda: _choose_pairs(train, counts, data))
  splits, first = {}, 0
  for split, count in counts.items():
    part = slice(first, first + count)
    pairs = functools.partial(_part_of, choose, part)
    name = f'{count} pairs drawn from training, seed {data.seed}'
    splits[split] = [Source(name, (), pairs)]
    first += count
  splits['train'] = [
    source._replace(pairs=functools.partial(_remaining, source, choose, data.lowercase))
    for source in train
  ]
  return splits


def _part_of(choose: Callable[[], list[Pair]], part: slice) -> Iterator[Pair]:
  yield from choose()[part]


def _remaining(
  whole: Source, choose: Callable[[], list[Pair]], lowercase: bool
) -> Iterator[Pair | UserError]:
  """Yields the pairs of a training source whose source sentence was not chosen."""
  held_out = {_as_read(line, lowercase) for line, _ in choose() if line is not None}
  for pair in whole.pairs():
    sentence = None if isinstance(pair, UserError) else pair[0]
    if sentence is None or _as_read(sentence, lowercase) not in held_out:
      yield pair


def _as_read(sentence: str, lowercase: bool) -> str:
  """Returns what tells sentences apart for a model: in NFC, with single spaces."""
  sentence = sentence.lower() if lowercase else sentence
  return ' '.join(normalize('NFC', sentence).split())


def _choose_pairs(
  train: Sequence[Source], counts: Mapping[str, int], data: ConfigDict
) -> list[Pair]:
  """Returns the good pairs of the smallest hashes, one of each source sentence."""
  total, read, limits = sum(counts.values()), 0, Cleaning(**data.cleaning)
  chosen: dict[bytes, Pair] = {}
  faults: Counter[str] = Counter()
  pairs = itertools.chain.from_iterable(source.pairs() for source in train)
  for pair in tqdm(pairs, f'drawing {total:,} pairs', unit=' pairs', unit_scale=True):
    read += 1
    if (fault := cleaning.fault(pair, limits)) is not None:
      faults[fault] += 1
      continue
    line = _as_read(pair[0], data.lowercase)
    key = hashlib.sha256(f'{data.seed}\t{line}'.encode()).digest()
    chosen[key] = min(pair, chosen.get(key, pair))
    if len(chosen) == 2 * total:
      chosen = dict(sorted(chosen.items())[:total])
  cleaning.check_is_text(' and '.join(source.name for source in train), read, faults)
  if len(chosen) < total:
    numbers = ' and '.join(f'{count:,} for {split}' for split, count in counts.items())
    raise UserError(
      f'training has {len(chosen)} good pairs of different sources, and {numbers} are '
      'to be drawn: give files for dev and test, or draw fewer '
      '(--config.data.files.dev="(\'drawn:9\',)")'
    )
  return [chosen[key] for key in sorted(chosen)[:total]]


# The embedded corpus


def embedded(config: ConfigDict, *_: pathlib.Path | None) -> Sources:
  """Reads the quickstart's corpus, a file of the package (docs/quickstart.md)."""
  pair = languages(config)
  if {*pair} != {'en', 'de'}:
    raise UserError(f'{"-".join(pair)}: the embedded corpus is en-de')
  order = 1 if pair[0] == 'en' else -1

  def read(start: int, stop: int | None) -> Iterator[Pair]:
    for line in itertools.islice(text.read_lines(EMBEDDED), start, stop):
      source, target = str(line).split('\t')[::order]
      yield source, target

  source = lambda *lines: Source(
    EMBEDDED.name, (EMBEDDED,), functools.partial(read, *lines)
  )
  return {split: [source(*lines)] for split, lines in EMBEDDED_LINES.items()}


# A user's own folder


def find_user_text(argument: str) -> tuple[dict[str, Any], int, int]:
  """Returns keys of `data` for the text that 'SOURCE-TARGET,DIR' names, and its size.

  The size is that of train: its pairs, and its target tokens, approximately. Takes dev
  and test from train if they have no files of their own.

  Raises:
    UserError: the argument has another form, or train is missing or damaged.
  """
  pair, _, name = argument.partition(',')
  languages = tuple(pair.split('-'))
  if len(languages) != 2 or not name:
    raise UserError(
      f'{argument or "my.py"}: give two languages and the folder of the text, '
      '--config=configs/my.py:SOURCE-TARGET,DIR, such as my.py:de-en,texts; a region '
      'is written with _, as in my.py:zh_Hant-en,texts'
    )
  for language in languages:
    text.check_code(language)
  if len({*languages}) == 1:
    raise UserError(f'my.py:{argument}: two different languages, such as de-en')
  folder = pathlib.Path(name).expanduser().resolve()
  paths = [sources.find_file(folder, f'train.{language}') for language in languages]
  pairs, tokens = _measure(paths[1])
  files = {'train': ('train',)}
  # A file in one of the languages is enough here; the reader raises if one is missing.
  find = lambda stem: [sources.find_files(folder, f'{stem}.{x}') for x in languages]
  count = max(1, min(MOST_HELD_OUT, pairs // 10))
  for split, stems in (('dev', DEV_NAMES), ('test', ('test',))):
    found = next((stem for stem in stems if any(find(stem))), None)
    files[split] = (found or f'{DRAW}{count}',)
    tokens -= 0 if found else tokens * count // max(1, pairs)
  path = hashlib.sha256(str(folder).encode()).hexdigest()[:6]
  data = {'name': f'my.{folder.name}.{path}.{pair}', 'files': files}
  data |= {'source_language': languages[0], 'target_language': languages[1]}
  return data | {'reader': 'files', 'raw_dir': str(folder)}, pairs, tokens


@functools.cache
def _measure(path: pathlib.Path) -> tuple[int, int]:
  """Returns the number of lines of a file, and of their tokens, approximately."""
  lines = characters = 0
  for line in text.read_lines(path):
    lines += 1
    # A letter of a script without spaces is worth three.
    characters += len(line or '') + 2 * len(text.UNSPACED_LETTER.findall(line or ''))
  return lines, int(characters / TOKEN)
