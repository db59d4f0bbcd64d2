"""Cuts a split's token files into batches (section 5.1).

Pairs are batched "by approximate sequence length" into few rectangular shapes, and
`Batches.batch(step)` is a pure function of the files, the seed and the step.

Memory holds two lists of 4-byte numbers of pairs: one sorted by length class, one
shuffled for the current epoch. The sentences stay in memory-mapped files.
"""

import math
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import ml_collections
import numpy as np

from transformer_jax.data import token_files
from transformer_jax.data.token_files import BLOCK, PAD, Side
from transformer_jax.machine.errors import UserError

PAPER_TOKENS = 25_000  # source and target tokens a batch, approximately; section 5.1
ALL = slice(None)

# The number of rows may differ by this fraction from that of "approximately 25000"
# tokens, if a class of lengths then fills whole batches.
ROWS_MAY_DIFFER = 0.12

_AGAIN = 'delete the prepared corpus and run scripts.prepare_data again'


class Shape(NamedTuple):
  """The size of a slice of a batch: `rows` pairs, and the most tokens of each side."""

  rows: int
  source: int
  target: int


class Batch(NamedTuple):
  """The token ids of a batch; PAD follows the shorter sentences."""

  source: np.ndarray  # [slices, rows, L] int32, EOS at the end of each sentence
  target: np.ndarray  # [slices, rows, T] int32
  pairs: np.ndarray  # [slices, rows] int64, numbers in the split; -1 is an empty row

  @property
  def shape(self) -> Shape:
    """The shape of each of its slices."""
    return Shape(*self.source.shape[1:], self.target.shape[2])

  @property
  def target_tokens(self) -> int:
    """The number of target tokens, EOS counted."""
    return int((self.target != PAD).sum())


def choose_lengths(histogram: np.ndarray, count: int) -> list[int]:
  """Returns at most `count` lengths to pad sentences to, with the least padding.

  Dynamic programming over the distinct lengths: cost[j] is the least number of
  positions that hold every sentence up to the j-th length in the shapes so far.

  Args:
    histogram: the number of sentences of each length, from 0 on.
  """
  values = np.flatnonzero(histogram)
  total = np.concatenate([[0], np.cumsum(histogram[values])])
  cost = values * total[1:]
  cuts = []
  for _ in range(1, min(count, len(values))):
    before = np.concatenate([[0], cost[:-1]])
    cut, cost = np.zeros(len(values), np.int64), np.zeros_like(cost)
    for j, length in enumerate(values):
      # The last shape holds lengths i..j, shorter ones are at their best cost. The best
      # i never falls as j grows.
      first = cut[j - 1] if j else 0
      options = before[first : j + 1] + length * (total[j + 1] - total[first : j + 1])
      cut[j] = first + options.argmin()
      cost[j] = options.min()
    cuts.append(cut)
  last = len(values) - 1
  chosen = [int(values[last])]
  for cut in reversed(cuts):
    last = cut[last] - 1
    if last < 0:
      break
    chosen.append(int(values[last]))
  return chosen[::-1]


def _rows(usual: float, class_rows: float) -> int:
  """Returns the number of rows of a slice, about `usual`.

  It is changed a little if a class of lengths, of which a slice has `class_rows` rows
  in an epoch, then fills whole batches.
  """
  usual = max(1, round(usual))
  even = math.ceil(class_rows / max(1, round(class_rows / usual)))
  return even if abs(even / usual - 1) <= ROWS_MAY_DIFFER else usual


class Batches:
  """The batches of one split, in an order that depends on (seed, step) alone.

  An epoch has every pair once. Pairs are sorted into classes of length, one for each
  shape. Pairs of the next shorter class fill up the last batch of a class, so that all
  batches of an epoch but one are full.

  Args:
    source, target: the sentences.
    tokens: the tokens of a batch, approximately, in the language that has more.
    slices: the number of equal parts of a batch.
    max_shapes: the most different shapes.
    padded: whether `tokens` counts padding too. A batch then has about so many
      positions a side, whatever the lengths of its pairs.

  Attributes:
    shapes: of the slices of its batches.
    steps_per_epoch: the number of batches of an epoch.
    mean_tokens: source and target tokens of a batch, the mean over an epoch.
    padding: the fraction of an epoch's positions, both sides, that hold no token.

  Raises:
    UserError: there is no pair, or the numbers of sentences differ.
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
    padded: bool = False,
  ):
    if len(source) != len(target):
      raise UserError(
        f'{len(source)} source but {len(target)} target sentences: {_AGAIN}'
      )
    if not len(source):
      raise UserError(f'there is no sentence pair to make batches of: {_AGAIN}')
    self.source, self.target = source, target
    self.slices, self.seed = slices, seed
    # [3, length]: number, source tokens and target tokens of the pairs of each length.
    self._sums = np.zeros((3, max(source.longest, target.longest) + 1), np.int64)
    self._most = np.zeros_like(self._sums[1:])  # tokens of one pair's source, target
    for _, longer, sides in self._blocks():
      for most, lengths in zip(self._most, sides, strict=True):
        np.maximum.at(most, longer, lengths)
      for sums, weights in zip(self._sums, (None, *sides), strict=True):
        sums += np.bincount(longer, weights, len(sums)).astype(np.int64)
    bounds = choose_lengths(self._sums[0], max_shapes)
    self._pairs, self._ends = self._classes(bounds)
    self._cut(bounds, tokens, padded)
    self._latest: tuple = None, None  # the epoch of the last batch, and its order

  def _blocks(self) -> Iterator[tuple[int, np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Yields blocks of pairs: the first pair, their lengths, and those of each side.

    The length of a pair is that of its longer side.
    """
    for start in range(0, len(self.source), BLOCK):
      stop = min(start + BLOCK, len(self.source))
      sides = tuple(s.lengths_between(start, stop) for s in (self.source, self.target))
      yield start, np.maximum(*sides), sides

  def _classes(self, bounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs, class by class from the longest on, and the classes' ends."""
    class_of = len(bounds) - 1 - np.searchsorted(bounds, np.arange(bounds[-1] + 1))
    counts = np.zeros(len(bounds), np.int64)
    np.add.at(counts, class_of, self._sums[0])
    ends = np.cumsum(counts)
    pairs, start_of = np.empty(ends[-1], np.uint32), ends - counts
    for start, longer, _ in self._blocks():
      classes = class_of[longer]
      for i in range(len(bounds)):
        members = np.flatnonzero(classes == i)
        pairs[start_of[i] : start_of[i] + len(members)] = start + members
        start_of[i] += len(members)
    return pairs, ends

  def _cut(self, bounds: list[int], tokens: int, padded: bool) -> None:
    """Cuts an epoch's order into batches: chooses the shape and start of each."""
    self.shapes: list[Shape] = []
    starts, start, positions = [], 0, 0
    shorter = [-1, *bounds[:-1]]  # the bound of the next shorter class, -1 if none is
    for length, below, end in zip(bounds[::-1], shorter[::-1], self._ends, strict=True):
      count, *sides = self._sums[:, below + 1 : length + 1].sum(1)
      pair_tokens = length if padded else max(sides) / count
      usual = tokens / pair_tokens / self.slices
      # Shorter classes count too: their pairs fill this one's last batch.
      longest = map(int, self._most[:, : length + 1].max(1))
      shape = Shape(_rows(usual, (end - start) / self.slices), *longest)
      pairs = shape.rows * self.slices
      class_starts = np.arange(start, end, pairs)
      if len(class_starts):  # else the batch before has taken all of its pairs
        self.shapes.append(shape)
        starts.append(class_starts)
        start = class_starts[-1] + pairs
        positions += pairs * (shape.source + shape.target) * len(class_starts)
    self._starts = np.concatenate(starts)
    self._shape_of = np.repeat(np.arange(len(starts)), list(map(len, starts)))
    self.steps_per_epoch = len(self._starts)
    # The mean differs from `tokens`, because a shape has a whole number of rows: the
    # fewer they are, the more it differs.
    self.mean_tokens = tuple(self._sums[1:].sum(1) / self.steps_per_epoch)
    self.padding = 1 - int(self._sums[1:].sum()) / positions

  def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs, shuffled within their classes, and the order of batches."""
    known, order = self._latest
    if known != epoch:
      random = np.random.default_rng([self.seed, epoch])
      pairs = self._pairs.copy()
      for members in np.split(pairs, self._ends[:-1]):
        random.shuffle(members)
      order = pairs, random.permutation(self.steps_per_epoch)
      self._latest = epoch, order
    return order

  def shapes_from(self, step: int) -> list[Shape]:
    """Returns all shapes, in the order in which the batches from `step` on need them.

    Shapes that the rest of the epoch does not need come last.
    """
    epoch, index = divmod(step, self.steps_per_epoch)
    remaining = self._shape_of[self._order(epoch)[1][index:]]
    return list(dict.fromkeys([*(self.shapes[i] for i in remaining), *self.shapes]))

  def batch(self, step: int, host_slices: slice = ALL) -> Batch:
    """Returns the batch of update number `step`, counted from 0.

    Args:
      host_slices: the slices whose sentences it has; `pairs` is of all slices.
    """
    epoch, index = divmod(step, self.steps_per_epoch)
    pairs, order = self._order(epoch)
    number = order[index]
    shape, start = self.shapes[self._shape_of[number]], self._starts[number]
    rows = np.full(shape.rows * self.slices, -1, np.int64)
    chosen = pairs[start : start + len(rows)]
    rows[: len(chosen)] = chosen
    rows = rows.reshape(self.slices, shape.rows)
    ours = rows[host_slices]
    read = lambda side, length: side.pad(ours.ravel(), length).reshape(
      *ours.shape, length
    )
    return Batch(read(self.source, shape.source), read(self.target, shape.target), rows)


def train_batches(config: ml_collections.ConfigDict, folder: pathlib.Path) -> Batches:
  """Returns the batches of a prepared corpus's training set, as a config cuts them."""
  return Batches(
    *token_files.read_split(folder, 'train'),
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
