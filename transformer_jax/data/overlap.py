"""How much of dev and test is in the training text too: pairs, sources and targets.

No pair is dropped because of an overlap. The training text is not kept in memory.
"""

from collections.abc import Mapping, Sequence

KINDS = ('pairs', 'sources', 'targets')


class Overlap:
  """Looks for the text of dev and test, byte for byte.

  Args:
    splits: the pairs of each split.
  """

  def __init__(self, splits: Mapping[str, Sequence[tuple[str, str]]]):
    self._splits = {split: _lines(pairs) for split, pairs in splits.items()}
    kinds = zip(*self._splits.values(), strict=True)
    self._sought = [set().union(*lines) for lines in kinds]
    self._found: list[set] = [set() for _ in KINDS]

  def look(self, sources: Sequence[bytes], targets: Sequence[bytes]) -> None:
    """Searches lines of training pairs, with the line feeds at their ends."""
    given = zip(sources, targets, strict=True), sources, targets
    for found, sought, lines in zip(self._found, self._sought, given, strict=True):
      found |= sought.intersection(lines)

  def counts(self) -> dict[str, dict[str, int]]:
    """For each split and kind, how many of its lines were found."""
    return {
      split: {
        kind: sum(line in found for line in some)
        for kind, found, some in zip(KINDS, self._found, lines, strict=True)
      }
      for split, lines in self._splits.items()
    }


def _lines(pairs: Sequence[tuple[str, str]]) -> tuple[list, list[bytes], list[bytes]]:
  """All pairs, sources and targets, as a file has them."""
  coded = [(f'{source}\n'.encode(), f'{target}\n'.encode()) for source, target in pairs]
  return coded, [source for source, _ in coded], [target for _, target in coded]
