"""Lines come out as they are, whatever stands in them; changing files are noticed."""

import gzip
import io
import os
import pathlib
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.data.lines import (
  MAX_LINE_BYTES,
  Lines,
  Unequal,
  file_stamp,
  paired,
  unchanged,
)
from transformer_jax.machine.errors import UserError


class Drops(io.RawIOBase):
  """A stream that gives fewer bytes than it is asked for, as network and gzip may."""

  def __init__(self, content: bytes, most: int):
    self._content, self._most = io.BytesIO(content), most

  def read(self, size: int = -1) -> bytes:
    return self._content.read(min(size, self._most))


def lines(content: bytes, most: int = 2**30) -> Lines:
  return Lines(Drops(content, most), 'FILE')


def decoded(line: bytes) -> str | None:
  try:
    return line.decode()
  except UnicodeDecodeError:
    return None


# Lines

BYTES = st.lists(
  st.sampled_from(
    [b'\n', b'\r', b'\r\n', b'a', b'\xef\xbb\xbf', b'\xc3', b'\xa9', b'\x00', b'\xff']
    + ['\u2028'.encode(), '\x85'.encode(), b'\x0b', b'\x0c', b'\x1c', b' ']
  ),
  max_size=12,
).map(b''.join)


@settings(max_examples=300)
@given(BYTES, st.integers(1, 5))
def test_lines_are_what_stands_between_line_feeds(content: bytes, most: int):
  """And at nothing else; a byte order mark is one only at the start."""
  expected = content.split(b'\n')
  if not expected[-1]:
    expected.pop()
  if marked := bool(expected) and expected[0].startswith(b'\xef\xbb\xbf'):
    expected[0] = expected[0][3:]
  ends = sum(line.endswith(b'\r') for line in expected)
  read = lines(content, most)
  assert list(read) == [decoded(line.removesuffix(b'\r')) for line in expected]
  about = {'lines': len(expected)}
  about |= {'byte_order_mark': True} if marked else {}
  about |= {'carriage_returns_taken_off': ends} if ends else {}
  assert read.about() == about


@pytest.mark.parametrize('encoding', ['utf-16', 'utf-16-be', 'utf-32', 'latin-1'])
def test_other_encodings_are_no_text(encoding: str):
  found = list(lines('Übergänge\ndé\n'.encode(encoding)))
  assert None in found and not {'Übergänge', 'dé'} & {*found}


@pytest.mark.parametrize('before', [0, 1, MAX_LINE_BYTES // 3, MAX_LINE_BYTES])
@pytest.mark.parametrize('end', [b'\n', b'', b'\nmore\n'])
@pytest.mark.parametrize('most', [2**30, 70_001])
def test_longest_line(before: int, end: bytes, most: int):
  """Wherever it lies in the blocks that are read."""
  start = b'x' * before + b'\n'
  read = lines(start + b'y' * MAX_LINE_BYTES + end, most)
  assert [len(line) for line in read][:2] == [before, MAX_LINE_BYTES]
  read = lines(start + b'y' * (MAX_LINE_BYTES + 1) + end, most)
  with pytest.raises(UserError, match='FILE, line 2: over 1,000,000 bytes; a file of'):
    list(read)


def test_a_line_without_end_is_not_read_to_its_end():
  class Zeros(io.RawIOBase):
    given = 0

    def read(self, size: int = -1) -> bytes:
      self.given += size
      return bytes(size)

  stream = Zeros()
  tracemalloc.start()
  try:
    with pytest.raises(UserError, match='FILE, line 1: over'):
      list(Lines(stream, 'FILE'))
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
  finally:
    tracemalloc.stop()
  assert stream.given < 8_000_000


def test_damage_is_named():
  whole = gzip.compress(os.urandom(5000))
  for content in (whole[:-9], whole[:99] + bytes(99) + whole[198:], b'no gzip'):
    with gzip.open(io.BytesIO(content)) as stream:
      with pytest.raises(UserError, match=r'FILE: truncated or damaged \(.+\); get'):
        list(Lines(stream, 'FILE'))


# Pairs


def test_pairs_stay_together():
  sides = lines(b'a\nb\n\xff\n'), lines(b'1\n\n3')
  assert list(paired(*sides)) == [('a', '1'), ('b', ''), (None, '3')]


@pytest.mark.parametrize('counts', [(3, 2), (2, 3), (0, 1), (1, 0), (9, 1)])
def test_unequal_sides_are_told_at_the_end(counts: tuple[int, int]):
  """With both counts, for both files are read to their ends."""
  sides = [Lines(io.BytesIO(b'x\n' * n), f'FILE{n}') for n in counts]
  found = []
  with pytest.raises(Unequal) as caught:
    for pair in paired(*sides):
      found.append(pair)
  assert found == [('x', 'x')] * min(counts)
  for count in counts:
    assert re.search(rf'FILE{count} has {count}\b', str(caught.value))
  assert [side.about()['lines'] for side in sides] == [*counts]


# Files


def test_stamp_tells_of_a_change(tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  stamp = file_stamp(path)
  assert stamp == file_stamp(path) and stamp[:2] == ['x', 3]
  path.write_bytes(b'abcd')
  assert file_stamp(path) != stamp
  path.write_bytes(b'xyz')
  os.utime(path, ns=(0, stamp[2] + 1))
  assert file_stamp(path) != stamp
  for missing in (tmp_path / 'y', tmp_path):
    with pytest.raises(UserError, match=f'{missing}: no such file; --raw_dir'):
      file_stamp(missing)


def append(path: pathlib.Path) -> None:
  with path.open('ab') as file:
    file.write(b'more')


def replace(path: pathlib.Path) -> None:
  other = path.with_suffix('.new')
  other.write_bytes(b'abc')
  os.utime(other, ns=(0, 1))
  other.replace(path)


@pytest.mark.parametrize('change', [append, replace])
@pytest.mark.parametrize('fault', [None, ValueError, Unequal])
def test_a_change_is_noticed(change, fault, tmp_path: pathlib.Path):
  """It is what is told, for it explains what else is wrong with what was read."""
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  with pytest.raises(UserError, match=f'{path}: it changed while it was read; wait'):
    with unchanged(path):
      change(path)
      if fault:
        raise fault('something else')


@pytest.mark.parametrize('fault', [ValueError, KeyError, GeneratorExit, OSError])
def test_an_unchanged_file_is_not_blamed(fault, tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  with unchanged(path):
    path.read_bytes()
  with pytest.raises(fault, match='something else'), unchanged(path):
    raise fault('something else')


def test_a_file_that_goes_away(tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  with pytest.raises(UserError, match='x: no such file'), unchanged(path):
    path.unlink()
