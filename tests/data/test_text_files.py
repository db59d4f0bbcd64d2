"""Files of text: as they are or compressed, in order, damaged or unequal: refused."""

import base64
import bz2
import gzip
import hashlib
import lzma
import os
import pathlib
import re
import tracemalloc
from collections.abc import Callable

import pyarrow
import pytest

import toy.corpus
from transformer_jax.data import text_files
from transformer_jax.data.lines import SIDES, Pair, Unequal
from transformer_jax.machine.errors import UserError

# Six lines by the command `zstd`, which adds a checksum as pyarrow does not.
ZSTD = base64.b64decode(
  'KLUv/SSKZQEA4GxpbmUgMSBlaW4ga3VyemVyIFNhdHoKMjM0NTYGAGAWoBxQGFAE6K3XbAJ4XrS0'
)
SIX_LINES = b''.join(b'line %d ein kurzer Satz\n' % n for n in range(1, 7))


def as_is(content: bytes) -> bytes:
  return content


def zstd(content: bytes) -> bytes:
  sink = pyarrow.BufferOutputStream()
  with pyarrow.CompressedOutputStream(sink, 'zstd') as stream:
    stream.write(content)
  return sink.getvalue().to_pybytes()


ENDS: dict[str, Callable[[bytes], bytes]] = {
  '': as_is,
  '.gz': lambda content: gzip.compress(content, 1),
  '.zst': zstd,
  '.xz': lzma.compress,
  '.bz2': bz2.compress,
}


def bitext(folder: pathlib.Path, stem: str = 'x') -> text_files.FileBitext:
  return text_files.bitext(folder, stem, 'en', 'de')


def read(folder: pathlib.Path, *stems: str) -> list[Pair]:
  return [pair for stem in stems or ['x'] for pair in bitext(folder, stem).pairs()]


# What comes out


@pytest.mark.parametrize(
  'ends', [('', '.gz'), ('.gz', '.zst'), ('.zst', ''), ('.xz', '.bz2')]
)
def test_compressed_files_are_read_as_they_are(ends, tmp_path: pathlib.Path):
  sides = [b'\n'.join(side) + b'\n' for side in toy.corpus.number_lines(9000)]
  toy.corpus.write(tmp_path, 'x', *sides)
  plain = read(tmp_path)
  assert plain == list(zip(*(s.decode().split('\n')[:-1] for s in sides), strict=True))
  names = [
    f'x.{language}{end}' for language, end in zip(('en', 'de'), ends, strict=True)
  ]
  for path in tmp_path.iterdir():
    path.unlink()
  for name, end, content in zip(names, ends, sides, strict=True):
    (tmp_path / name).write_bytes(ENDS[end](content))
  assert read(tmp_path) == plain
  found = bitext(tmp_path)
  assert found.name == f'{names[0]} and {names[1]}'
  for _ in range(2):
    assert list(found.pairs()) == plain
  assert found.origin() == {
    side: {
      'file': name,
      'sha256': hashlib.sha256((tmp_path / name).read_bytes()).hexdigest(),
      'lines': 9000,
    }
    for side, name in zip(SIDES, names, strict=True)
  }


@pytest.mark.parametrize('end', ['.gz', '.zst', '.xz', '.bz2'])
def test_compressed_in_pieces(end: str, tmp_path: pathlib.Path):
  """As pigz, pzstd, pixz and pbzip2 do, and `cat a.gz b.gz`."""
  toy.corpus.write(tmp_path, 'x', b'a\nb\nc\n', b'')
  (tmp_path / 'x.de').unlink()
  pad = bytes(8) if end in ('.xz', '.bz2') else b''  # such as these may have
  pieces = ENDS[end](b'1\n2') + pad + ENDS[end](b'\n3') + pad
  (tmp_path / f'x.de{end}').write_bytes(pieces)
  assert read(tmp_path) == [('a', '1'), ('b', '2'), ('c', '3')]


def test_several_stems_in_their_order(tmp_path: pathlib.Path):
  """In either direction."""
  for stem in 'abc':
    lines = f'{stem}1\n{stem}2'.encode()  # no line end at the end: still two files
    toy.corpus.write(tmp_path, stem, lines, lines.upper())
  pairs = [(text, text.upper()) for text in 'c1 c2 a1 a2 b1 b2'.split()]
  assert read(tmp_path, 'c', 'a', 'b') == pairs
  found = text_files.bitext(tmp_path, 'c', 'de', 'en')
  assert list(found.pairs()) == [('C1', 'c1'), ('C2', 'c2')]
  assert found.origin()['source']['file'] == 'c.de'


def test_stamp_changes_with_either_file(tmp_path: pathlib.Path):
  toy.corpus.write(tmp_path, 'x', b'one\n', b'eins\n')
  stamps = [bitext(tmp_path).stamp()]
  assert stamps[0] == bitext(tmp_path).stamp()
  for language in ('en', 'de'):
    path = tmp_path / f'x.{language}'
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    stamps.append(bitext(tmp_path).stamp())
  assert stamps[0] != stamps[1] != stamps[2]


def test_a_reader_that_stops_early(tmp_path: pathlib.Path):
  toy.corpus.write(tmp_path, 'x', b'one\n' * 9, b'eins\n' * 9)
  found = bitext(tmp_path)
  for stop_after in range(3):
    pairs = found.pairs()
    for _ in range(stop_after):
      next(pairs)
    pairs.close()
  assert found.origin() == {}
  assert len(list(found.pairs())) == 9 and found.origin()


# Files that do not do


def test_missing_file(tmp_path: pathlib.Path):
  toy.corpus.write(tmp_path, 'x', b'a\n', b'b\n')
  (tmp_path / 'x.de').unlink()
  message = r'x\.de: no such file, nor x\.de\.gz, x\.de\.zst.*, .*bz2; --raw_dir names'
  with pytest.raises(UserError, match=message):
    bitext(tmp_path)
  (tmp_path / 'x.de').mkdir()
  with pytest.raises(UserError, match=message):
    bitext(tmp_path)


@pytest.mark.parametrize('ends', [('', '.gz'), ('.gz', '.zst'), ('', '.gz', '.zst')])
def test_the_same_file_twice(ends, tmp_path: pathlib.Path):
  toy.corpus.write(tmp_path, 'x', b'a\n', b'b\n')
  (tmp_path / 'x.en').unlink()
  for end in ends:
    (tmp_path / f'x.en{end}').write_bytes(ENDS[end](b'a\n'))
  names = ' and '.join(f'x.en{end}' for end in ends)
  with pytest.raises(UserError, match=f'{tmp_path} has {names}: keep one of them'):
    bitext(tmp_path)


def damaged(folder: pathlib.Path, end: str, content: bytes) -> bool:
  """Whether a file is refused, for the right reason."""
  (folder / 'x.en').write_bytes(b'a\n' * 6)
  (folder / f'x.de{end}').write_bytes(content)
  try:
    pairs = read(folder)
  except UserError as error:
    message = rf'x\.de{end}: truncated.*; get it again$'
    assert re.search(message, str(error), re.DOTALL)
    return True
  assert pairs == [('a', f'line {n} ein kurzer Satz') for n in range(1, 7)]
  return False


@pytest.mark.parametrize(
  ('end', 'whole'),
  [(end, ZSTD if end == '.zst' else ENDS[end](SIX_LINES)) for end in [*ENDS][1:]],
  ids=[*ENDS][1:],
)
def test_damaged_files_are_named(end: str, whole: bytes, tmp_path: pathlib.Path):
  """Or one gets from them what stood in them: a few bits do not matter."""
  assert not damaged(tmp_path, end, whole)
  for size in range(len(whole)):
    assert damaged(tmp_path, end, whole[:size])
  missed = 0
  for n, byte in enumerate(whole):
    flipped = whole[:n] + bytes([byte ^ 64]) + whole[n + 1 :]
    missed += not damaged(tmp_path, end, flipped)
  assert missed < 10  # in gzip's header: flags and times
  assert damaged(tmp_path, end, whole + b'more')
  # A second stream of which the first bytes are lost.
  assert damaged(tmp_path, end, whole + ENDS[end](SIX_LINES)[4:])
  assert damaged(tmp_path, end, b'text\n' * 6)
  large = ENDS[end](os.urandom(300_000).hex('\n', 20).encode())
  assert damaged(tmp_path, end, large[: len(large) // 2])  # pairs came out by then


@pytest.mark.parametrize('end', ENDS)
def test_a_line_of_200_megabytes(end: str, tmp_path: pathlib.Path):
  """A sparse file, a bomb or a line that has lost its ends: not held in memory."""
  toy.corpus.write(tmp_path, 'x', b'a\n' * 3, b'')
  (tmp_path / 'x.de').unlink()
  path = tmp_path / f'x.de{end}'
  if end:
    many = 20 if end == '.gz' else 200
    path.write_bytes(ENDS[end](b'b\nb\n') + ENDS[end](bytes(1_000_000)) * many)
  else:
    path.write_bytes(b'b\nb\n')
    os.truncate(path, 200_000_000)
  tracemalloc.start()
  try:
    with pytest.raises(UserError, match=rf'x\.de{end}, line 3: over 1,000,000 bytes'):
      read(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 15_000_000
  finally:
    tracemalloc.stop()


@pytest.mark.parametrize('language', ['en', 'de'])
@pytest.mark.parametrize('more', [b'more\n', b'\n'])
def test_a_file_that_grows_while_it_is_read(language, more, tmp_path: pathlib.Path):
  """Even if the two sides do not pair up for it: that it grows comes first."""
  toy.corpus.write(tmp_path, 'x', b'one\n' * 99, b'eins\n' * 99)
  pairs = bitext(tmp_path).pairs()
  next(pairs)
  path = tmp_path / f'x.{language}'
  with path.open('ab') as file:
    file.write(more)
  with pytest.raises(UserError, match=f'{path}: it changed while it was read; wait'):
    for _ in pairs:
      pass


@pytest.mark.parametrize(
  'sides', [([b'a'], [b'a', b'b']), ([], [b'a']), ([b'a'] * 9, [])]
)
@pytest.mark.parametrize('end', ENDS)
def test_unequal_line_counts(sides, end: str, tmp_path: pathlib.Path):
  """Both counts, and a line where to look."""
  for language, side in zip(('en', 'de'), sides, strict=True):
    content = ENDS[end](b''.join(line + b'\n' for line in side))
    (tmp_path / f'x.{language}{end}').write_bytes(content)
  with pytest.raises(Unequal, match='they must pair up') as caught:
    read(tmp_path)
  message = str(caught.value)
  for language, side in zip(('en', 'de'), sides, strict=True):
    assert re.search(rf'x\.{language}{end} has {len(side)}\b', message)
  line = int(re.search(r'First suspicious line: (\d+)$', message)[1])
  assert 1 <= line <= max(map(len, sides))


def test_the_place_is_not_sought_in_very_long_files(tmp_path, monkeypatch):
  toy.corpus.write(tmp_path, 'x', b'a\n' * 8, b'a\n' * 7)
  for most, told in ((8, True), (7, False)):
    monkeypatch.setattr(text_files, 'MAX_SEARCHED', most)
    with pytest.raises(Unequal) as caught:
      read(tmp_path)
    assert ('First suspicious line' in str(caught.value)) == told
