"""Lines of text, and codes of languages, the same for training, search and scores.

A file has a sentence a line. If it is compressed, as .gz, .zst, .bz2 or .xz, it is
unpacked as it is read, whatever its name is.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import pathlib
import re
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from ml_collections import ConfigDict

from transformer_jax.machine.errors import UserError

# Compressed files begin with these bytes, and hardly any text does.
_STARTS = {
  '.gz': b'\x1f\x8b',
  '.zst': b'(\xb5/\xfd',
  '.bz2': b'BZh',
  '.xz': b'\xfd7zXZ\0',
  '.zip': b'PK\x03\x04',  # may hold several files, so it is not unpacked
}
# Suffixes of compressed files that are read.
PACKED = ('.gz', '.zst', '.bz2', '.xz')

_BLOCK = 1 << 20  # bytes that are read at once

# Scripts without spaces between words: their languages (ISO 639), and their letters.
UNSPACED = (
  (
    {'zh', 'ja', 'gan', 'hak', 'lzh', 'wuu', 'yue'},
    '\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff',
  ),
  ({'th', 'lo'}, '\u0e00-\u0eff'),
  ({'bo', 'dz'}, '\u0f00-\u0fff'),
  ({'my', 'mnw', 'shn'}, '\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f'),
  ({'km'}, '\u1780-\u17ff'),
)
UNSPACED_LETTER = re.compile(f'[{"".join(letters for _, letters in UNSPACED)}]')

CODE = re.compile('[a-z]{2,3}(_[A-Za-z0-9]+)?')  # de, hsb, pt_BR
# Other codes of the languages whose scorers know them by a code of two letters.
_CODES = dict(
  pair.split(':')
  for pair in (
    'asm:as ben:bn bod:bo bur:my cat:ca ces:cs chi:zh cmn:zh cn:zh cze:cs deu:de '
    'dut:nl dzo:dz ell:el eng:en est:et fin:fi fra:fr fre:fr ger:de gle:ga gre:el '
    'guj:gu hin:hi hun:hu ice:is isl:is ita:it jp:ja jpn:ja kan:kn khm:km kor:ko '
    'lao:lo lav:lv lit:lt mal:ml mar:mr mya:my nld:nl ori:or pan:pa pol:pl por:pt '
    'ron:ro rum:ro rus:ru slk:sk slo:sk slv:sl som:so spa:es swe:sv tam:ta tel:te '
    'tha:th tib:bo zho:zh'
  ).split()
)


def packing(start: bytes) -> str | None:
  """Returns the suffix of files that begin like this if they are compressed."""
  return next((end for end, magic in _STARTS.items() if start.startswith(magic)), None)


@contextlib.contextmanager
def open_packed(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Opens a file for reading, and unpacks it if it is compressed, see PACKED.

  Raises UserError if it is a zip archive, or, within the context, damaged.
  """
  openers: dict[str, Any] = {
    '.gz': gzip.open,
    '.bz2': bz2.open,
    '.xz': lzma.open,
    '.zst': _open_zst,
  }
  try:
    with path.open('rb') as file:
      start = file.peek(10)
      end = packing(start)
      if end == '.zip':
        raise UserError(f'{path}: a zip archive: unpack it')
      if start and path.suffix in PACKED and end != path.suffix:
        raise OSError(f'not a {path.suffix} file')
      if end is None:
        yield file
      else:
        with openers[end](file, 'rb') as stream:
          yield stream
  except (FileNotFoundError, PermissionError, IsADirectoryError):
    raise
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error


def _open_zst(file: BinaryIO, _: str) -> BinaryIO:
  import pyarrow  # of an extra

  return io.BufferedReader(pyarrow.input_stream(file, compression='zstd'), _BLOCK)


def read_blocks(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the unpacked bytes of a file; raises UserError if it is damaged."""
  with open_packed(path) as stream:
    while block := stream.read(_BLOCK):
      yield block


def read_bytes(path: pathlib.Path) -> bytes:
  """Returns the unpacked content of a file; raises UserError if it is damaged."""
  return b''.join(read_blocks(path))


def read_lines(path: pathlib.Path) -> Iterator[str | None]:
  """Yields the lines of a file, which end at LF alone, or None for what is not UTF-8.

  Removes a byte order mark, and the CR of CRLF. Raises UserError for a damaged file.
  """
  mark = codecs.BOM_UTF8
  with open_packed(path) as stream:
    for line in stream:
      yield decode_line(line.removeprefix(mark).removesuffix(b'\n'))
      mark = b''


def decode_line(line: bytes) -> str | None:
  """Returns a line's text without a CR at its end, or None if it is not UTF-8."""
  try:
    return line.removesuffix(b'\r').decode()
  except UnicodeDecodeError:
    return None


def nfc(line: str) -> str:
  """Returns a line in Unicode's NFC, in which an accented letter is one character."""
  return unicodedata.normalize('NFC', line)


def normalise(line: str, data: ConfigDict) -> str:
  """Returns a line in lowercase (data.lowercase) and in NFC (data.nfc)."""
  line = line.lower() if data.lowercase else line
  return nfc(line) if data.nfc else line


def input_line(line: str, data: ConfigDict) -> str:
  """Returns a line as a model reads it, normalised as its corpus is.

  Removes all white space of Unicode at both ends, and replaces NUL, at which
  SentencePiece would stop, by a space.
  """
  return normalise(line.replace('\x00', ' ').strip(), data)


# Languages


def is_unspaced(code: str) -> bool:
  """Returns True if a language has no spaces between words."""
  return any(code in codes for codes, _ in UNSPACED)


def check_code(code: str) -> None:
  """Raises UserError unless `code` is a language code, such as de or pt_BR.

  Any two or three letters are a code, except those in _CODES, which no scorer knows.
  """
  # A scorer knows how to split Japanese by the code ja alone.
  if short := _CODES.get(code.partition('_')[0]):
    raise UserError(f'{code!r}: the code of this language is {short}')
  if not CODE.fullmatch(code):
    raise UserError(
      f'{code!r} is not a code of a language (ISO 639), such as de, hsb, pt_BR or '
      'zh_Hant: lowercase, and a region or script after _'
    )
