"""What every door to a corpus gives: parts of a split, read pair by pair.

A part is what was published together: two files of lines, two members of an archive, a
table. Parts are read from their start as often as needed and never held whole.
"""

import contextlib
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol

# One side is None where a line is not UTF-8.
Pair = tuple[str | None, str | None]

SIDES = ('source', 'target')

# A longer line is a file that is no text, or not one sentence a line.
MAX_LINE_BYTES = 1_000_000
_BLOCK = 1 << 20

# What reading a damaged compressed file raises, gzip.BadGzipFile being an OSError.
DAMAGE = (EOFError, zlib.error, OSError)


class Bitext(Protocol):
  """A piece of a split."""

  name: str  # how the card and messages call it: no folders

  def stamp(self) -> list:
    """What changes whenever the input does, quick to get, as JSON has it."""

  def pairs(self) -> Iterator[Pair]:
    """Source and target, one after another.

    Raises:
      OSError, ValueError: the input is missing, damaged, unequal or changing; the
        message names the file, the line and what to do.
    """

  def origin(self) -> dict:
    """What the card says of it: files, sums, counts. Known once pairs() has ended."""


def file_stamp(path: pathlib.Path) -> list:
  """Name, size in bytes and time of change of a file.

  Raises:
    FileNotFoundError: it is not there.
  """
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no such file; --raw_dir names its folder')
  about = path.stat()
  return [path.name, about.st_size, about.st_mtime_ns]


@contextlib.contextmanager
def unchanged(path: pathlib.Path) -> Iterator[None]:
  """Raises ValueError if the file is another after the block than it was before."""
  before = file_stamp(path)

  def check() -> None:
    if file_stamp(path) != before:
      raise ValueError(
        f'{path}: it changed while it was read; wait until it is whole, then try again'
      )

  try:
    yield
  except ValueError:
    check()  # else what is wrong with it may be only that it is not whole yet
    raise
  check()


class Lines:
  """Lines of a stream of bytes, split at LF alone, one pass.

  A byte order mark and the CR of CRLF are taken off and counted in `about`; a line that
  is not valid UTF-8 comes out as None.

  Args:
    stream: is read to its end, not closed.
    name: what errors call it.
  """

  def __init__(self, stream: BinaryIO, name: str):
    self._stream, self.name = stream, name
    self._lines = self._carriage_returns = 0
    self._byte_order_mark = False

  def __iter__(self) -> Iterator[str | None]:
    for line in self._raw():
      if not self._lines and line.startswith(b'\xef\xbb\xbf'):
        line = line[3:]
        self._byte_order_mark = True
      self._lines += 1
      if line.endswith(b'\r'):
        line = line[:-1]
        self._carriage_returns += 1
      try:
        yield line.decode('utf-8')
      except UnicodeDecodeError:
        yield None

  def _raw(self) -> Iterator[bytes]:
    rest, seen = b'', 0
    while block := self._read():
      lines = (rest + block).split(b'\n')
      lengths = [*map(len, lines)]
      if max(lengths) > MAX_LINE_BYTES:
        number = seen + next(n for n, l in enumerate(lengths, 1) if l > MAX_LINE_BYTES)
        raise ValueError(
          f'{self.name}, line {number}: over {MAX_LINE_BYTES:,} bytes; a file of text '
          f'has a sentence a line'
        )
      rest = lines.pop()
      yield from lines
      seen += len(lines)
    if rest:
      yield rest

  def _read(self) -> bytes:
    try:
      return self._stream.read(_BLOCK)
    except DAMAGE as error:
      raise ValueError(
        f'{self.name}: truncated or damaged ({error}); get it again'
      ) from error

  def about(self) -> dict:
    """The lines read so far, and what was taken off them."""
    about: dict = {'lines': self._lines}
    if self._byte_order_mark:
      about['byte_order_mark'] = True
    if self._carriage_returns:
      about['carriage_returns_taken_off'] = self._carriage_returns
    return about


class Unequal(ValueError):
  """Two sides that do not have the same number of lines."""


def paired(source: Lines, target: Lines) -> Iterator[Pair]:
  """Lines across from each other; Unequal, after the last pair, if one side has more.

  Both are read to their ends, so that the counts and damage behind are known.
  """
  sides = iter(source), iter(target)
  yield from zip(*sides, strict=False)
  for side in sides:
    for _ in side:
      pass
  counts = [side.about()['lines'] for side in (source, target)]
  if counts[0] != counts[1]:
    raise Unequal(
      f'{source.name} has {counts[0]} lines and {target.name} has {counts[1]}: they '
      f'must pair up'
    )
