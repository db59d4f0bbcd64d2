"""Text that a corpus is made from: files of lines, and the test sets of sacreBLEU.

A file is `NAME.LANGUAGE`, or the same with .gz, .zst, .bz2 or .xz, which is unpacked as
it is read. Line n of one language is the translation of line n of the other.
"""

import functools
import html
import itertools
import lzma
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np
import pyarrow

from transformer_jax.data.corpus import SACREBLEU, Pair, Source
from transformer_jax.machine.errors import UserError

# The ends of the names of packed files.
PACKED = ('.gz', '.zst', '.bz2', '.xz')

# Longer lines are refused: the file is no text, or does not have a sentence a line.
MAX_LINE_BYTES = 1_000_000
_BLOCK = 1 << 20

_SEGMENT = re.compile(r'<seg\b[^>]*>(.*?)</seg>', re.IGNORECASE | re.DOTALL)
# WMT also writes a bare & ("R&D"), so an entity must end with a semicolon.
_ENTITY = re.compile(r'&#?\w+;')
# No-break spaces stay: newstest2014 in French has 1,478 of them.
_SPACE = re.compile('[ \t\n\r\f\v]+')


def open_packed(path: pathlib.Path) -> BinaryIO:
  """Opens a file for reading; it is unpacked if its name says that it is packed."""
  if path.suffix == '.xz':
    return lzma.open(path)
  # Not 'detect' for all: pyarrow takes train.br, which is Breton, for brotli.
  packing = 'detect' if path.suffix in PACKED else None
  return pyarrow.input_stream(str(path), compression=packing)


def read_blocks(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the bytes of a file, unpacked; UserError if it is truncated or damaged."""
  try:
    with open_packed(path) as stream:
      while block := stream.read(_BLOCK):
        yield block
  except (FileNotFoundError, PermissionError, IsADirectoryError):
    raise
  except (OSError, EOFError, lzma.LZMAError) as error:
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error


def read_lines(path: pathlib.Path) -> Iterator[str | None]:
  """Yields the lines of a file, split at LF alone; None for one that is not UTF-8.

  A byte order mark and the CR of CRLF are removed.

  Raises:
    UserError: the file is damaged, UTF-16, or has a line of over MAX_LINE_BYTES.
  """
  blocks, count = read_blocks(path), 0
  rest = next(blocks, b'')
  if rest.startswith((b'\xff\xfe', b'\xfe\xff')):
    raise UserError(f'{path} is UTF-16: convert it by iconv -f UTF-16 -t UTF-8')
  rest = rest.removeprefix(b'\xef\xbb\xbf')
  for block in itertools.chain([b''], blocks):
    lines = (rest + block).split(b'\n')
    sizes = [*map(len, lines)]
    if max(sizes) > MAX_LINE_BYTES:
      number = next(n for n, size in enumerate(sizes, 1) if size > MAX_LINE_BYTES)
      raise UserError(
        f'{path}, line {count + number}: over {MAX_LINE_BYTES:,} bytes; a file of text '
        'has a sentence a line'
      )
    rest = lines.pop()
    yield from map(decode_line, lines)
    count += len(lines)
  if rest:
    yield decode_line(rest)


def decode_line(line: bytes) -> str | None:
  """A line's text, without a CR at its end; None if it is not UTF-8."""
  try:
    return line.removesuffix(b'\r').decode()
  except UnicodeDecodeError:
    return None


def read_segments(path: pathlib.Path) -> Iterator[str]:
  """Yields the segments of a test set in WMT's SGML.

  Entities are replaced, and runs of white space are one space: as in WMT's plain files.

  Raises:
    UserError: the file is not UTF-8, or has no segment.
  """
  try:
    content = b''.join(read_blocks(path)).decode('utf-8')
  except UnicodeDecodeError as error:
    raise UserError(f'{path}: not UTF-8 ({error}); get it again') from error
  segments = _SEGMENT.findall(content)
  if not segments:
    raise UserError(f'{path}: no <seg> in it; is it a test set of WMT?')
  for segment in segments:
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), segment)
    yield _SPACE.sub(' ', text).strip(' ')


def read_pairs(
  source: pathlib.Path,
  target: pathlib.Path,
  read: Callable[[pathlib.Path], Iterable[str | None]] = read_lines,
) -> Iterator[Pair]:
  """Yields the pairs of two files: what `read` gives of the one and of the other.

  Both are read to their ends, so that all damage is noticed and both counts are known.

  Raises:
    UserError: a file is damaged, or one has more lines; raised after the last pair.
  """
  counts = [0, 0]

  def counted(side: int, path: pathlib.Path) -> Iterator[str | None]:
    for line in read(path):
      counts[side] += 1
      yield line

  sides = counted(0, source), counted(1, target)
  yield from zip(*sides, strict=False)
  for _ in itertools.chain(*sides):
    pass
  if counts[0] != counts[1]:
    raise UserError(
      f'{source} has {counts[0]} lines and {target} has {counts[1]}: they must pair '
      f'up. First suspicious line: {_suspicious_line(read(source), read(target))}'
    )


def _suspicious_line(*sides: Iterable[str | None]) -> int:
  """The line after which two sides of unequal number probably lost each other.

  Before it, lengths fit those of the same line best; after it, those further on.
  """
  sizes = (np.log([len(line or '') + 8.0 for line in side]) for side in sides)
  short, long = sorted(sizes, key=len)
  missing, count = len(long) - len(short), len(short)
  # The first fault may lack fewer lines than are missing in all.
  shifted = min((np.abs(long[k : k + count] - short) for k in {1, missing}), key=np.sum)
  gain = np.cumsum(shifted - np.abs(long[:count] - short))
  return int(np.concatenate([[0.0], gain]).argmax()) + 1


def existing(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
  """The files that there are of folder/NAME and its packed forms, such as NAME.gz."""
  paths = [folder / (name + end) for end in ('', *PACKED)]
  return [path for path in paths if path.is_file()]


def find_file(folder: pathlib.Path, name: str) -> pathlib.Path:
  """folder/NAME, plain or packed.

  Raises:
    UserError: there is no such file, or there are several.
  """
  paths = existing(folder, name)
  if not paths:
    raise UserError(
      f'{folder / name}: no such file, nor {", ".join(name + end for end in PACKED)}; '
      '--raw_dir names its folder'
    )
  if len(paths) > 1:
    names = ' and '.join(path.name for path in paths)
    raise UserError(f'{folder} has {names}: keep one of them')
  return paths[0]


def file_source(folder: pathlib.Path, stem: str, languages: tuple[str, str]) -> Source:
  """The pairs of folder/STEM.SOURCE and folder/STEM.TARGET."""
  paths = [find_file(folder, f'{stem}.{language}') for language in languages]
  name = ' and '.join(path.name for path in paths)
  return Source(name, tuple(paths), functools.partial(read_pairs, *paths))


def sacrebleu_source(stem: str, languages: tuple[str, str]) -> Source:
  """The test set `sacrebleu:SET`, in its official order.

  Its SGML is read here, not the text that sacreBLEU makes of it, which has entities and
  has lost its no-break spaces. sacreBLEU downloads what it does not have.

  Raises:
    UserError: there is no such set in SGML in these languages, or it cannot be had.
  """
  import sacrebleu.dataset
  from sacrebleu import utils

  name, pair = stem.removeprefix(SACREBLEU), '-'.join(languages)
  if name not in sacrebleu.dataset.DATASETS:
    raise UserError(f'{stem}: sacreBLEU has no such set; `sacrebleu --list` names them')
  dataset = sacrebleu.dataset.DATASETS[name]
  if pair not in dataset.langpairs:
    raise UserError(f'{stem}: sacreBLEU has it in {", ".join(dataset.langpairs)}')
  members = dataset.langpairs[pair]
  if len(members) != 2 or not all(str(member).endswith('.sgm') for member in members):
    raise UserError(f'{stem}: only sets of two SGML files are read, as up to WMT18')
  folder = pathlib.Path(utils.SACREBLEU_DIR, name)
  paths = tuple(folder / 'raw' / member for member in members)
  if not all(path.is_file() for path in paths):
    ways = (
      f'Delete {folder} and try again, set SACREBLEU to a folder that has the set, or '
      'name other files in --config.data.files'
    )
    try:
      dataset.maybe_download()
    except (OSError, EOFError, SystemExit) as error:  # it exits if a sum is wrong
      raise UserError(f'{stem} could not be downloaded ({error}). {ways}') from error
    for path in paths:
      if not path.is_file():
        raise UserError(f'{stem}: {path} is not there. {ways}')
  read = functools.partial(read_pairs, *paths, read_segments)
  return Source(' and '.join(path.name for path in paths), paths, read)
