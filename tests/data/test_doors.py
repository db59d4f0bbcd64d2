"""The same pairs make the same folder, whichever reader they come from.

The vocabulary is learnt from a sample, which has to be the same one through each.
"""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import tarfile
import zipfile
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tensorflow_datasets.translate import wmt14

from toy.corpus import CORPUS, number_lines
from transformer_jax.data import (
  card,
  downloads,
  newstest,
  origin,
  preparing,
  readers,
  token_files,
  wmt14_tfds,
)
from transformer_jax.tasks import TRANSLATION

LANGUAGES = 'en', 'de'
FILES = {'train': ('train',), 'dev': ('newstest2013',), 'test': ('newstest2014',)}
WMT14 = CORPUS._replace(reader='wmt14', files=FILES, vocabulary_pairs=150)
HUGGING_FACE = {'train': 'train', 'dev': 'validation', 'test': 'test'}
Lines = tuple[list[bytes], list[bytes]]
# Equal pairs are among them.
SPLITS: dict[str, Lines] = {
  split: number_lines(count, seed)
  for seed, (split, count) in enumerate((('train', 900), ('dev', 9), ('test', 9)))
}


def joined(lines: Sequence[bytes]) -> bytes:
  return b''.join(line + b'\n' for line in lines)


def write_files(
  folder: pathlib.Path, end: str = '', pack: Callable[[bytes], bytes] = bytes
) -> None:
  for split, sides in SPLITS.items():
    for language, lines in zip(LANGUAGES, sides, strict=True):
      path = folder / f'{FILES[split][0]}.{language}{end}'
      path.write_bytes(pack(joined(lines)))


def zstd(content: bytes) -> bytes:
  return pa.compress(content, codec='zstd', asbytes=True)


def write_zips(folder: pathlib.Path) -> None:
  for split, sides in SPLITS.items():
    with zipfile.ZipFile(folder / f'{FILES[split][0]}.zip', 'w') as made:
      for language, lines in zip(LANGUAGES, sides, strict=True):
        made.writestr(f'Corpus.en-de.{language}', joined(lines))


def write_parquet(folder: pathlib.Path) -> None:
  for split, sides in SPLITS.items():
    rows = [{'de': b.decode(), 'en': a.decode()} for a, b in zip(*sides, strict=True)]
    half = len(rows) // 2
    for number, some in enumerate((rows[:half], rows[half:])):
      name = f'{HUGGING_FACE[split]}-0000{number}-of-00002.parquet'
      pq.write_table(pa.table({'translation': some}), folder / name)


def write_archives(folder: pathlib.Path) -> None:
  """Train in three, dev and test in one, of which the test set is SGML."""
  train = 'training/europarl-v7', 'commoncrawl', 'training/news-commentary-v9'
  names = 'europarl-v7', 'commoncrawl', 'nc-v9'
  for n, (member, name) in enumerate(zip(train, names, strict=True)):
    cut = slice(n * 300, (n + 1) * 300)
    sides = (joined(side[cut]) for side in SPLITS['train'])
    path = folder / f'training-parallel-{name}.tgz'
    write_archive(path, *(f'{member}.de-en.{lang}' for lang in LANGUAGES), *sides)
  test = (
    b'<doc docid="x">\n'
    + b''.join(b'<seg id="%d">%s</seg>\n' % x for x in enumerate(side, 1))
    + b'</doc>\n'
    for side in SPLITS['test']
  )
  members = [f'dev/newstest2013.{language}' for language in LANGUAGES]
  members += ['dev/newstest2014-deen-src.en.sgm', 'dev/newstest2014-deen-ref.de.sgm']
  write_archive(folder / 'dev.tgz', *members, *map(joined, SPLITS['dev']), *test)


def write_archive(path: pathlib.Path, *names_then_contents: str | bytes) -> None:
  half = len(names_then_contents) // 2
  with tarfile.open(path, 'w:gz') as tar:
    for name, content in zip(
      names_then_contents[:half], names_then_contents[half:], strict=True
    ):
      info = tarfile.TarInfo(name)
      info.size = len(content)
      tar.addfile(info, io.BytesIO(content))


DOORS = {
  'plain': write_files,
  'gz': lambda folder: write_files(folder, '.gz', gzip.compress),
  'zst': lambda folder: write_files(folder, '.zst', zstd),
  'xz': lambda folder: write_files(folder, '.xz', lzma.compress),
  'bz2': lambda folder: write_files(folder, '.bz2', bz2.compress),
  'zip': write_zips,
  'Parquet': write_parquet,
  'archives': write_archives,
}


@pytest.fixture(autouse=True)
def published(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
  """Dev and test are newstest2013 and newstest2014."""
  monkeypatch.setattr(newstest, 'ORDERS', tmp_path)
  for split, name in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    pairs = [(a.decode(), b.decode()) for a, b in zip(*SPLITS[split], strict=True)]
    newstest.write_order(name, pairs, LANGUAGES)


def made(folder: pathlib.Path, raw_dir: pathlib.Path | None) -> pathlib.Path:
  splits = readers.bitexts(WMT14, raw_dir, folder / 'tfds')
  preparing.prepare_corpus(WMT14, TRANSLATION, splits, folder / 'data')
  return folder / 'data' / 'toy'


@pytest.fixture
def plain(tmp_path: pathlib.Path) -> pathlib.Path:
  """The folder that plain files make."""
  (tmp_path / 'plain').mkdir()
  write_files(tmp_path / 'plain')
  return made(tmp_path / 'plain', tmp_path / 'plain')


@pytest.mark.parametrize('door', DOORS)
def test_the_same_folder(door: str, plain: pathlib.Path, tmp_path: pathlib.Path):
  """To the byte, but for the card, which tells where it came from."""
  (tmp_path / 'raw').mkdir()
  DOORS[door](tmp_path / 'raw')
  folder = made(tmp_path, tmp_path / 'raw')
  assert card.read_card(plain)['vocabulary']['sentences'] == 300
  assert card.read_card(folder)['sha256'] == card.read_card(plain)['sha256']
  assert card.read_card(folder)['identity'] == card.read_card(plain)['identity']
  # What was only copied or touched is the same.
  for path in (tmp_path / 'raw').iterdir():
    os.utime(path, ns=(0, 1))
  given = readers.bitexts(WMT14, tmp_path / 'raw', None)
  origin.check_same(card.read_card(folder), given)


def test_tfds_differs_in_the_order_of_training_alone(
  plain: pathlib.Path, tmp_path: pathlib.Path, monkeypatch
):
  """It shuffles: the same vocabulary, dev and test, and the same training pairs."""
  rows = {
    HUGGING_FACE[split]: [
      (n, {'en': a.decode(), 'de': b.decode()})
      for n, (a, b) in enumerate(zip(*sides, strict=True))
    ]
    for split, sides in SPLITS.items()
  }
  monkeypatch.setattr(wmt14.Wmt14Translate, '_split_generators', lambda *_: rows)
  counts = {split: len(sides[0]) for split, sides in SPLITS.items()}
  monkeypatch.setitem(wmt14_tfds.COUNTS, 'de-en', counts)
  monkeypatch.setattr(downloads, 'unanswered', lambda _: {})
  folder = made(tmp_path, None)
  sums, others = (card.read_card(x)['sha256'] for x in (folder, plain))
  differing = {name for name, digest in sums.items() if others[name] != digest}
  ends = 'tokens', 'offsets'
  assert differing == {f'train.{s}.{end}' for s in ('source', 'target') for end in ends}
  assert sorted(train(folder)) == sorted(train(plain)) and train(folder) != train(plain)


def train(folder: pathlib.Path) -> list[tuple]:
  rows = []
  for side in token_files.read_split(folder, 'train'):
    starts, ends = side.offsets[:-1], side.ends
    rows.append([(*side.tokens[a:b],) for a, b in zip(starts, ends, strict=True)])
  return list(zip(*rows, strict=True))
