"""The batches that the token files of a split are cut into (section 5.1).

Pairs are batched "by approximate sequence length" into few rectangular shapes, and
`Batches.batch(step)` is a pure function of the files, the seed and the step. Memory
holds 8 bytes a pair; the sentences stay in memory-mapped files.
"""

import math
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from transformer_jax.data.corpus import Sentences, Split
from transformer_jax.data.vocabulary import PAD

PAPER_TOKENS = 25_000  # source and target tokens a batch, approximately; section 5.1
ALL = slice(None)

# The number of rows may differ by this fraction from that of "approximately 25000"
# tokens, if a class of lengths then fills whole batches.
ROWS_MAY_DIFFER = 0.12


class Shape(NamedTuple):
  """The size of a slice: its pairs, and the most tokens of a source and of a target."""

  rows: int
  source: int
  target: int


class Batch(NamedTuple):
  """The token ids of a batch. PAD follows the shorter sentences."""

  source: np.ndarray  # [slices, rows, L] int32, EOS at the end of each sentence
  target: np.ndarray  # [slices, rows, T] int32
  pairs: np.ndarray  # [slices, rows] int64, numbers in the split; -1 is an empty row

  @property
  def shape(self) -> Shape:
    """Returns the shape of each slice."""
    _, rows, length = self.source.shape
    return Shape(rows, length, self.target.shape[2])

  @property
  def target_tokens(self) -> int:
    """Returns the number of target tokens, EOS included."""
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

  It deviates a little if the class of lengths then fills whole batches. A slice has
  `class_rows` rows of the class in an epoch.
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
    max_shapes: the largest number of shapes.

  Attributes:
    shapes: all shapes of its slices, the longest first.
    steps_per_epoch: the number of batches of an epoch.
    mean_tokens: source and target tokens of a batch, the mean over an epoch.
    padding: the fraction of an epoch's positions that hold no token.
  """

  def __init__(
    self,
    source: Sentences,
    target: Sentences,
    *,
    tokens: int,
    slices: int,
    max_shapes: int,
    seed: int,
  ):
    self.source, self.target = source, target
    self.slices, self.seed = slices, seed
    lengths = np.stack([source.lengths, target.lengths])  # [2, pairs]
    # The class of a pair is the shortest that holds its longer sentence.
    longer = lengths.max(0)
    bounds = choose_lengths(np.bincount(longer), max_shapes)
    of_length = len(bounds) - 1 - np.searchsorted(bounds, np.arange(bounds[-1] + 1))
    class_of = of_length.astype(np.int16)[longer]  # [pairs]; 0 is the longest class
    # All pairs, class by class, and where each class ends.
    self._pairs = np.argsort(class_of, kind='stable').astype(np.uint32)
    self._ends = np.cumsum(np.bincount(class_of, minlength=len(bounds)))
    self._cut(lengths.take(self._pairs, 1), tokens)
    self._latest: tuple[Any, Any] = None, None  # the epoch of the last batch, its order

  def _cut(self, lengths: np.ndarray, tokens: int) -> None:
    """Cuts an epoch's order into batches: chooses the shape and start of each.

    Args:
      lengths: of source and target sentences, in the order of `_pairs`: [2, pairs].
    """
    self.shapes: list[Shape] = []
    starts, start, positions = [], 0, 0
    for first, end in zip([0, *self._ends], self._ends, strict=False):
      members = lengths[:, first:end]
      usual = tokens / members.mean(1).max() / self.slices
      # Shorter classes count too: their pairs fill up the last batch of this class.
      longest = map(int, lengths[:, first:].max(1))
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
    totals = lengths.sum(1, dtype=np.int64)
    # The mean differs from `tokens`, because a shape has a whole number of rows: the
    # fewer they are, the more it differs.
    self.mean_tokens = tuple(totals / self.steps_per_epoch)
    self.padding = 1 - int(totals.sum()) / positions

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
      host_slices: the slices whose sentences it has. `pairs` are those of all slices.
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
    pad = lambda text, length: text.pad(ours.ravel(), length).reshape(*ours.shape, -1)
    return Batch(pad(self.source, shape.source), pad(self.target, shape.target), rows)


def train_batches(config: ml_collections.ConfigDict, train: Split) -> Batches:
  """Returns the batches of a training set, as a config cuts them."""
  return Batches(
    *train,
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
