"""The readers of treebanks: the source is words, the target the tokens of their tree.

A pair has all tags; the task says what a parser learns of them. A treebank is small, so
a config can add trees of its parts: its constituents, short trees on which a parser
learns first which words to attend to, and its trees with constituents of other trees.
"""

import bisect
import itertools
import pathlib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.data import text
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.trees import Node, Tree
from transformer_jax.prepare import sources
from transformer_jax.prepare.sources import Pair, Source, Sources

MAX_SUBTREE = 12  # words
PASSES = 6  # how often each tree is altered
MAX_REPLACED = 15  # words of a constituent that is replaced


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


def read(path: pathlib.Path) -> Iterator[Tree | UserError]:
  """Yields the trees and errors of trees.parse() for a file, packed or not."""
  return trees.parse(text.read_lines(path), str(path))


def read_whole(path: pathlib.Path) -> Iterator[Tree]:
  """Yields the trees of a file as read() does; raises the first flawed tree's error."""
  for tree in read(path):
    if isinstance(tree, UserError):
      raise tree
    yield tree


def pair(tree: Tree) -> Pair:
  """Returns the line of a tree's words and the line of its tokens."""
  return ' '.join(tree.words), ' '.join(tree.tokens)


def read_splits(
  raw_dir: pathlib.Path, files: Mapping[str, Sequence[str]], seed: int
) -> Sources:
  """Returns the trees of each split's files, without flawed ones in training.

  Args:
    files: names by split. NAME is raw_dir/NAME.mrg, and a name of WSJ is sections of
      the Wall Street Journal. NAME+subtrees are the short constituents of either,
      NAME+substituted their trees with constituents of each other.
    seed: of the substitutions.

  Raises:
    UserError: a file or the sections are missing, or a file is both packed and not.
  """
  return {
    split: [_source(raw_dir, name, seed, split == 'train') for name in names]
    for split, names in files.items()
  }


def _source(raw_dir: pathlib.Path, name: str, seed: int, leave_out: bool) -> Source:
  if name.endswith('+subtrees'):
    stem = name.removesuffix('+subtrees')
    return subtrees(_source(raw_dir, stem, seed, leave_out))
  if name.endswith('+substituted'):
    stem = name.removesuffix('+substituted')
    return substitute(_source(raw_dir, stem, seed, leave_out), seed)
  if name in WSJ:
    return _wall_street_journal(raw_dir, WSJ[name])
  path = sources.find_file(raw_dir, f'{name}.mrg')
  return _treebank(path.name, [path], leave_out)


def _wall_street_journal(raw_dir: pathlib.Path, sections: Sections) -> Source:
  """Returns sections of the Penn Treebank; none of their trees may be missing."""
  folders = [raw_dir / folder for folder in _FOLDERS]
  folder = next((folder for folder in folders if (folder / '23').is_dir()), None)
  if folder is None:
    raise UserError(
      f'{raw_dir}: no sections of the Penn Treebank, such as WSJ/23/wsj_2300.mrg; the '
      'LDC has them (LDC99T42)'
    )
  first, last, count = sections
  name = f'WSJ {first:02}' + (f' to {last:02}' if last != first else '')
  numbers = range(first, last + 1)
  paths = (path for n in numbers for path in sorted(folder.glob(f'{n:02}/*')))
  files = [path for path in paths if path.suffix.lower() == '.mrg']
  return _treebank(name, files, False, count=count)


def _treebank(
  name: str,
  paths: Sequence[pathlib.Path],
  leave_out: bool,
  count: int | None = None,
) -> Source:
  """Returns the trees of files.

  Args:
    leave_out: whether to yield the error of a flawed tree, or to raise it.
    count: how many trees the files must have.
  """

  def pairs() -> Iterator[Pair | UserError]:
    number = 0
    for tree in itertools.chain.from_iterable(map(read, paths)):
      number += 1
      if not isinstance(tree, UserError):
        yield pair(tree)
      elif leave_out:
        yield tree
      else:
        raise tree
    if count not in (None, number):
      raise UserError(f'{name} should be {count:,} trees, and --raw_dir has {number:,}')

  return Source(name, tuple(paths), pairs)


def subtrees(treebank: Source) -> Source:
  """Returns a treebank's constituents of 2 to MAX_SUBTREE words, each of them once."""

  def pairs() -> Iterator[Pair]:
    seen = set()
    for whole in _trees(treebank):
      for node, _ in trees.nest(whole).constituents():
        part = node.of(whole)
        lines = pair(part)
        if 1 < len(part.words) <= MAX_SUBTREE and part != whole and lines not in seen:
          seen.add(lines)
          yield lines

  name = f'subtrees of {treebank.name}'
  return Source(name, treebank.files, pairs, is_derived=True)


def substitute(treebank: Source, seed: int) -> Source:
  """Returns a treebank's trees with constituents replaced by others (Shi 2021).

  Each tree is altered PASSES times. In a tree of n words, 1 + n // 8 constituents are
  replaced, or fewer if not as many are disjoint. Each has at most MAX_REPLACED
  words, and is not the root's child. Its replacement is a random such constituent of
  the treebank with the same label and the same parent label, of at most 2m + 3 words in
  place of m. Trees that are not new are left out. The same seed makes the same trees.
  """

  def pairs() -> Iterator[Pair]:
    originals = [*_trees(treebank)]
    spans = [[*_replaceable(tree)] for tree in originals]
    parts: dict[tuple[str, str], list[Tree]] = defaultdict(list)
    for tree, replaceable in zip(originals, spans, strict=True):
      for node, parent in replaceable:
        parts[node.label, parent].append(node.of(tree))
    for same_label in parts.values():
      same_label.sort(key=_size)
    rng = random.Random(seed)
    seen = {pair(tree) for tree in originals}
    for _ in range(PASSES):
      for tree, replaceable in zip(originals, spans, strict=True):
        new = _replace(tree, _disjoint(tree, replaceable, rng), parts, rng)
        if (lines := pair(new)) not in seen:
          seen.add(lines)
          yield lines

  name = f'substituted trees of {treebank.name}'
  return Source(name, treebank.files, pairs, is_derived=True)


Span = tuple[Node, str]  # a constituent, and its parent's label


def _replaceable(tree: Tree) -> Iterator[Span]:
  for node, parent in trees.nest(tree).constituents():
    if parent != trees.ROOT and node.word_end - node.word <= MAX_REPLACED:
      yield node, parent


def _trees(treebank: Source) -> Iterator[Tree]:
  for lines in treebank.pairs():
    if not isinstance(lines, UserError):
      yield Tree(*(line.split(' ') for line in lines if line is not None))


def _size(tree: Tree) -> int:
  return len(tree.words)


def _disjoint(tree: Tree, spans: list[Span], rng: random.Random) -> list[Span]:
  """Returns random disjoint spans in order: 1 + n // 8 at most, of n words."""
  chosen: list[Span] = []
  for span in rng.sample(spans, len(spans)):
    if len(chosen) > len(tree.words) // 8:
      break
    node, _ = span
    if all(node.token >= s.token_end or s.token >= node.token_end for s, _ in chosen):
      chosen.append(span)
  return sorted(chosen, key=lambda span: span[0].token)


def _replace(
  tree: Tree,
  spans: list[Span],
  parts: dict[tuple[str, str], list[Tree]],
  rng: random.Random,
) -> Tree:
  """Returns the tree with a random one of `parts`, sorted by size, for each span."""
  words, tokens = [*tree.words], [*tree.tokens]
  for node, parent in reversed(spans):
    same_label = parts[node.label, parent]
    limit = 2 * (node.word_end - node.word) + 3
    fitting = bisect.bisect_right(same_label, limit, key=_size)
    part = same_label[rng.randrange(fitting)]
    words[node.word : node.word_end] = part.words
    tokens[node.token : node.token_end] = part.tokens
  return Tree(words, tokens)
