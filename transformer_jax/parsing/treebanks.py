"""The readers of treebanks: the source is words, the target the tokens of their tree.

A pair has all tags; target() says what a parser learns of them. A treebank is small, so
more trees can be made of it: its constituents, short trees on which a parser learns
first which words to attend to, and its trees with constituents of other trees in them.
"""

import bisect
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

MOST_SUBTREE = 12  # words
PASSES = 6  # how often each tree is altered
MOST_SUBSTITUTED = 15  # words of a constituent that is replaced


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


def read(path: pathlib.Path) -> Iterator[Tree]:
  """Yields the trees of a file, normalised; it may be compressed.

  Raises:
    UserError: the file cannot be read, or a tree is flawed; the line is named.
  """
  return trees.parse(_lines(path), str(path))


def read_flawed(path: pathlib.Path) -> Iterator[Tree | UserError]:
  """Yields trees as read() does, and an error in place of each flawed tree."""
  return trees.parse_flawed(_lines(path), str(path))


def _lines(path: pathlib.Path) -> Iterator[str]:
  for number, line in enumerate(text.read_lines(path), 1):
    if line is None:
      raise UserError(f'{path}, line {number}: not UTF-8')
    yield line


def pair(tree: Tree) -> Pair:
  """Returns the line of a tree's words and the line of its tokens."""
  return ' '.join(tree.words), ' '.join(tree.tokens)


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
    UserError: a file or the sections are missing, or a file is there twice, packed and
      not.
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
    return substituted(_source(raw_dir, stem, seed, leave_out), seed)
  if name in WSJ:
    return _wall_street_journal(raw_dir, WSJ[name])
  part = _RANGE.fullmatch(name)
  stem = part['stem'] if part else name
  path = text.find_file(raw_dir, f'{stem}.mrg')
  if not part:
    return _treebank(path.name, [path], leave_out)
  first, last = int(part['first']), int(part['last'])
  if not 1 <= first <= last:
    raise UserError(
      f'{name}: trees are numbered from 1, and the first comes before the last, as in '
      f'{stem}:1-3000 (--config.data.files)'
    )
  name = f'{path.name}, trees {first} to {last}'
  chosen = slice(first - 1, last)
  return _treebank(name, [path], leave_out, chosen, last - first + 1)


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
  files = []
  for number in range(first, last + 1):
    section = folder / f'{number:02}'
    paths = [p for p in section.glob('*') if p.suffix.lower() == '.mrg']
    if not paths:
      raise UserError(f'{section}: no files *.mrg; {name} need them')
    files += sorted(paths)
  return _treebank(name, files, False, count=count)


def _treebank(
  name: str,
  paths: Sequence[pathlib.Path],
  leave_out: bool,
  chosen: slice = slice(None),
  count: int | None = None,
) -> Source:
  """Returns the trees of files.

  Args:
    leave_out: yield an error in place of a flawed tree; otherwise raise it.
    chosen: which trees, from 0; those after them are not read.
    count: how many trees there have to be.
  """

  def pairs() -> Iterator[Pair | UserError]:
    number = 0
    all_trees = itertools.chain.from_iterable(map(read_flawed, paths))
    for tree in itertools.islice(all_trees, chosen.start, chosen.stop):
      number += 1
      if not isinstance(tree, UserError):
        yield pair(tree)
      elif leave_out:
        yield tree
      else:
        raise tree
    if count not in (None, number):
      raise UserError(
        f'{paths[0].parent}: {name} should be {count:,} trees, and it has {number:,}'
      )

  return Source(name, tuple(paths), pairs)


def target(tags: bool, numbers: bool) -> Callable[[str], str]:
  """Returns the map from a pair's tokens to what a parser learns to write.

  Args:
    tags: whether it writes all tags, or one tag for every word.
    numbers: whether it writes the words' numbers.
  """

  def written(line: str) -> str:
    tokens = line.split(' ')
    tokens = tokens if tags else trees.without_tags(tokens)
    return ' '.join(trees.number_words(tokens) if numbers else tokens)

  return written


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
    for tree, own in zip(originals, spans, strict=True):
      for span in own:
        parts[span.label, span.parent].append(span.of(tree))
    for same_label in parts.values():
      same_label.sort(key=_size)
    rng = random.Random(seed)
    seen = {pair(tree) for tree in originals}
    for _ in range(PASSES):
      for tree, own in zip(originals, spans, strict=True):
        new = _replace(tree, _disjoint(tree, own, rng), parts, rng)
        if (lines := pair(new)) not in seen:
          seen.add(lines)
          yield lines

  name = f'substituted trees of {treebank.name}'
  return Source(name, treebank.files, pairs, is_text=False)


def _is_part(span: Span) -> bool:
  return bool(span.parent) and span.word_end - span.word <= MOST_SUBSTITUTED


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
