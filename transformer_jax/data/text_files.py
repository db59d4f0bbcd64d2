"""The reader of text files: one sentence a line, one file for each side.

A file is `NAME.LANGUAGE`, or the same with `.gz` or `.zst`, which is unpacked as it is
read.
"""

import contextlib
import gzip
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow

from transformer_jax.data import misalignment
from transformer_jax.data.lines import (
  SIDES,
  Bitext,
  Lines,
  Pair,
  Unequal,
  file_stamp,
  paired,
  unchanged,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

_COMPRESSED = ('.gz', '.zst')

# If the sides are unequal and no longer than this, the line where to look is named.
MAX_SEARCHED = 1_000_000


class FileBitext:
  """Two files, line n of the one being the translation of line n of the other."""

  def __init__(self, source: pathlib.Path, target: pathlib.Path):
    self.paths = source, target
    self.name = f'{source.name} and {target.name}'
    self._origin: dict = {}

  def stamp(self) -> list:
    return [file_stamp(path) for path in self.paths]

  def pairs(self) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
      for path in self.paths:
        stack.enter_context(unchanged(path))
      streams = [stack.enter_context(opened(path)) for path in self.paths]
      sides = [Lines(s, str(p)) for s, p in zip(streams, self.paths, strict=True)]
      try:
        yield from paired(*sides)
      except Unequal as error:
        raise Unequal(f'{error}{self._where()}') from None
      self._origin = {
        name: {'file': path.name, 'sha256': sha256(path), **side.about()}
        for name, path, side in zip(SIDES, self.paths, sides, strict=True)
      }

  def origin(self) -> dict:
    return self._origin

  def _where(self) -> str:
    """From which line on two files of unequal length no longer go together."""
    sides = []
    for path in self.paths:
      with opened(path) as stream:
        lines = Lines(stream, str(path))
        sides.append(list(itertools.islice(lines, MAX_SEARCHED + 1)))
    if max(map(len, sides)) > MAX_SEARCHED:
      return ''
    return f'. First suspicious line: {misalignment.suspicious(*sides)}'


def opened(path: pathlib.Path) -> BinaryIO:
  """A file opened for reading, unpacked if its name says that it is compressed."""
  if path.suffix in _COMPRESSED and not path.stat().st_size:
    raise UserError(f'{path}: truncated, it is empty; get it again')
  if path.suffix == '.gz':
    return gzip.open(path)
  if path.suffix == '.zst':
    # Unlike other readers of zstd, pyarrow notices that the end is missing.
    return pyarrow.input_stream(str(path), compression='zstd')
  return path.open('rb')


def find(raw_dir: pathlib.Path, name: str) -> pathlib.Path:
  """raw_dir/NAME, plain or compressed.

  Raises:
    UserError: there is no such file, or there are several.
  """
  there = [raw_dir / (name + end) for end in ('', *_COMPRESSED)]
  there = [path for path in there if path.is_file()]
  if not there:
    compressed = ' or '.join(name + end for end in _COMPRESSED)
    raise UserError(
      f'{raw_dir / name}: no such file, nor {compressed}; --raw_dir names its folder'
    )
  if len(there) > 1:
    raise UserError(
      f'{raw_dir} has {" and ".join(path.name for path in there)}: keep one of them'
    )
  return there[0]


def bitexts(
  raw_dir: pathlib.Path, stems: Sequence[str], source: str, target: str
) -> list[Bitext]:
  """raw_dir/STEM.source with raw_dir/STEM.target, for every stem."""
  return [
    FileBitext(*(find(raw_dir, f'{stem}.{language}') for language in (source, target)))
    for stem in stems
  ]
