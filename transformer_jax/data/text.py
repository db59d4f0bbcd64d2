"""Reads text: files with a sentence a line, and the test sets of sacreBLEU.

A file is called STEM.LANGUAGE, or the same with .gz, .zst, .bz2 or .xz at its end, and
is then unpacked as it is read. Line n of one language translates line n of the other.
"""

import bz2
import codecs
import contextlib
import functools
import gzip
import html
import io
import itertools
import lzma
import pathlib
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from transformer_jax.data.corpus import SACREBLEU, Pair, Source
from transformer_jax.machine.errors import UserError

# Suffixes of compressed files.
PACKED = ('.gz', '.zst', '.bz2', '.xz')

_BLOCK = 1 << 20  # bytes that are read at once

_SEGMENT = re.compile(r'<seg\b[^>]*>(.*?)</seg>', re.IGNORECASE | re.DOTALL)
# WMT also writes a bare & ("R&D"), so an entity must end with a semicolon.
_ENTITY = re.compile(r'&#?\w+;')
# No-break spaces stay: newstest2014 in French has 1,478 of them.
_SPACE = re.compile('[ \t\n\r\f\v]+')


@contextlib.contextmanager
def open_packed(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Opens a file for reading, and unpacks it if its name ends in one of PACKED.

  Raises UserError within the context if the file is damaged.
  """
  openers = {'.gz': gzip.open, '.bz2': bz2.open, '.xz': lzma.open, '.zst': _open_zst}
  try:
    with openers.get(path.suffix, open)(path, 'rb') as stream:
      yield stream
  except (FileNotFoundError, PermissionError, IsADirectoryError):
    raise
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error


def _open_zst(path: pathlib.Path, _: str) -> BinaryIO:
  import pyarrow  # of an extra

  return io.BufferedReader(pyarrow.input_stream(str(path), compression='zstd'), _BLOCK)


def read_blocks(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the unpacked bytes of a file; raises UserError if it is damaged."""
  with open_packed(path) as stream:
    while block := stream.read(_BLOCK):
      yield block


def read_bytes(path: pathlib.Path) -> bytes:
  """Returns the unpacked content of a file; raises UserError if it is damaged."""
  return b''.join(read_blocks(path))


def read_lines(path: pathlib.Path) -> Iterator[str | None]:
  """Yields the lines of a file, which end at LF alone; None for one that is not UTF-8.

  Removes a byte order mark, and the CR of CRLF; raises UserError if it is damaged.
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


def input_line(line: str, nfc: bool) -> str:
  """Returns a line as a model reads it.

  Removes all white space of Unicode at both ends, and replaces NUL, at which
  SentencePiece would stop, by a space. With `nfc` (data.nfc) brings it to NFC.
  """
  line = line.replace('\x00', ' ').strip()
  return unicodedata.normalize('NFC', line) if nfc else line


def read_segments(path: pathlib.Path) -> Iterator[str]:
  """Yields the segments of a test set in WMT's SGML, as WMT's plain files have them.

  Replaces entities, and each run of white space by one space.
  """
  for segment in _SEGMENT.findall(read_bytes(path).decode()):
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), segment)
    yield _SPACE.sub(' ', text).strip(' ')


def read_pairs(
  source: pathlib.Path,
  target: pathlib.Path,
  read: Callable[[pathlib.Path], Iterable[str | None]] = read_lines,
) -> Iterator[Pair]:
  """Yields the pairs of two files, whose lines `read` yields.

  Reads both to their ends, to notice all damage and to count all lines.

  Raises:
    UserError: a file is damaged, or, after the last pair, one file has more lines.
  """
  counts = [0, 0]

  def counted(number: int, path: pathlib.Path) -> Iterator[str | None]:
    for line in read(path):
      counts[number] += 1
      yield line

  texts = counted(0, source), counted(1, target)
  yield from zip(*texts, strict=False)
  for _ in itertools.chain(*texts):
    pass
  if counts[0] != counts[1]:
    raise UserError(
      f'{source} has {counts[0]} lines and {target} has {counts[1]}: they must pair up'
    )


def find_files(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
  """Returns which files exist of folder/NAME and its packed forms, such as NAME.gz."""
  paths = [folder / (name + end) for end in ('', *PACKED)]
  return [path for path in paths if path.is_file()]


def find_file(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the one file folder/NAME, packed or not; else raises UserError."""
  paths = find_files(folder, name)
  if not paths:
    raise UserError(
      f'{folder / name}: no such file, nor {", ".join(name + end for end in PACKED)}'
    )
  if len(paths) > 1:
    names = ' and '.join(path.name for path in paths)
    raise UserError(f'{folder} has {names}: keep one of them')
  return paths[0]


def file_source(folder: pathlib.Path, stem: str, languages: tuple[str, str]) -> Source:
  """Returns the pairs of folder/STEM.SOURCE and folder/STEM.TARGET."""
  paths = [find_file(folder, f'{stem}.{language}') for language in languages]
  name = ' and '.join(path.name for path in paths)
  return Source(name, tuple(paths), functools.partial(read_pairs, *paths))


def sacrebleu_source(stem: str, languages: tuple[str, str]) -> Source:
  """Returns the test set `sacrebleu:SET` in its official order.

  Reads its SGML, since the text that sacreBLEU extracts from it has entities and lacks
  no-break spaces. sacreBLEU downloads a set when it is first used.

  Raises:
    UserError: sacreBLEU has no such set in SGML, or cannot download it.
  """
  import sacrebleu.dataset
  from sacrebleu import utils

  name, pair = stem.removeprefix(SACREBLEU), '-'.join(languages)
  dataset = sacrebleu.dataset.DATASETS.get(name)
  members = dataset.langpairs.get(pair, ()) if dataset else ()
  if len(members) != 2 or not all(str(member).endswith('.sgm') for member in members):
    raise UserError(
      f'{stem}: sacreBLEU has no such set of two SGML files in {pair}. It has some up '
      'to WMT18; `sacrebleu --list` names them'
    )
  folder = pathlib.Path(utils.SACREBLEU_DIR, name)
  paths = tuple(folder / 'raw' / member for member in members)
  if not all(path.is_file() for path in paths):
    try:
      dataset.maybe_download()
    except (OSError, EOFError, SystemExit) as error:  # it exits if a sum is wrong
      raise UserError(
        f'{stem} could not be downloaded ({error}). Delete {folder} and try again, set '
        'SACREBLEU to a folder that has the set, or name other files in '
        '--config.data.files'
      ) from error
  read = functools.partial(read_pairs, *paths, read_segments)
  return Source(' and '.join(path.name for path in paths), paths, read)
