"""Tables give their rows in order, or are refused by name; memory stays flat."""

import hashlib
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer_jax.data import parquet
from transformer_jax.data.lines import Pair
from transformer_jax.machine.errors import UserError

Rows = list[dict[str, str | None] | None]


def rows(what: str, count: int = 10) -> Rows:
  return [{'de': f'{what} {n} dü', 'en': f'{what} {n} en'} for n in range(count)]


def pairs_of(given: Rows) -> list[Pair]:
  return [(row['en'], row['de']) if row else (None, None) for row in given]


def table(given: Rows) -> pa.Table:
  kind = pa.struct([('de', pa.string()), ('en', pa.string())])
  return pa.table({'translation': pa.array(given, kind)})


def write(path: pathlib.Path, given: Rows | pa.Table, **how: object) -> None:
  path.parent.mkdir(exist_ok=True)
  pq.write_table(given if isinstance(given, pa.Table) else table(given), path, **how)


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  """As Hugging Face has wmt14: a folder for the languages, train in three files."""
  for number in range(3):
    write(
      tmp_path / 'de-en' / f'train-0000{number}-of-00003.parquet', rows(str(number))
    )
  for split in ('validation', 'test'):
    write(tmp_path / 'de-en' / f'{split}-00000-of-00001.parquet', rows(split))
  return tmp_path


def only(raw: pathlib.Path) -> pathlib.Path:
  return raw / 'de-en' / 'test-00000-of-00001.parquet'


def read(raw: pathlib.Path) -> list[Pair]:
  """The test split."""
  [bitext] = parquet.bitexts(raw, 'en', 'de')['test']
  return list(bitext.pairs())


# What comes out


def test_carriage_returns_are_removed_and_counted(tmp_path: pathlib.Path):
  given = [{'en': 'a\r', 'de': 'b'}, None, {'en': '\r', 'de': 'c'}]
  for split in ('train', 'validation', 'test'):
    write(tmp_path / f'{split}-00000-of-00001.parquet', given)
  [bitext] = parquet.bitexts(tmp_path, 'en', 'de')['test']
  assert [*bitext.pairs()] == [('a', 'b'), (None, None), ('', 'c')]
  assert bitext.origin()['source']['carriage_returns_taken_off'] == 2
  assert 'carriage_returns_taken_off' not in bitext.origin()['target']


def test_all_splits_in_order(raw: pathlib.Path):
  found = parquet.bitexts(raw, 'en', 'de')
  assert {
    split: [bitext.name for bitext in bitexts] for split, bitexts in found.items()
  } == {
    'train': [f'train-0000{n}-of-00003.parquet' for n in range(3)],
    'dev': ['validation-00000-of-00001.parquet'],
    'test': ['test-00000-of-00001.parquet'],
  }
  names = {'train': '012', 'dev': ['validation'], 'test': ['test']}
  for split, bitexts in found.items():
    for bitext, name in zip(bitexts, names[split], strict=True):
      for _ in range(2):
        assert list(bitext.pairs()) == pairs_of(rows(name))
      content = (raw / 'de-en' / bitext.name).read_bytes()
      about = {
        'file': bitext.name,
        'sha256': hashlib.sha256(content).hexdigest(),
        'lines': 10,
      }
      assert bitext.origin() == {
        'source': {**about, 'field': 'en'},
        'target': {**about, 'field': 'de'},
      }


def test_the_other_direction(raw: pathlib.Path):
  [bitext] = parquet.bitexts(raw, 'de', 'en')['test']
  assert list(bitext.pairs()) == [pair[::-1] for pair in read(raw)]
  assert bitext.stamp() != parquet.bitexts(raw, 'en', 'de')['test'][0].stamp()


def test_files_in_the_folder_itself(raw: pathlib.Path):
  """And with a sum in their names, as older uploads have."""
  for path in (raw / 'de-en').iterdir():
    path.rename(raw / path.name.replace('.parquet', '-0f3aa.parquet'))
  (raw / 'de-en').rmdir()
  assert read(raw) == pairs_of(rows('test'))


def test_rows_that_are_no_pair(raw: pathlib.Path):
  given: Rows = [
    None,
    {'de': None, 'en': 'a'},
    {'de': 'b', 'en': None},
    {'de': 'd\r', 'en': ' c\r\n\x85 '},
  ]
  write(only(raw), given)
  assert read(raw) == [(None, None), ('a', None), (None, 'b'), (' c\r\n\x85 ', 'd')]


def test_text_that_is_not_utf8(raw: pathlib.Path):
  given = pa.array([b'a', b'b\xff', 'ü'.encode(), None], pa.binary())
  sides = [given.view(pa.string()), pa.array(list('wxyz'))]
  made = pa.StructArray.from_arrays(sides, names=['de', 'en'])
  write(only(raw), pa.table({'translation': made}))
  assert read(raw) == [('w', 'a'), ('x', None), ('y', 'ü'), ('z', None)]


@pytest.mark.parametrize('count', [0, 1, 4095, 4096, 4097, 9999])
@pytest.mark.parametrize('group', [1000, 5000, 10**6])
def test_any_number_of_rows(count: int, group: int, raw: pathlib.Path):
  write(only(raw), rows('n', count), row_group_size=group)
  assert read(raw) == pairs_of(rows('n', count))


@pytest.mark.parametrize('compression', ['none', 'snappy', 'gzip', 'zstd'])
@pytest.mark.parametrize('kind', [pa.string(), pa.large_string()])
def test_kinds_of_files(compression: str, kind: pa.DataType, raw: pathlib.Path):
  """Other columns and languages are left alone, large strings are read too."""
  fields = [(language, kind) for language in ('cs', 'en', 'xx', 'de')]
  given = [{**row, 'cs': 'c'} for row in rows('n')]
  columns = {'id': range(10), 'translation': pa.array(given, pa.struct(fields))}
  write(only(raw), pa.table(columns), compression=compression)
  assert read(raw) == pairs_of(rows('n'))


def test_memory_stays_flat(raw: pathlib.Path):
  """Of 40 MB in one row group, a few are held at a time."""
  rng = random.Random(0)
  line = lambda: rng.randbytes(200).hex()
  given = [{'de': line(), 'en': line()} for _ in range(50_000)]
  write(only(raw), given, row_group_size=10**6, compression='none')
  assert only(raw).stat().st_size > 38_000_000
  [bitext] = parquet.bitexts(raw, 'en', 'de')['test']
  before, most = pa.total_allocated_bytes(), 0
  for _ in bitext.pairs():
    most = max(most, pa.total_allocated_bytes() - before)
  assert most < 12_000_000


# Files that do not do


def test_no_files(tmp_path: pathlib.Path):
  (tmp_path / 'something.parquet').write_bytes(b'')
  with pytest.raises(UserError, match='train-00000-of.*, nor has en-de in it'):
    parquet.bitexts(tmp_path, 'en', 'de')


@pytest.mark.parametrize(
  'name', ['train-00001-of-00003', 'validation-00000-of-00001', 'test-00000-of-00001']
)
def test_missing_files_are_named(name: str, raw: pathlib.Path):
  (raw / 'de-en' / f'{name}.parquet').unlink()
  with pytest.raises(UserError, match=f'de-en lacks {name} '):
    parquet.bitexts(raw, 'en', 'de')


def test_many_missing_files(raw: pathlib.Path):
  for number in (1, 2):
    (raw / 'de-en' / f'train-0000{number}-of-00003.parquet').unlink()
  first = raw / 'de-en' / 'train-00000-of-00003.parquet'
  first.rename(first.with_name('train-00000-of-00030.parquet'))
  with pytest.raises(UserError, match='train-00005-of-00030 and 24 more'):
    parquet.bitexts(raw, 'en', 'de')


@pytest.mark.parametrize(
  'name', ['train-00003-of-00004', 'train-00001-of-00003-ab', 'train-00003-of-00003']
)
def test_files_of_two_sets(name: str, raw: pathlib.Path):
  write(raw / 'de-en' / f'{name}.parquet', rows('more'))
  with pytest.raises(UserError, match='does not go with the others'):
    parquet.bitexts(raw, 'en', 'de')


@pytest.mark.parametrize(
  'given, message',
  [
    (pa.table({'text': ['a']}), "no column 'translation', but text"),
    (pa.table({'translation': ['a']}), "has no text in 'en': it is string"),
    (
      pa.table({'translation': [{'cs': 'a', 'en': 'b'}]}),
      "no text in 'de'.*cs: string",
    ),
    (pa.table({'translation': [{'de': 1, 'en': 'b'}]}), "no text in 'de'.*de: int64"),
    (pa.table({'translation': [[{'de': 'a', 'en': 'b'}]]}), "no text in 'en'.*list"),
  ],
)
def test_wrong_columns(given: pa.Table, message: str, raw: pathlib.Path):
  write(only(raw), given)
  with pytest.raises(UserError, match=f'test-00000-of-00001.parquet: .*{message}'):
    read(raw)


def refused(raw: pathlib.Path) -> None:
  with pytest.raises(UserError, match='truncated, damaged or no Parquet') as error:
    read(raw)
  assert str(only(raw)) in str(error.value)


def test_truncated(raw: pathlib.Path):
  write(only(raw), rows('n', 1000), row_group_size=100)
  content = only(raw).read_bytes()
  for sixteenths in range(16):
    for cut in (len(content) * sixteenths // 16, len(content) - 1 - sixteenths):
      only(raw).write_bytes(content[:cut])
      refused(raw)


@pytest.mark.parametrize(
  'content',
  [
    b'<!DOCTYPE html>',
    b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 280000000\n',
    b'PAR1' * 999,
  ],
)
def test_other_files(content: bytes, raw: pathlib.Path):
  only(raw).write_bytes(content)
  refused(raw)


@pytest.mark.parametrize('seed', range(4))
def test_altered(seed: int, raw: pathlib.Path):
  """A flipped bit is found where the file has checksums of its pages."""
  rng = random.Random(seed)
  write(only(raw), rows('n', 300), write_page_checksum=True, row_group_size=100)
  content = only(raw).read_bytes()
  found = 0
  for _ in range(50):
    altered = bytearray(content)
    altered[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    only(raw).write_bytes(altered)
    try:
      assert read(raw) == pairs_of(rows('n', 300))
    except UserError as error:
      found += 1
      assert str(only(raw)) in str(error)
  assert found > 25


def test_row_without_end(raw: pathlib.Path):
  given = rows('n', 5000)
  given[4500]['en'] = 'a' * 1_000_000
  write(only(raw), given)
  assert read(raw) == pairs_of(given)
  given[4600]['en'] = 'a' * 20_000_000
  write(only(raw), given)
  with pytest.raises(UserError, match='parquet, row 4601: over 1,000,000 bytes'):
    read(raw)


def test_file_that_changes_while_it_is_read(raw: pathlib.Path):
  [bitext] = parquet.bitexts(raw, 'en', 'de')['test']
  pairs = bitext.pairs()
  next(pairs)
  write(only(raw), rows('other', 11))
  with pytest.raises(UserError, match='changed while it was read|truncated, damaged'):
    list(pairs)
  assert list(bitext.pairs()) == pairs_of(rows('other', 11))
  only(raw).unlink()
  with pytest.raises(UserError, match='test-00000-of-00001.parquet: no such'):
    next(bitext.pairs())


def test_names_are_never_those_of_a_network(raw: pathlib.Path, monkeypatch):
  """A folder that is called as a protocol is a folder."""
  monkeypatch.chdir(raw)
  (raw / 'de-en').rename('s3:')
  assert read(pathlib.Path('s3:')) == pairs_of(rows('test'))
