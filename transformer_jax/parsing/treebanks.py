"""The readers of treebanks: the source is words, the target the tokens of their tree.

A pair has all tags; target() says what a parser learns of them. A treebank is small, so
more trees can be made of it: its constituents, short trees on which a parser learns
first which words to attend to, and its trees with constituents of other trees in them.
"""

import bisect
import functools
import itertools
import pathlib
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.data import text
from transformer_jax.data.corpus import Pair, Source, Splits
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.trees import Span, Tree


class Sections(NamedTuple):
  """A split of the Wall Street Journal, the same for all parsers since Collins 1997."""

  first: int
  last: int
  trees: int


# By what a config calls them among its files.
WSJ = {
  'wsj.02-21': Sections(2, 21, 39_832),
  'wsj.22': Sections(22, 22, 1_700),
  'wsj.23': Sections(23, 23, 2_416),
}
# Where the sections lie below --raw_dir; the last is the LDC's own folder.
_FOLDERS = ('', 'WSJ', 'wsj', 'parsed/mrg/wsj')
_RANGE = re.compile(r'(?P<stem>.+):(?P<first>\d+)-(?P<last>\d+)')


def read(path: pathlib.Path, first: int = 1, last: int | None = None) -> Iterator[Tree]:
  """Yields the trees of a file, normalised; it may be compressed.

  Args:
    first, last: the numbers of the trees to read, from 1; None is to the end. What
      comes after the last is not looked at.

  Raises:
    UserError: the file cannot be read, or a tree is flawed; the line is named.
  """
  for tree in read_flawed(path, first, last):
    if isinstance(tree, UserError):
      raise tree
    yield tree


def read_flawed(
  path: pathlib.Path, first: int = 1, last: int | None = None
) -> Iterator[Tree | UserError]:
  """Yields trees as read() does, and an error in place of each flawed tree."""
  all_trees = trees.parse_flawed(_text(path), str(path))
  yield from itertools.islice(all_trees, first - 1, last)


def _text(path: pathlib.Path) -> Iterator[str]:
  for number, line in enumerate(text.read_lines(path), 1):
    if line is None:
      raise UserError(f'{path}, line {number}: not UTF-8')
    yield line


def pair(tree: Tree) -> Pair:
  """Returns the line of a tree's words and the line of its tokens."""
  return ' '.join(tree.words), ' '.join(tree.tokens)


MOST_SUBTREE = 12  # words
PASSES = 6  # in which each tree is altered
MOST_SUBSTITUTED = 15  # words of a constituent that is replaced


def tree_file(
  path: pathlib.Path, part: tuple[int, int] | None, leave_out: bool
) -> Source:
  """Returns the trees of one file, or of a part of it.

  Args:
    part: the numbers of the first and the last tree, from 1; None is all of them.
    leave_out: yields an error in place of a flawed tree; otherwise raises it.
  """
  name = path.name + (f', trees {part[0]} to {part[1]}' if part else '')
  first, last = part or (1, None)

  def pairs() -> Iterator[Pair | UserError]:
    count = 0
    for tree in read_flawed(path, first, last):
      count += 1
      if not isinstance(tree, UserError):
        yield pair(tree)
      elif leave_out:
        yield tree
      else:
        raise tree
    if last is not None and count != last - first + 1:
      raise UserError(
        f'{path} has {count} trees from number {first} on, {name} are '
        f'{last - first + 1}'
      )

  return Source(name, (path,), pairs)


def wall_street_journal(folder: pathlib.Path, sections: Sections) -> Source:
  """Returns sections of the Penn Treebank; none of their trees may be missing."""
  first, last = (f'{n:02}' for n in sections[:2])
  name = f'WSJ {first}' + (f' to {last}' if last != first else '')
  files = []
  for number in range(sections.first, sections.last + 1):
    section = folder / f'{number:02}'
    paths = [p for p in section.glob('*') if p.suffix.lower() == '.mrg']
    if not paths:
      raise UserError(f'{section}: no files *.mrg; {name} need them')
    files += sorted(paths)

  def pairs() -> Iterator[Pair]:
    count = 0
    for path in files:
      for tree in read(path):
        count += 1
        yield pair(tree)
    if count != sections.trees:
      raise UserError(
        f'{folder}: {name} has {count:,} trees, the Penn Treebank has '
        f'{sections.trees:,}: get the whole of it, or no score compares'
      )

  return Source(name, tuple(files), pairs)


def subtrees(treebank: Source) -> Source:
  """Returns a treebank's constituents of 2 to MOST_SUBTREE words, each of them once."""

  def pairs() -> Iterator[Pair]:
    seen = set()
    for whole in _trees(treebank):
      for span in trees.constituents(whole):
        part = span.of(whole)
        lines = pair(part)
        if 1 < len(part.words) <= MOST_SUBTREE and part != whole and lines not in seen:
          seen.add(lines)
          yield lines

  return Source(f'subtrees of {treebank.name}', treebank.files, pairs, is_text=False)


def substituted(treebank: Source, seed: int) -> Source:
  """Returns a treebank's trees with constituents replaced by others (Shi 2021).

  Each tree is altered PASSES times. In a tree of n words, 1 + n // 8 constituents are
  replaced, or fewer if not as many are disjoint. Each has at most MOST_SUBSTITUTED
  words. Its replacement is a random constituent of the treebank with the same label and
  the same parent label. In place of m words it has at most 2m + 3. Trees that are not
  new are left out. All trees are in memory.

  Args:
    seed: the same seed makes the same trees.
  """

  def pairs() -> Iterator[Pair]:
    originals = [*_trees(treebank)]
    spans = [[s for s in trees.constituents(t) if _is_part(s)] for t in originals]
    parts: dict[tuple[str, str], list[Tree]] = defaultdict(list)
    for tree, of_tree in zip(originals, spans, strict=True):
      for span in of_tree:
        parts[span.label, span.parent].append(span.of(tree))
    for same_label in parts.values():
      same_label.sort(key=_size)
    rng = random.Random(seed)
    seen = {pair(tree) for tree in originals}
    for _ in range(PASSES):
      for tree, of_tree in zip(originals, spans, strict=True):
        new = _replace(tree, _disjoint(tree, of_tree, rng), parts, rng)
        if (lines := pair(new)) not in seen:
          seen.add(lines)
          yield lines

  name = f'substituted trees of {treebank.name}'
  return Source(name, treebank.files, pairs, is_text=False)


def _is_part(span: Span) -> bool:
  return bool(span.parent) and span.word_end - span.word <= MOST_SUBSTITUTED


def read_splits(
  raw_dir: pathlib.Path, files: Mapping[str, Sequence[str]], seed: int
) -> Splits:
  """Returns the trees of each split's files, without flawed ones in training.

  Args:
    files: names by split. NAME is raw_dir/NAME.mrg, NAME:1-3000 its trees 1 to 3000,
      and a name of WSJ is sections of the Wall Street Journal. NAME+subtrees are the
      short constituents of any of these, NAME+substituted their trees with constituents
      of each other.
    seed: of the substitutions.

  Raises:
    UserError: there is no such file, or there are several, or no sections.
  """
  splits = {}
  for split, names in files.items():
    stem = functools.cache(
      functools.partial(_treebank, raw_dir, leave_out=split == 'train')
    )
    splits[split] = [_named(name, stem, seed) for name in names]
  return splits


def target(tags: bool, numbers: bool) -> Callable[[str], str]:
  """Returns the map from a pair's tokens to what a parser learns to write.

  Args:
    tags: whether it writes all tags, or one tag for every word.
    numbers: whether it writes the words' numbers.
  """

  def written(line: str) -> str:
    tokens = line.split(' ')
    tokens = tokens if tags else trees.without_tags(tokens)
    return ' '.join(trees.numbered(tokens) if numbers else tokens)

  return written


def _named(name: str, treebank: Callable[[str], Source], seed: int) -> Source:
  stem, _, parts = name.rpartition('+')
  if stem and parts == 'subtrees':
    return subtrees(treebank(stem))
  if stem and parts == 'substituted':
    return substituted(treebank(stem), seed)
  return treebank(name)


def _treebank(raw_dir: pathlib.Path, stem: str, leave_out: bool) -> Source:
  if stem in WSJ:
    return wall_street_journal(_journal(raw_dir), WSJ[stem])
  part = _RANGE.fullmatch(stem)
  path = text.find_file(raw_dir, f'{part["stem"] if part else stem}.mrg')
  if part is None:
    return tree_file(path, None, leave_out)
  first, last = int(part['first']), int(part['last'])
  if not 1 <= first <= last:
    raise UserError(
      f'{stem}: trees are numbered from 1, and the first comes before the last, as in '
      f'{part["stem"]}:1-3000 (--config.data.files)'
    )
  return tree_file(path, (first, last), leave_out)


def _journal(raw_dir: pathlib.Path) -> pathlib.Path:
  """Returns the folder of the Wall Street Journal's sections."""
  for folder in _FOLDERS:
    if (raw_dir / folder / '23').is_dir():
      return raw_dir / folder
  raise UserError(
    f'{raw_dir}: no sections of the Penn Treebank, such as WSJ/23/wsj_2300.mrg; the '
    'LDC has them (LDC99T42)'
  )


def _trees(treebank: Source) -> Iterator[Tree]:
  for lines in treebank.pairs():
    if not isinstance(lines, UserError):
      yield Tree(*(line.split(' ') for line in lines))


def _size(tree: Tree) -> int:
  return len(tree.words)


def _disjoint(tree: Tree, spans: list[Span], rng: random.Random) -> list[Span]:
  """Returns random disjoint spans in order: 1 + n // 8 at most, of n words."""
  chosen: list[Span] = []
  for span in rng.sample(spans, len(spans)):
    if len(chosen) > len(tree.words) // 8:
      break
    if all(span.token >= s.token_end or s.token >= span.token_end for s in chosen):
      chosen.append(span)
  return sorted(chosen, key=lambda span: span.token)


def _replace(
  tree: Tree,
  spans: list[Span],
  parts: dict[tuple[str, str], list[Tree]],
  rng: random.Random,
) -> Tree:
  """Returns the tree with a random one of `parts`, sorted by size, for each span."""
  words, tokens = [*tree.words], [*tree.tokens]
  for span in reversed(spans):
    same_label = parts[span.label, span.parent]
    most = 2 * (span.word_end - span.word) + 3
    fitting = bisect.bisect_right(same_label, most, key=_size)
    part = same_label[rng.randrange(fitting)]
    words[span.word : span.word_end] = part.words
    tokens[span.token : span.token_end] = part.tokens
  return Tree(words, tokens)
