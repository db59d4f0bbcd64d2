"""Where the text of a corpus comes from: the sources of each split, by its reader."""

import functools
import hashlib
import heapq
import os
import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tqdm import tqdm

from transformer_jax.data import cleaning, parquet, text, tfds
from transformer_jax.data.corpus import (
  SACREBLEU,
  SPLITS,
  TREE_SETTINGS,
  WMT14,
  Cleaning,
  Corpus,
  Pair,
  Source,
  Splits,
)
from transformer_jax.machine.errors import UserError

# In a config, names of files that start so say how many pairs are drawn from training.
DRAWN = 'drawn:'
MOST_DRAWN = 1000  # pairs of dev or test, where a user has no files of them
# What other programs call dev.
OTHER_NAMES = ('valid', 'val', 'validation')


def from_files(
  corpus: Corpus, raw_dir: pathlib.Path | None, _: pathlib.Path | None = None
) -> Splits:
  """Reads files of text in `raw_dir`, and test sets of sacreBLEU; draws dev and test.

  Raises:
    UserError: a file is not there, or a name in the config is none of these.
  """
  raw_dir = check_folder(corpus, raw_dir)
  counts = {}
  splits: Splits = {}
  for split in SPLITS:
    stems = corpus.files[split]
    drawn = [stem for stem in stems if stem.startswith(DRAWN)]
    if not drawn or split == 'train':
      splits[split] = [_named(stem, corpus, raw_dir) for stem in stems]
      continue
    number = drawn[0].removeprefix(DRAWN)
    if len(stems) > 1 or not number.isdecimal() or not int(number):
      raise UserError(
        f'data.files.{split}={tuple(stems)}: {DRAWN} and a number, which stands alone, '
        f"such as ('{DRAWN}1000',)"
      )
    counts[split] = int(number)
  if counts:
    splits |= draw(splits['train'], counts, corpus.cleaning, corpus.seed)
  return splits


def from_wmt14(
  corpus: Corpus, raw_dir: pathlib.Path | None, tfds_data_dir: pathlib.Path | None
) -> Splits:
  """Reads WMT14: what `raw_dir` holds, or tensorflow-datasets without `raw_dir`.

  In `raw_dir` are Hugging Face's Parquet files, or files of text. Dev and test of tfds
  and of Parquet are newstest2013 and newstest2014 as sacreBLEU has them.

  Raises:
    UserError: the text is not there, or the config names other files.
  """
  if raw_dir is None:
    whence = 'tensorflow-datasets'
    train = lambda: [tfds.source(corpus.languages, tfds_data_dir)]
  elif files := parquet.training_files(check_folder(corpus, raw_dir), corpus.languages):
    whence = f'the Parquet files in {raw_dir}'
    train = lambda: [parquet.source(path, corpus.languages) for path in files]
  else:
    return from_files(corpus, raw_dir)
  dev, test = WMT14
  stems = {split: tuple(named) for split, named in corpus.files.items()}
  if stems != {'train': ('train',), 'dev': (dev,), 'test': (test,)} or corpus.suffix:
    raise UserError(
      f'WMT14 comes from {whence}, where config.data.files and config.data.suffix '
      'choose nothing: leave them out, or give a --raw_dir with files of text'
    )
  sets = [text.sacrebleu_source(name, corpus.languages) for name in WMT14.values()]
  return {'train': train(), 'dev': [sets[0]], 'test': [sets[1]]}


def check_folder(corpus: Corpus, raw_dir: pathlib.Path | None) -> pathlib.Path:
  """The folder of the raw text; UserError if there is none."""
  if raw_dir is None:
    raise UserError(
      f'{corpus.name} is not prepared in --data_dir: give --raw_dir to prepare it'
    )
  if not raw_dir.is_dir():
    raise UserError(f'{raw_dir}: no such folder (--raw_dir)')
  return raw_dir


def target(corpus: Corpus) -> Callable[[str], str]:
  """The map from a translation to the text that the model learns to write: itself.

  Raises UserError if a setting for trees is used.
  """
  for key, plain in TREE_SETTINGS.items():
    if getattr(corpus, key) != plain:
      raise UserError(f'--config.data.{key}={not plain}: only trees have such lines')
  return lambda line: line


def _named(stem: str, corpus: Corpus, raw_dir: pathlib.Path) -> Source:
  """The source that a config calls `stem`."""
  if stem.startswith(SACREBLEU):
    return text.sacrebleu_source(stem, corpus.languages)
  return text.file_source(raw_dir, stem + corpus.suffix, corpus.languages)


# Dev and test that are drawn from training


def draw(
  train: Sequence[Source], counts: Mapping[str, int], limits: Cleaning, seed: int
) -> Splits:
  """Draws dev or test from training, which loses all pairs with the same source.

  A pair is drawn by a hash of its source and the seed: the same text gives the same
  pairs, whatever order it is in. Training is read when the first pair is asked for.

  Args:
    train: the training text.
    counts: how many pairs to draw for each split.
    limits: only pairs within them are drawn.
  """
  choose = functools.cache(lambda: _choose_pairs(train, counts, limits, seed))
  splits, first = {}, 0
  for split, count in counts.items():
    name = f'{count} pairs drawn from training, seed {seed}'
    pairs = functools.partial(_cut, choose, first, first + count)
    splits[split] = [Source(name, (), pairs)]
    first += count
  rest = lambda source: functools.partial(_without_drawn, source, choose)
  splits['train'] = [source._replace(pairs=rest(source)) for source in train]
  return splits


def _cut(choose: Callable[[], list[Pair]], first: int, last: int) -> Iterator[Pair]:
  yield from choose()[first:last]


def _without_drawn(source: Source, choose: Callable[[], list[Pair]]) -> Iterator[Pair]:
  """Yields the pairs of a source but for those whose source sentence was drawn."""
  drawn, left_out = {sentence.strip() for sentence, _ in choose()}, 0
  for pair in source.pairs():
    if pair[0] is not None and pair[0].strip() in drawn:
      left_out += 1
    else:
      yield pair
  print(
    f'{source.name}: {left_out:,} pairs are left out of training, as their sources '
    'were drawn',
    file=sys.stderr,
  )


def _choose_pairs(
  train: Sequence[Source], counts: Mapping[str, int], limits: Cleaning, seed: int
) -> list[Pair]:
  """The good pairs of the smallest hashes, one of each source, ordered by hash."""
  total = sum(counts.values())
  told = ' and '.join(f'{count:,} for {split}' for split, count in counts.items())
  print(f'drawing {told} from training, seed {seed}', file=sys.stderr)
  chosen: dict[bytes, Pair] = {}
  largest: list[int] = []  # a heap of the negated hashes of `chosen`
  number = lambda key: -int.from_bytes(key)
  faults: Counter[str] = Counter()
  for source in train:
    read, before = 0, faults.copy()
    for pair in tqdm(source.pairs(), desc='drawing', unit=' pairs', unit_scale=True):
      read += 1
      if (fault := cleaning.fault(pair, limits)) is not None:
        faults[fault] += 1
        continue
      key = hashlib.sha256(f'{seed}\t{pair[0].strip()}'.encode()).digest()
      if key in chosen:
        chosen[key] = min(chosen[key], pair)
      elif len(chosen) < total:
        chosen[key] = pair
        heapq.heappush(largest, number(key))
      elif number(key) > largest[0]:
        last = -heapq.heapreplace(largest, number(key))
        del chosen[last.to_bytes(len(key))]
        chosen[key] = pair
    cleaning.check_is_text(source.name, read, faults - before)
  if len(chosen) < total:
    without = f' (left out: {cleaning.describe_faults(faults)})' if faults else ''
    fewer = ', or draw fewer (--config.data.files.dev="(\'drawn:9\',)")'
    raise UserError(
      f'training has {len(chosen)} good pairs of different sources{without}, and '
      f'{told} are to be drawn: give files for dev and test'
      f'{fewer if len(chosen) > 2 * len(counts) else ""}'
    )
  return [chosen[key] for key in sorted(chosen)]


# A user's own folder


class OwnFiles(NamedTuple):
  """What a user's folder of parallel text holds: train.de, train.en ..."""

  folder: pathlib.Path  # absolute
  languages: tuple[str, str]  # of source and target
  pairs: int  # lines of train
  files: dict[str, tuple[str, ...]]  # the stems of each split, as a config has them

  @property
  def name(self) -> str:
    """A corpus's name: of the folder, its path and the languages."""
    path = hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]
    return f'my.{self.folder.name}.{path}.{"-".join(self.languages)}'

  def count_characters(self) -> int:
    """How many different characters train has; each file is held in memory."""
    characters: set[str] = set()
    for language in self.languages:
      path = text.find_file(self.folder, f'train.{language}')
      characters |= {*b''.join(text.read_blocks(path)).decode(errors='replace')}
    return len(characters)


def own_files(argument: str) -> OwnFiles:
  """The folder and the languages of 'SOURCE-TARGET,DIR'.

  Dev and test are drawn from train where there is none of their files.

  Raises:
    UserError: the argument is not of that form, a language's code is unknown, both are
      the same, DIR or train is not there, train is damaged, or dev has the name that
      another program gives it.
  """
  pair, _, name = argument.partition(',')
  languages = tuple(pair.split('-'))
  if len(languages) != 2 or not name:
    raise UserError(
      f'my.py:{argument}: SOURCE-TARGET,DIR, such as my.py:de-en,texts; a region is '
      'written with _, as in my.py:zh_Hant-en,texts'
    )
  for language in languages:
    try:
      cleaning.check_code(language)
    except UserError as error:
      usual = f' (my.py:{pair.lower()},DIR)' if pair != pair.lower() else ''
      raise UserError(f'my.py:{argument}: {error}{usual}') from error
  if len({*languages}) == 1:
    raise UserError(f'my.py:{argument}: two different languages, such as de-en')
  folder = pathlib.Path(os.path.expanduser(name)).resolve()
  if not folder.is_dir():
    raise UserError(f'my.py:{argument}: {folder} is no folder')
  for language in languages:
    if not text.existing(folder, f'train.{language}'):
      raise UserError(
        f'{folder} has no train.{language}, a sentence a line, plain or packed '
        f'({" ".join(text.PACKED)})'
      )
  has = lambda stem: [s for s in languages if text.existing(folder, f'{stem}.{s}')]
  others = [] if has('dev') else [name for name in OTHER_NAMES if has(name)]
  if others:
    raise UserError(
      f'{folder} has {others[0]}.* and no dev.*: call them dev.*. (A run that has '
      'steps goes on by train --workdir=RUN alone)'
    )
  pairs = _count_lines(text.find_file(folder, f'train.{languages[0]}'))
  files = {'train': ('train',)}
  for split in ('dev', 'test'):
    sides = has(split)
    if len(sides) == 1:
      (lacks,) = {*languages} - {*sides}
      raise UserError(
        f'{folder} has {split}.{sides[0]} and no {split}.{lacks}: add that, or rename '
        f'{split}.{sides[0]}; without both, {split} is drawn from train'
      )
    count = max(1, min(MOST_DRAWN, pairs // 10))
    files[split] = (split,) if sides else (f'{DRAWN}{count}',)
  return OwnFiles(folder, languages, pairs, files)


@functools.cache
def _count_lines(path: pathlib.Path) -> int:
  """How many lines a file has, the last of which may lack its end."""
  count, last = 0, b'\n'
  for block in text.read_blocks(path):
    count, last = count + block.count(b'\n'), block[-1:]
  return count + (last != b'\n')
