"""Dev and test that are drawn from the training text, where they have no files.

A pair is drawn by a hash of its source and the corpus's seed: the same text gives the
same pairs, whatever order it is in. Training loses all pairs with the same source.
"""

import functools
import hashlib
import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tqdm import tqdm

from transformer_jax.data import cleaning
from transformer_jax.data.cleaning import Cleaning
from transformer_jax.data.lines import SIDES, Bitext, Pair
from transformer_jax.machine.errors import UserError

# In a config, names of files that start so say how many pairs are drawn.
PREFIX = 'drawn:'


class Draw:
  """What is drawn from training text for some splits; it is read when it is needed."""

  def __init__(
    self,
    train: Sequence[Bitext],
    stems: Mapping[str, str],
    limits: Cleaning,
    seed: int,
  ):
    """`stems` maps splits to 'drawn:COUNT'. UserError unless COUNT is 1 or more."""
    self._train, self._limits, self._seed = train, limits, seed
    self._counts = {split: _count(split, stem) for split, stem in stems.items()}

  def bitext(self, split: str) -> Bitext:
    """The pairs of one split."""
    return _Drawn(self, split, self._counts[split], self._seed)

  def rest(self) -> list[Bitext]:
    """The training text without pairs whose source was drawn."""
    return [_Rest(bitext, self) for bitext in self._train]

  def of(self, split: str) -> list[tuple[str, str]]:
    """The pairs of one split, ordered by hash."""
    first = 0
    for name, count in self._counts.items():
      if name == split:
        return self._chosen[first : first + count]
      first += count
    raise KeyError(split)

  @functools.cached_property
  def sources(self) -> set[str]:
    return {source.strip() for source, _ in self._chosen}

  @functools.cached_property
  def _chosen(self) -> list[tuple[str, str]]:
    """The good pairs of the smallest hashes, one of each source."""
    wanted = sum(self._counts.values())
    told = ' and '.join(f'{count:,} for {name}' for name, count in self._counts.items())
    print(f'drawing {told} from training, seed {self._seed}', file=sys.stderr)
    found: dict[bytes, tuple[str, str]] = {}
    largest: list[int] = []  # a heap of the negated hashes that are in `found`
    number = lambda key: -int.from_bytes(key)
    faults: Counter[str] = Counter()
    for bitext in self._train:
      for pair in tqdm(bitext.pairs(), desc='drawing', unit=' pairs', unit_scale=True):
        if (fault := cleaning.fault(pair, self._limits)) is not None:
          faults[fault] += 1
          continue
        key = hashlib.sha256(f'{self._seed}\t{pair[0].strip()}'.encode()).digest()
        if key in found:
          found[key] = min(found[key], pair)
        elif len(found) < wanted:
          found[key] = pair
          heapq.heappush(largest, number(key))
        elif number(key) > largest[0]:
          gone = -heapq.heapreplace(largest, number(key))
          del found[gone.to_bytes(len(key))]
          found[key] = pair
    if len(found) < wanted:
      without = f' (left out: {cleaning.counted(faults)})' if faults else ''
      raise UserError(
        f'training has {len(found)} good pairs of different sources{without}, and '
        f'{told} are to be drawn: give files for dev and test, or draw fewer, such as '
        '--config.data.files.dev="(\'drawn:9\',)"'
      )
    return [found[key] for key in sorted(found)]


class _Drawn:
  """One split of a Draw."""

  def __init__(self, draw: Draw, split: str, count: int, seed: int):
    self.name, self.paths = f'{count} pairs drawn from training, seed {seed}', ()
    self._draw, self._split, self._count, self._seed = draw, split, count, seed

  def stamp(self) -> list:
    return [self.name]

  def pairs(self) -> Iterator[Pair]:
    yield from self._draw.of(self._split)

  def origin(self) -> dict:
    return {side: {'lines': self._count, 'seed': self._seed} for side in SIDES}


class _Rest:
  """A bitext without the pairs whose source was drawn."""

  def __init__(self, bitext: Bitext, draw: Draw):
    self.name, self.paths = bitext.name, bitext.paths
    self._bitext, self._draw, self._left_out = bitext, draw, 0

  def stamp(self) -> list:
    return self._bitext.stamp()

  def pairs(self) -> Iterator[Pair]:
    self._left_out = 0
    for pair in self._bitext.pairs():
      if pair[0] is not None and pair[0].strip() in self._draw.sources:
        self._left_out += 1
      else:
        yield pair
    print(
      f'{self.name}: {self._left_out:,} pairs are left out of training, as their '
      'sources were drawn',
      file=sys.stderr,
    )

  def origin(self) -> dict:
    return self._bitext.origin() | {'drawn_for_dev_and_test': self._left_out}


def _count(split: str, stem: str) -> int:
  number = stem.removeprefix(PREFIX)
  if not number.isdecimal() or not int(number):
    raise UserError(
      f"files.{split}={stem!r}: {PREFIX} and a number, such as '{PREFIX}1000'"
    )
  return int(number)
