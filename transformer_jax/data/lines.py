"""What every reader gives: the bitexts of a split, read pair by pair.

A bitext is what was published together: two files of lines, two members of an archive,
or a Parquet file. It is read from its start as often as needed and never held whole.
"""

import contextlib
import itertools
import lzma
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Protocol

from transformer_jax.machine.errors import UserError

# Source and target; None for a side that is not UTF-8.
Pair = tuple[str | None, str | None]

SIDES = ('source', 'target')

# Longer lines are refused: the file is no text, or does not have a sentence a line.
MAX_LINE_BYTES = 1_000_000
_BLOCK = 1 << 20

# What reading a damaged compressed file or archive raises (gzip.BadGzipFile is an
# OSError).
DAMAGE = (
  *(EOFError, OSError, lzma.LZMAError, zlib.error),
  *(tarfile.TarError, zipfile.BadZipFile),
)


class Bitext(Protocol):
  """A source of sentence pairs. A split has one or more."""

  name: str  # for the card and for messages, without folders
  # The file of each side, of which the card has the sha256; empty if the pairs were not
  # read from one file a side.
  paths: Sequence[pathlib.Path]

  def stamp(self) -> list:
    """A JSON value that changes whenever the input does, without reading all of it."""

  def pairs(self) -> Iterator[Pair]:
    """The sentence pairs in order.

    Raises:
      UserError: the input is missing, damaged, changing, or its sides are of unequal
        length; the message names the file, the line and what to do.
    """

  def origin(self) -> dict:
    """Files, sha256 sums and counts for the card. Complete once pairs() has ended."""


def taken_off(carriage_returns: int) -> dict[str, int]:
  """For the card: how many lines of a side lost a CR at their end, if any did."""
  return {'carriage_returns_taken_off': carriage_returns} if carriage_returns else {}


def file_stamp(path: pathlib.Path) -> list:
  """Name, size in bytes and time of change of a file.

  Raises:
    UserError: there is no such file.
  """
  if not path.is_file():
    raise UserError(f'{path}: no such file; --raw_dir names its folder')
  about = path.stat()
  return [path.name, about.st_size, about.st_mtime_ns]


@contextlib.contextmanager
def unchanged(path: pathlib.Path) -> Iterator[None]:
  """Raises UserError if the file has changed by the end of the block."""
  before = file_stamp(path)

  def check() -> None:
    if file_stamp(path) != before:
      raise UserError(
        f'{path}: it changed while it was read; wait until it is whole, then try again'
      )

  try:
    yield
  except (UserError, ValueError):
    check()  # a file that is still being written is also damaged or unequal
    raise
  check()


class Lines:
  """The lines of a stream of bytes, split at LF alone, in one pass.

  A byte order mark and the CR of CRLF are removed, and about() says so. A line that is
  not valid UTF-8 comes out as None.

  Args:
    stream: is read to its end and not closed.
    name: what error messages call it.
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
        raise UserError(
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
      raise UserError(
        f'{self.name}: truncated or damaged ({error}); get it again'
      ) from error

  def about(self) -> dict:
    """For the card: the number of lines read, and what was removed from them."""
    about: dict = {'lines': self._lines}
    if self._byte_order_mark:
      about['byte_order_mark'] = True
    return about | taken_off(self._carriage_returns)


class Unequal(UserError):
  """The two sides do not have the same number of lines."""


def paired(source: Lines, target: Lines) -> Iterator[Pair]:
  """Pairs of lines with the same number.

  Both sides are read to their ends, so that all damage is found and both counts are
  known.

  Raises:
    Unequal: one side has more lines; raised after the last pair.
  """
  sides = iter(source), iter(target)
  yield from zip(*sides, strict=False)
  for _ in itertools.chain(*sides):
    pass
  counts = [side.about()['lines'] for side in (source, target)]
  if counts[0] != counts[1]:
    raise Unequal(
      f'{source.name} has {counts[0]} lines and {target.name} has {counts[1]}: they '
      f'must pair up'
    )
