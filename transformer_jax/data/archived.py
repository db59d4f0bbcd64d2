"""A bitext of two members of an archive, and limits that stop harmful archives.

An archive is read in place: nothing is unpacked to disk. It may be malicious, for
example a zip bomb that fills the memory. The limits below are far above what any
archive of text needs.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, Protocol

from transformer_jax.data.lines import (
  DAMAGE,
  SIDES,
  Pair,
  file_stamp,
  unchanged,
)
from transformer_jax.data.sides import Sides
from transformer_jax.machine.errors import UserError

# gzip packs text to about a third, and what a bomb holds to a thousandth.
MOST_UNPACKED, MOST_PER_BYTE = 1 << 30, 20
MOST_MEMBERS = 10_000
MOST_SGML = 1 << 26  # bytes of a test set


def most_unpacked(packed_size: int) -> int:
  """The bytes to which text of so many packed bytes may unpack."""
  return MOST_UNPACKED + MOST_PER_BYTE * packed_size


def leads_out(name: str) -> bool:
  """Whether a member's name is an absolute path or contains '..'.

  Members are never written to disk under their names. But no honest archive of text has
  such a name, so it is taken for an attack.
  """
  first, *rest = re.split(r'[/\\]', name)
  return not first or first.endswith(':') or '..' in (first, *rest)


class Archive(Protocol):
  """A file that holds others.

  Attributes:
    wanted: the names of the members that will be read.
    origin: what the card says of the file, once check() has read it.
  """

  path: pathlib.Path
  wanted: set[str]
  origin: dict

  def check(self) -> None:
    """The first pass. Does nothing if the file has not changed since the last one.

    Raises:
      UserError: the archive is missing, damaged, another one, or made to do harm.
    """

  def member(self, name: str) -> contextlib.AbstractContextManager[Any]:
    """The second pass, after check(): the bytes of a member, those of NAME.gz unpacked.

    Reading them raises one of DAMAGE if the file has changed.
    """


class ArchivedBitext:
  """Two members of an archive: files of lines, or a test set in WMT's SGML."""

  def __init__(self, archive: Archive, source: str, target: str):
    # What the two names share before their last dot or hyphen, without the folder:
    # training/europarl-v7.de-en.de is europarl-v7.de-en, T.es-et.et is T.es-et.
    shared = os.path.commonprefix([source, target]).split('/')[-1]
    self.name = re.split(r'[-.](?=[^-.]*$)', shared)[0]
    self.paths = archive.path, archive.path
    self._archive, self._members = archive, (source, target)
    self._origin: dict = {}
    archive.wanted.update(self._members)

  def stamp(self) -> list:
    return [*file_stamp(self._archive.path), *self._members]

  def pairs(self) -> Iterator[Pair]:
    path = self._archive.path
    names = [f'{path}, {member}' for member in self._members]
    with unchanged(path), contextlib.ExitStack() as stack:
      self._archive.check()
      try:
        streams = [stack.enter_context(self._archive.member(m)) for m in self._members]
        sides = Sides(streams, names)
        yield from sides
      except DAMAGE as error:
        raise UserError(f'{path}: it changed while it was read ({error})') from error
    self._origin = {
      side: {**self._archive.origin, 'member': member, **counts}
      for side, member, counts in zip(SIDES, self._members, sides.about, strict=True)
    }

  def origin(self) -> dict:
    return self._origin
