"""Finds the line where two sides of unequal length lost each other."""

import re
import zlib
from collections.abc import Sequence

import numpy as np

# What a translation often keeps: numbers, capitalized words, punctuation.
_KEPT = re.compile(r'\d+|[A-Z]\w+|[?!",:;()%/-]')


def suspicious(sources: Sequence[str | None], targets: Sequence[str | None]) -> int:
  """The first line, counted from 1, that probably does not go with its counterpart.

  The sides have unequal numbers of lines. Lines are judged by their length, numbers,
  names and punctuation.
  """
  short, long = sorted((sources, targets), key=len)
  size = lambda lines: np.log([len(line or '') + 8.0 for line in lines])
  marks = lambda lines: np.array([_marks(line or '') for line in lines], np.uint64)
  short_size, short_marks, long_size, long_marks = (
    feature(side) for side in (short, long) for feature in (size, marks)
  )

  def fit(shift: int) -> np.ndarray:
    """How well each line of `short` goes with the one `shift` lines on in `long`."""
    there = slice(shift, shift + len(short))
    lengths = np.exp(-5 * np.abs(long_size[there] - short_size)) + 0.1
    return lengths * (1 + np.bitwise_count(long_marks[there] & short_marks))

  # Before the fault, line n of `short` fits line n of `long` best. After it, line n of
  # `short` fits line n + k, if `short` lacks k lines at the fault. k may be less than
  # `missing`, because `short` may lack other lines further on.
  missing = len(long) - len(short)
  shifted = np.mean([fit(shift) for shift in {1, min(2, missing), missing}], 0)
  gain = np.concatenate([[0.0], np.cumsum(np.log(fit(0) / shifted))])
  return int(gain.argmax()) + 1


def _marks(line: str) -> int:
  """A 64-bit set of hashes of what a translation often keeps."""
  bits = {zlib.crc32(mark.encode()) % 64 for mark in _KEPT.findall(line)}
  return sum(1 << bit for bit in bits)
