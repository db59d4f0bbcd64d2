"""The door for files of text: two of them a part, one sentence a line.

`NAME.LANGUAGE`, or the same with `.gz` or `.zst`, which are read as they are.
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
from transformer_jax.machine.files import sha256

_COMPRESSED = ('.gz', '.zst')

# Where two files part is looked for in no more lines than these.
MAX_SEARCHED = 1_000_000


class FileBitext:
  """A part made of two files; one whole line of the one goes with one of the other."""

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
    """Where two files of unequal length part, if they are not too long to tell."""
    sides = []
    for path in self.paths:
      with opened(path) as stream:
        lines = Lines(stream, str(path))
        sides.append(list(itertools.islice(lines, MAX_SEARCHED + 1)))
    if max(map(len, sides)) > MAX_SEARCHED:
      return ''
    return f'. First suspicious line: {misalignment.suspicious(*sides)}'


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[BinaryIO]:
  """The bytes of a file, decompressed if its name says that it is compressed."""
  if path.suffix in _COMPRESSED and not path.stat().st_size:
    raise ValueError(f'{path}: truncated, it is empty; get it again')
  if path.suffix == '.gz':
    with gzip.open(path) as stream:
      yield stream
  elif path.suffix == '.zst':
    # Unlike other readers of it, this one notices that the end is missing.
    with pyarrow.input_stream(str(path), compression='zstd') as stream:
      yield stream
  else:
    with path.open('rb') as stream:
      yield stream


def find(raw_dir: pathlib.Path, name: str) -> pathlib.Path:
  """raw_dir/NAME as it is or compressed.

  Raises:
    FileNotFoundError: neither is there.
    ValueError: more than one is there.
  """
  there = [raw_dir / (name + end) for end in ('', *_COMPRESSED)]
  there = [path for path in there if path.is_file()]
  if not there:
    compressed = ' or '.join(name + end for end in _COMPRESSED)
    raise FileNotFoundError(
      f'{raw_dir / name}: no such file, nor {compressed}; --raw_dir names its folder'
    )
  if len(there) > 1:
    raise ValueError(
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
