"""The reader of text files: one sentence a line, one file for each side.

A file is `NAME.LANGUAGE`, or the same with `.gz`, `.zst`, `.xz` or `.bz2`, which is
unpacked as it is read.
"""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator

from transformer_jax.data import misalignment, packed
from transformer_jax.data.lines import (
  SIDES,
  Lines,
  Pair,
  Unequal,
  file_stamp,
  unchanged,
)
from transformer_jax.data.sides import Sides
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

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
      streams = [stack.enter_context(packed.opened(path)) for path in self.paths]
      sides = Sides(streams, [*map(str, self.paths)])
      try:
        yield from sides
      except Unequal as error:
        raise Unequal(f'{error}{self._where()}') from None
      self._origin = {
        name: {'file': path.name, 'sha256': sha256(path), **about}
        for name, path, about in zip(SIDES, self.paths, sides.about, strict=True)
      }

  def origin(self) -> dict:
    return self._origin

  def _where(self) -> str:
    """From which line on two files of unequal length no longer go together."""
    if self.paths[0].suffix == '.sgm':
      return ''  # not lines; the segment is named
    sides = []
    for path in self.paths:
      with packed.opened(path) as stream:
        lines = Lines(stream, str(path))
        sides.append(list(itertools.islice(lines, MAX_SEARCHED + 1)))
    if max(map(len, sides)) > MAX_SEARCHED:
      return ''
    return f'. First suspicious line: {misalignment.suspicious(*sides)}'


def there(raw_dir: pathlib.Path, name: str) -> list[pathlib.Path]:
  """The existing files among raw_dir/NAME and its compressed forms, such as NAME.gz."""
  paths = [raw_dir / (name + end) for end in ('', *packed.ENDS)]
  return [path for path in paths if path.is_file()]


def find(raw_dir: pathlib.Path, name: str) -> pathlib.Path:
  """raw_dir/NAME, plain or compressed.

  Raises:
    UserError: there is no such file, or there are several.
  """
  found = there(raw_dir, name)
  if not found:
    compressed = ', '.join(name + end for end in packed.ENDS)
    raise UserError(
      f'{raw_dir / name}: no such file, nor {compressed}; --raw_dir names its folder'
    )
  if len(found) > 1:
    raise UserError(
      f'{raw_dir} has {" and ".join(path.name for path in found)}: keep one of them'
    )
  return found[0]


def bitext(raw_dir: pathlib.Path, stem: str, source: str, target: str) -> FileBitext:
  """raw_dir/STEM.source with raw_dir/STEM.target."""
  return FileBitext(*(find(raw_dir, f'{stem}.{side}') for side in (source, target)))
