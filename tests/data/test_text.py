"""Lines of files, packed or not, and codes of languages."""

import bz2
import functools
import gzip
import lzma
import pathlib

import pyarrow
import pytest

from transformer_jax.data import text
from transformer_jax.machine.errors import UserError

LINES = ''.join(f'line {n} é\n' for n in range(90_000)).encode()  # two blocks
PACKERS = {
  '': bytes,
  '.gz': gzip.compress,
  '.bz2': bz2.compress,
  '.xz': lzma.compress,
  '.zst': lambda content: pyarrow.compress(content, codec='zstd', asbytes=True),
}
packed = functools.cache(lambda end: PACKERS[end](LINES))


def written(path: pathlib.Path, content: bytes) -> pathlib.Path:
  path.write_bytes(content)
  return path


@pytest.mark.parametrize('end', PACKERS)
def test_packed_files(end: str, tmp_path: pathlib.Path):
  """Several may stand one after another in one file, whatever its name is."""
  for name in (f'train.de{end}', 'train.de'):
    path = written(tmp_path / name, packed(end) + PACKERS[end](b'more\n'))
    assert text.read_bytes(path) == LINES + b'more\n'
  assert [*text.read_lines(path)] == LINES.decode().splitlines() + ['more']
  assert text.read_bytes(written(tmp_path / f'none{end}', b'')) == b''


def test_a_zip_archive_is_refused(tmp_path: pathlib.Path):
  path = written(tmp_path / 'train.de', b'PK\x03\x04')
  with pytest.raises(UserError, match='train.de: a zip archive: unpack it'):
    text.read_bytes(path)


@pytest.mark.parametrize('end', [*PACKERS][1:])
def test_damage_is_named(end: str, tmp_path: pathlib.Path):
  whole = packed(end)
  damaged = [whole[:-9], LINES]
  if end != '.zst':  # pyarrow packs it without a checksum, as the command zstd has it
    damaged.append(whole[:900] + bytes([whole[900] ^ 8]) + whole[901:])
  for content in damaged:
    path = written(tmp_path / f'train.de{end}', content)
    with pytest.raises(UserError, match=f'train.de{end}: truncated or damaged'):
      [*text.read_lines(path)]


def test_lines_end_at_line_feeds_alone(tmp_path: pathlib.Path):
  for content, lines in (
    (b'', []),
    (b'a', ['a']),
    (b'a\n\nb', ['a', '', 'b']),
    (b'a\r\nb\r', ['a', 'b']),
    (b'\xef\xbb\xbfa\n\xef\xbb\xbfb\n', ['a', '\ufeffb']),
    ('a\u2028b\x85\x0cc\n'.encode(), ['a\u2028b\x85\x0cc']),
    (b'a\xff\nb\n', [None, 'b']),
    (b'a\rb\n', ['a\rb']),
  ):
    assert [*text.read_lines(written(tmp_path / 'x', content))] == lines


def test_codes_of_languages():
  for code, right in {
    **{'deu': 'de', 'jpn_Jpan': 'ja', 'jp': 'ja', 'cn': 'zh'},
    **dict.fromkeys(('DE', 'de-DE', 'german', 'q', 'de_'), 'de, hsb'),
  }.items():
    with pytest.raises(UserError, match=f'^{code!r}.* {right}'):
      text.check_code(code)
  for code, is_unspaced in {
    **dict.fromkeys(('de', 'hsb', 'pt_BR', 'zh_Hant', 'ko'), False),
    **dict.fromkeys(('zh', 'yue', 'th', 'my', 'km'), True),
  }.items():
    text.check_code(code)
    assert text.is_unspaced(code) == is_unspaced
