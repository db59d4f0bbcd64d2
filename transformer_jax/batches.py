"""Token files and the batches cut from them (section 5.1).

A side of a split is two files: `.tokens`, all sentences' ids one after another as
little-endian uint16 without EOS, and `.offsets`, where each sentence starts, as int64
with one entry more than there are sentences.

Pairs are batched "by approximate sequence length" into few rectangular shapes, and
`Batches.batch(step)` is a pure function of the files, the seed and the step.
"""

import copy
import functools
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.vocabulary import EOS, PAD

TOKENS, OFFSETS = np.dtype('<u2'), np.dtype('<i8')


def write_tokens(path: pathlib.Path, sentences: Iterable[Sequence[int]]) -> int:
  """Writes PATH.tokens and PATH.offsets; returns the number of tokens."""
  offsets = [0]
  with path.with_name(path.name + '.tokens').open('wb') as file:
    for ids in sentences:
      array = np.asarray(ids, np.int64)
      if array.size and not 0 <= array.min() <= array.max() <= 65535:
        raise ValueError(f'{path}: sentence {len(offsets)} has an id beyond uint16')
      file.write(array.astype(TOKENS).tobytes())
      offsets.append(offsets[-1] + len(ids))
  np.asarray(offsets, OFFSETS).tofile(path.with_name(path.name + '.offsets'))
  return offsets[-1]


class Side:
  """One side of a split, mapped from its two files."""

  def __init__(self, path: pathlib.Path):
    tokens = path.with_name(path.name + '.tokens')
    self.offsets = np.fromfile(path.with_name(path.name + '.offsets'), OFFSETS)
    size = tokens.stat().st_size
    whole = len(self.offsets) and size == self.offsets[-1] * TOKENS.itemsize
    if not whole or self.offsets[0] or (np.diff(self.offsets) < 0).any():
      raise ValueError(
        f'{tokens}: {size} bytes, but its .offsets file says otherwise; delete '
        f'{path.parent} and run scripts.prepare_data again'
      )
    # An empty file cannot be mapped.
    self.tokens = np.memmap(tokens, TOKENS, 'r') if size else np.zeros(0, TOKENS)
    self.ends = self.offsets[1:]

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """Tokens of each sentence, its EOS counted."""
    return (self.ends - self.offsets[:-1] + 1).astype(np.int32)

  def cut(self, longest: int) -> 'Side':
    """The same sentences, none longer than `longest` with its EOS."""
    side = copy.copy(self)
    side.ends = np.minimum(self.ends, self.offsets[:-1] + longest - 1)
    side.__dict__.pop('lengths', None)
    return side

  def pad(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Sentences `rows` with EOS, padded: [len(rows), length] int32; row -1 is empty."""
    start = self.offsets[rows][:, None]
    end = np.where(rows >= 0, self.ends[rows], self.offsets[rows])[:, None]
    place = start + np.arange(length)
    block = np.full(place.shape, PAD, np.int32)
    inside = place < end
    block[inside] = self.tokens[place[inside]]
    block[(place == end) & (rows >= 0)[:, None]] = EOS
    return block


def read_split(folder: pathlib.Path, split: str) -> tuple[Side, Side]:
  """Source and target of a prepared corpus's split."""
  return Side(folder / f'{split}.source'), Side(folder / f'{split}.target')


# "About 25000 tokens" (section 5.1): how far from it a batch may be to waste no rows.
ROWS_MAY_DIFFER = 0.12


class Shape(NamedTuple):
  """What one slice of a batch holds: `rows` pairs of at most `length` tokens a side."""

  rows: int
  length: int


class Batch(NamedTuple):
  source: np.ndarray  # [slices, rows, length] int32, EOS at the end of each sentence
  target: np.ndarray  # [slices, rows, length] int32
  pairs: np.ndarray  # [slices, rows] int64, which pair of the split; -1 is padding


def choose_lengths(lengths: np.ndarray, count: int) -> list[int]:
  """The `count` lengths, the longest among them, which pad `lengths` the least.

  Dynamic programming over the distinct lengths: cost[k][j] is the least number of
  positions that hold every sentence up to the j-th length in k + 1 shapes.
  """
  values, counts = np.unique(lengths, return_counts=True)
  total = np.concatenate([[0], np.cumsum(counts)])
  cost = values * total[1:]
  cuts = []
  for _ in range(1, min(count, len(values))):
    # options[i, j]: the last shape holds lengths i..j, those before i cost what is best
    best_before = np.concatenate([[0], cost[:-1]])
    options = best_before[:, None] + values[None] * (total[None, 1:] - total[:-1, None])
    backwards = np.tri(len(values), k=-1, dtype=bool)
    options[backwards] = np.iinfo(np.int64).max
    cuts.append(options.argmin(0))
    cost = options.min(0)
  last = len(values) - 1
  chosen = [int(values[last])]
  for cut in reversed(cuts):
    last = cut[last] - 1
    if last < 0:
      break
    chosen.append(int(values[last]))
  return chosen[::-1]


def _rows(budget: float, left: float) -> int:
  """Rows of a slice: about `budget`, so that `left` of them fill whole batches."""
  usual = max(1, round(budget))
  even = math.ceil(left / max(1, round(left / usual)))
  return even if abs(even / usual - 1) <= ROWS_MAY_DIFFER else usual


class Batches:
  """The batches of one split, in an order that only (seed, step) decide.

  An epoch holds every pair once. The rows of a shape are those that come to the budget,
  or within ROWS_MAY_DIFFER of it, if that makes its class of lengths fill whole
  batches. What is left of a class is filled up from the next shorter one, so that no
  batch of an epoch but the last of the shortest lacks more than a few rows.

  Args:
    source, target: the two sides.
    tokens: about how many tokens a batch has on its longer side.
    slices: equal parts every batch is cut into.
    max_shapes: at most this many different shapes.
  """

  def __init__(
    self,
    source: Side,
    target: Side,
    *,
    tokens: int,
    slices: int,
    max_shapes: int,
    seed: int,
  ):
    if len(source) != len(target):
      raise ValueError(f'{len(source)} source but {len(target)} target sentences')
    if not len(source):
      raise ValueError('there is no sentence pair to make batches of')
    self.source, self.target = source, target
    self.slices, self.seed = slices, seed
    longest = np.maximum(source.lengths, target.lengths)
    bounds = choose_lengths(longest, max_shapes)
    classes = np.searchsorted(bounds, longest)
    # [longest class first], the pairs of each class
    self._classes = [np.flatnonzero(classes == c) for c in range(len(bounds))][::-1]
    # The batches of an epoch: shape, and from where to where of the epoch's order.
    self._table: list[tuple[Shape, int, int]] = []
    start, end = 0, 0
    for length, pairs in zip(bounds[::-1], self._classes, strict=True):
      end += len(pairs)
      mean = max(source.lengths[pairs].mean(), target.lengths[pairs].mean())
      shape = Shape(_rows(tokens / mean / slices, (end - start) / slices), length)
      while start < end:
        self._table.append((shape, start, start + shape.rows * slices))
        start += shape.rows * slices
    self.shapes = list(dict.fromkeys(shape for shape, _, _ in self._table))
    self.steps_per_epoch = len(self._table)

  @functools.lru_cache(maxsize=2)  # noqa: B019  (an epoch's order is a pure function)
  def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng([self.seed, epoch])
    pairs = np.concatenate([random.permutation(pairs) for pairs in self._classes])
    return pairs, random.permutation(len(self._table))

  def batch(self, step: int) -> Batch:
    """The batch that update number `step` (from 0) sees."""
    epoch, place = divmod(step, self.steps_per_epoch)
    pairs, order = self._order(epoch)
    shape, start, end = self._table[order[place]]
    rows = np.full(shape.rows * self.slices, -1, np.int64)
    chosen = pairs[start:end]
    rows[: len(chosen)] = chosen
    cut = lambda array: array.reshape(self.slices, shape.rows, *array.shape[1:])
    return Batch(
      cut(self.source.pad(rows, shape.length)),
      cut(self.target.pad(rows, shape.length)),
      cut(rows),
    )

  @functools.cached_property
  def padding(self) -> float:
    """The share of an epoch's positions, both sides, that hold no token."""
    real = int(self.source.lengths.sum()) + int(self.target.lengths.sum())
    positions = lambda shape: 2 * shape.rows * self.slices * shape.length
    held = sum(positions(shape) for shape, _, _ in self._table)
    return 1 - real / held
