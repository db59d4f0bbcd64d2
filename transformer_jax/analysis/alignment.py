"""Which pieces of two sentences translate each other, by IBM's Model 1."""

from collections.abc import Sequence

import numpy as np

Ids = Sequence[int] | np.ndarray


class Aligner:
  """Model 1 (Brown et al. 1993) of both directions, learnt from pairs of sentences."""

  def __init__(self, pairs: Sequence[tuple[Ids, Ids]], rounds: int = 6):
    self._onto = _Model1(pairs, rounds)
    self._back = _Model1([pair[::-1] for pair in pairs], rounds)

  def links(self, source: Ids, target: Ids) -> np.ndarray:
    """The pairs of positions that are best for each other both ways: [T, S] bool."""
    onto, back = self._onto.table(source, target), self._back.table(target, source).T
    best_source = onto == onto.max(1, keepdims=True, initial=0)
    best_target = back == back.max(0, keepdims=True, initial=0)
    return best_source & best_target & (onto > 0) & (back > 0)


class _Model1:
  """t(target piece | source piece), by expectation maximisation."""

  def __init__(self, pairs: Sequence[tuple[Ids, Ids]], rounds: int):
    keys, positions, count = [], [], 0
    for source, target in pairs:
      keys.append(_keys(source, target).ravel())
      at = count + np.arange(len(target))
      # The target position of each key: a position's shares sum to 1.
      positions.append(np.repeat(at, len(source)))
      count += len(target)
    self._keys, which = np.unique(np.concatenate(keys), return_inverse=True)
    position, given = np.concatenate(positions), self._keys >> 32
    _, given = np.unique(given, return_inverse=True)
    self._t = np.ones(len(self._keys))
    for _ in range(rounds):
      share = self._t[which]
      share /= np.bincount(position, share, count)[position]
      expected = np.bincount(which, share, len(self._keys))
      self._t = expected / np.bincount(given, expected)[given]

  def table(self, source: Ids, target: Ids) -> np.ndarray:
    """t of each target position given each source position: [T, S], 0 if never met."""
    asked = _keys(source, target)
    place = np.searchsorted(self._keys, asked).clip(max=len(self._keys) - 1)
    return np.where(self._keys[place] == asked, self._t[place], 0)


def _keys(source: Ids, target: Ids) -> np.ndarray:
  """A number for each pair of pieces: [T, S], the source's in the upper 32 bits."""
  source, target = (np.asarray(side, np.int64) for side in (source, target))
  return (source[None] << 32) + target[:, None]
