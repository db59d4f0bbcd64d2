"""Where two sides stop pairing up, for the message about unequal line counts."""

import re
import zlib
from collections.abc import Sequence

import numpy as np

# What many translations keep: numbers, names, punctuation.
_KEPT = re.compile(r'\d+|[A-Z]\w+|[?!",:;()%/-]')


def suspicious(sources: Sequence[str | None], targets: Sequence[str | None]) -> int:
  """The line (from 1) from where on lines no longer go with those across from them.

  Judged by length, names, numbers and punctuation, for sides of unequal line counts.
  """
  short, long = sorted((sources, targets), key=len)
  size = lambda lines: np.log([len(line or '') + 8.0 for line in lines])
  marks = lambda lines: np.array([_marks(line or '') for line in lines], np.uint64)
  short_size, short_marks, long_size, long_marks = (
    feature(side) for side in (short, long) for feature in (size, marks)
  )

  def fit(shift: int) -> np.ndarray:
    """How well each line goes with the one `shift` lines further down."""
    there = slice(shift, shift + len(short))
    lengths = np.exp(-5 * np.abs(long_size[there] - short_size)) + 0.1
    return lengths * (1 + np.bitwise_count(long_marks[there] & short_marks))

  # Up to the place sought the lines as they stand go together best; behind it, those
  # do that are as far apart as lines are missing there: not all need be.
  missing = len(long) - len(short)
  shifted = np.mean([fit(shift) for shift in {1, min(2, missing), missing}], 0)
  gain = np.concatenate([[0.0], np.cumsum(np.log(fit(0) / shifted))])
  return int(gain.argmax()) + 1


def _marks(line: str) -> int:
  """64 bits, some set by what a translation often leaves as it is."""
  bits = {zlib.crc32(mark.encode()) % 64 for mark in _KEPT.findall(line)}
  return sum(1 << bit for bit in bits)
