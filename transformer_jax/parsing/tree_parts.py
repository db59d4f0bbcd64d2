"""More trees to learn from, made of the constituents of a treebank's trees.

A treebank is small, so more trees are made of it. `Subtrees` gives its constituents:
short trees, on which a parser learns first which words to attend to. `Substituted`
gives whole trees in which constituents are replaced by those of other trees
(substructure substitution, Shi et al. 2021).
"""

import bisect
import random
from collections import defaultdict
from collections.abc import Iterator

from transformer_jax.data.lines import Bitext, Pair
from transformer_jax.parsing import trees
from transformer_jax.parsing.trees import Span, Tree


def pair(tree: Tree) -> Pair:
  """A tree as the lines of its words and its tokens."""
  return ' '.join(tree.words), ' '.join(tree.tokens)


class Subtrees:
  """A Bitext of a treebank's constituents of 2 to MOST words, each of them once."""

  MOST = 12

  def __init__(self, treebank: Bitext):
    self.name = f'subtrees of {treebank.name}'
    self.paths = treebank.paths
    self._treebank = treebank

  def stamp(self) -> list:
    return [*self._treebank.stamp(), self.MOST]

  def pairs(self) -> Iterator[Pair]:
    seen = set()
    for whole in _trees(self._treebank):
      for span in trees.constituents(whole):
        part = span.of(whole)
        lines = pair(part)
        if 1 < len(part.words) <= self.MOST and part != whole and lines not in seen:
          seen.add(lines)
          yield lines

  def origin(self) -> dict:
    return self._treebank.origin()


class Substituted:
  """A Bitext of new trees: a treebank's, with constituents replaced by other ones.

  Each tree is altered PASSES times. In a tree of n words, 1 + n // 8 constituents are
  replaced, or fewer if not as many are disjoint. Each has at most MOST words. Its
  replacement is a random constituent of the treebank with the same label and the same
  parent label. In place of m words it has at most 2m + 3. Trees that are not new are
  left out. All trees are in memory.

  Args:
    seed: the same seed makes the same trees.
  """

  PASSES = 6
  MOST = 15

  def __init__(self, treebank: Bitext, seed: int):
    self.name = f'substituted trees of {treebank.name}'
    self.paths = treebank.paths
    self._treebank, self._seed = treebank, seed

  def stamp(self) -> list:
    return [*self._treebank.stamp(), self.PASSES, self.MOST, self._seed]

  def pairs(self) -> Iterator[Pair]:
    given = [*_trees(self._treebank)]
    spans = [[s for s in trees.constituents(t) if self._is_part(s)] for t in given]
    parts: dict[tuple[str, str], list[Tree]] = defaultdict(list)
    for tree, found in zip(given, spans, strict=True):
      for span in found:
        parts[span.label, span.parent].append(span.of(tree))
    for alike in parts.values():
      alike.sort(key=_size)
    chance = random.Random(self._seed)
    seen = {pair(tree) for tree in given}
    for _ in range(self.PASSES):
      for tree, found in zip(given, spans, strict=True):
        made = _replaced(tree, _apart(tree, found, chance), parts, chance)
        if (lines := pair(made)) not in seen:
          seen.add(lines)
          yield lines

  def _is_part(self, span: Span) -> bool:
    return bool(span.parent) and span.word_end - span.word <= self.MOST

  def origin(self) -> dict:
    return self._treebank.origin()


def _trees(treebank: Bitext) -> Iterator[Tree]:
  for words, tokens in treebank.pairs():
    yield Tree(words.split(' '), tokens.split(' '))


def _size(tree: Tree) -> int:
  return len(tree.words)


def _apart(tree: Tree, spans: list[Span], chance: random.Random) -> list[Span]:
  """Random disjoint spans of a tree of n words, at most 1 + n // 8, in order."""
  chosen: list[Span] = []
  for span in chance.sample(spans, len(spans)):
    if len(chosen) > len(tree.words) // 8:
      break
    if all(span.token >= s.token_end or s.token >= span.token_end for s in chosen):
      chosen.append(span)
  return sorted(chosen, key=lambda span: span.token)


def _replaced(
  tree: Tree,
  spans: list[Span],
  parts: dict[tuple[str, str], list[Tree]],
  chance: random.Random,
) -> Tree:
  """The tree with a random part in place of each span, from `parts` sorted by size."""
  words, tokens = [*tree.words], [*tree.tokens]
  for span in reversed(spans):
    alike = parts[span.label, span.parent]
    most = 2 * (span.word_end - span.word) + 3
    part = alike[chance.randrange(bisect.bisect_right(alike, most, key=_size))]
    words[span.word : span.word_end] = part.words
    tokens[span.token : span.token_end] = part.tokens
  return Tree(words, tokens)
