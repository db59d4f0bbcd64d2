"""Two streams of text, read pair by pair."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from transformer_jax.data import sgml
from transformer_jax.data.lines import Lines, Pair, paired


class Sides:
  """The pairs of two streams, in one pass: of lines, or of segments of WMT's SGML.

  Args:
    streams: of source and target; they are read to their ends and not closed.
    names: what error messages call them. SGML's ends in .sgm.

  Attributes:
    about: for the card, what was read of each side. Complete once all pairs are read.
  """

  def __init__(self, streams: Sequence[BinaryIO], names: Sequence[str]):
    self._streams, self._names = streams, names
    self.about: list[dict] = []

  def __iter__(self) -> Iterator[Pair]:
    if self._names[0].endswith('.sgm'):
      segments = sgml.pairs(*(stream.read() for stream in self._streams), self._names)
      yield from segments
      self.about = [{'lines': len(segments)}] * 2
    else:
      sides = [Lines(*side) for side in zip(self._streams, self._names, strict=True)]
      yield from paired(*sides)
      self.about = [side.about() for side in sides]
