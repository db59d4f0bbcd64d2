"""A baseline for parsing: a PCFG read off the trees, and a best tree by CKY, pruned.

A constituent's symbol includes its parent's label (v = 2). The rest of a binarised rule
includes the label of the child before it (h = 1; Klein and Manning 2003). A chain of
constituents with one child each is one symbol, so that all rules are binary. Words that
are rare or unknown are classed by their capitals, digits and endings.
"""

import dataclasses
import itertools
import math
import pathlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb, treebanks, trees
from transformer_jax.parsing.evalb import Parsing
from transformer_jax.parsing.trees import ROOT, Node, Tree
from transformer_jax.parsing.words import word_shape

_BEAM = 10.0  # nats that a symbol may be worse than the best one of its span
_TRUST = 2.0  # pseudo-count of the less specific estimate in smoothing
_RARE = 1  # words of at most this count stand for unknown words
_MAX_SYMBOLS = 60  # symbols that a word may have


class Symbol(NamedTuple):
  """A non-terminal of the grammar, which has rules for it and appears in others."""

  labels: tuple[str, ...]  # of a chain, from its top; of a word, its tag is the last
  parent: str  # label of the constituent around it
  before: str | None = None  # for the rest of a binarised rule: the label before it


Rule = tuple[Symbol, Symbol, Symbol]  # left-hand side and two children


class Lexicon:
  """Estimates how probable each symbol of a word is."""

  def __init__(self, leaves: Counter[tuple[str, bool, Symbol]]):
    """Reads the counts of (word, whether it begins a sentence, symbol)."""
    self._symbols: dict[str, Counter[Symbol]] = defaultdict(Counter)
    self._tags: dict[str, Counter[str]] = defaultdict(Counter)
    self._all: Counter[Symbol] = Counter()
    self._by_tag: dict[str, Counter[Symbol]] = defaultdict(Counter)
    for (word, _, symbol), count in leaves.items():
      tag = symbol.labels[-1]
      self._symbols[word][symbol] += count
      self._tags[word][tag] += count
      self._by_tag[tag][symbol] += count
      self._all[symbol] += count
    self._shapes: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for (word, first, symbol), count in leaves.items():
      if self._tags[word].total() <= _RARE:
        for shape in shapes(word, first):
          self._shapes[shape][symbol.labels[-1]] += count
    self._total = self._all.total()

  def scores(self, word: str, first: bool) -> dict[Symbol, float]:
    """Returns log P(word | symbol) + a constant, for the likeliest symbols."""
    tags = self._tag_probabilities(word, first)
    seen = self._symbols.get(word, Counter())
    scores = {}
    for tag, probability in tags.items():
      symbols = self._by_tag[tag]
      total = symbols.total()
      for symbol, count in symbols.items():
        general = probability * count / total
        posterior = (seen[symbol] + _TRUST * general) / (seen.total() + _TRUST)
        scores[symbol] = math.log(posterior * self._total / self._all[symbol])
    best = sorted(scores, key=lambda s: -scores[s] - math.log(self._all[s]))
    return {symbol: scores[symbol] for symbol in best[:_MAX_SYMBOLS]}

  def _tag_probabilities(self, word: str, first: bool) -> dict[str, float]:
    """Returns P(tag | word), smoothed from the least specific shape to the word."""
    tags = {tag: count.total() / self._total for tag, count in self._by_tag.items()}
    counters = [self._shapes.get(shape) for shape in shapes(word, first)]
    for counts in (*counters, self._tags.get(word)):
      if counts:
        total = counts.total() + _TRUST
        tags = {t: (counts[t] + _TRUST * p) / total for t, p in tags.items()}
    return tags


def shapes(word: str, first: bool) -> list[tuple[Any, ...]]:
  """Returns classes of an unknown word, from the widest to the narrowest."""
  shape = word_shape(word, first)
  ending = word.lower()
  return [shape, *((*shape, ending[-n:]) for n in (1, 2, 3) if len(word) > n)]


class Grammar:
  """The rules of a treebank with their probabilities."""

  def __init__(self, treebank: Iterable[Tree]):
    rules: Counter[Rule] = Counter()
    leaves: Counter[tuple[str, bool, Symbol]] = Counter()
    for tree in treebank:
      _count(tree, rules, leaves)
    self._lexicon = Lexicon(leaves)
    totals: Counter[Symbol] = Counter()
    for rule, count in rules.items():
      totals[rule[0]] += count
    frequency = totals.copy()
    for (_, _, symbol), count in leaves.items():
      frequency[symbol] += count
    self._symbols = [*frequency]
    number = {symbol: n for n, symbol in enumerate(self._symbols)}
    self._number = number
    ordered = sorted(rules, key=lambda rule: number[rule[0]])
    table = [[number[s] for s in rule] for rule in ordered]
    columns = np.array(table, int).reshape(-1, 3).T
    self._above, self._left, self._right = np.ascontiguousarray(columns)
    self._rule_scores = np.log(
      np.array([rules[r] / totals[r[0]] for r in ordered], np.float32)
    )
    counts = np.array([*frequency.values()], np.float32)
    self._prior = np.log(counts / counts.sum())
    roots = [n for s, n in number.items() if s.labels[0] == ROOT and not s.before]
    self._roots = np.array(roots)

  def parse(self, words: Sequence[str]) -> Tree | None:
    """Returns the most probable tree that pruning leaves, or None if it leaves none.

    _BEAM and _MAX_SYMBOLS prune the chart.
    """
    if not words:
      return None
    chart = _Chart(len(words), len(self._symbols))
    for i, word in enumerate(words):
      cell = np.full(len(self._symbols), -np.inf, np.float32)
      for symbol, score in self._lexicon.scores(word, i == 0).items():
        cell[self._number[symbol]] = score
      chart.put(i, i + 1, np.flatnonzero(cell > -np.inf), cell[cell > -np.inf])
    for width in range(2, len(words) + 1):
      for i in range(len(words) - width + 1):
        chart.put(i, i + width, *self._combine(chart, i, i + width))
    scores = chart.starts[0, self._roots, len(words)] + self._prior[self._roots]
    best = int(scores.argmax())
    if scores[best] == -np.inf:
      return None
    return Tree(list(words), [*self._tokens(chart, int(self._roots[best]), len(words))])

  def _combine(self, chart: '_Chart', i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the symbols that a span may have, and their scores."""
    alive = chart.starting[i][self._left] & chart.ending[j][self._right]
    rules = np.flatnonzero(alive)
    if not len(rules):
      return rules, np.zeros(0, np.float32)
    pairs = chart.starts[i, self._left[rules], i + 1 : j]
    pairs = pairs + chart.ends[j, self._right[rules], i + 1 : j]
    scores = pairs.max(1) + self._rule_scores[rules]
    above = self._above[rules]
    first = np.flatnonzero(np.diff(above, prepend=-1))
    symbols, best = above[first], np.maximum.reduceat(scores, first)
    merit = best + self._prior[symbols]
    kept = (merit > -np.inf) & (merit >= merit.max() - _BEAM)
    return symbols[kept], best[kept]

  def _tokens(self, chart: '_Chart', root: int, length: int) -> Iterator[str]:
    """Yields the tokens of the best tree of the whole sentence with `root` on top."""
    todo: list[tuple[int, int, int] | str] = [(root, 0, length)]
    while todo:
      item = todo.pop()
      if isinstance(item, str):
        yield item
        continue
      number, i, j = item
      symbol = self._symbols[number]
      labels = [] if symbol.before else [l for l in symbol.labels if l != ROOT]
      tag = [labels.pop()] if j - i == 1 else []
      yield from (f'({label}' for label in labels)
      todo += [f'){label}' for label in labels]
      todo += tag
      if j - i > 1:
        left, right, k = self._best_rule(chart, number, i, j)
        todo += [(right, k, j), (left, i, k)]

  def _best_rule(
    self, chart: '_Chart', number: int, i: int, j: int
  ) -> tuple[int, int, int]:
    """Returns the left and the right symbol, and where the right one begins."""
    at = slice(*np.searchsorted(self._above, [number, number + 1]))
    left, right = self._left[at], self._right[at]
    scores = chart.starts[i, left, i + 1 : j] + chart.ends[j, right, i + 1 : j]
    scores += self._rule_scores[at, None]
    rule, split = divmod(int(scores.argmax()), j - i - 1)
    return int(left[rule]), int(right[rule]), i + 1 + split


class _Chart:
  """Scores of all symbols of all spans, by their starts and by their ends.

  Attributes:
    starts: [start, symbol, end].
    ends: the same scores [end, symbol, start].
    starting, ending: whether any span that starts or ends there has the symbol.
  """

  def __init__(self, length: int, symbols: int):
    self.starts = np.full((length, symbols, length + 1), -np.inf, np.float32)
    self.ends = np.full((length + 1, symbols, length), -np.inf, np.float32)
    self.starting = np.zeros((length, symbols), bool)
    self.ending = np.zeros((length + 1, symbols), bool)

  def put(self, i: int, j: int, symbols: np.ndarray, scores: np.ndarray) -> None:
    self.starts[i, symbols, j] = self.ends[j, symbols, i] = scores
    self.starting[i, symbols] = self.ending[j, symbols] = True


def _count(
  tree: Tree, rules: Counter[Rule], leaves: Counter[tuple[str, bool, Symbol]]
) -> None:
  """Adds the rules and the words of a tree to the counts."""
  todo = [(trees.nest(tree), '')]
  while todo:
    node, parent = todo.pop()
    symbol, bottom = _chain(node, parent)
    if not bottom.children:
      leaves[tree.words[bottom.word], bottom.word == 0, symbol] += 1
      continue
    children = [_chain(child, bottom.label)[0] for child in bottom.children]
    above = symbol
    for child in children[:-2]:
      rest = Symbol((bottom.label,), '', child.labels[0])
      rules[above, child, rest] += 1
      above = rest
    rules[above, children[-2], children[-1]] += 1
    todo += [(child, bottom.label) for child in reversed(bottom.children)]


def _chain(node: Node, parent: str) -> tuple[Symbol, Node]:
  """Returns the symbol of a chain of only children, and the last node of the chain."""
  labels = [node.label]
  while len(node.children) == 1:
    node = node.children[0]
    labels.append(node.label)
  return Symbol(tuple(labels), parent), node


@dataclasses.dataclass(frozen=True)
class Baseline:
  """The scores of a parser that is not a run, which Table 4 shows beside runs."""

  kind: Literal['baseline of parsing']
  parser: str
  train: list[str]  # files of trees
  test: str
  parsing: Parsing
  device: str
  commit: str | None  # None outside a checkout


def read_baseline(path: pathlib.Path) -> Baseline | None:
  """Reads a Baseline's JSON; returns None if the file is something else."""
  try:
    return msgspec.json.decode(path.read_bytes(), type=Baseline)
  except (OSError, msgspec.DecodeError):
    return None


def _whole(path: pathlib.Path) -> list[Tree]:
  """Returns the trees of a file, without the flawed ones."""
  both = [*treebanks.read(path)]
  flaws = [tree for tree in both if isinstance(tree, UserError)]
  if flaws:
    print(f'{len(flaws)} of {len(both):,} trees left out; {flaws[0]}', file=sys.stderr)
  return [tree for tree in both if not isinstance(tree, UserError)]


def score_file(
  train: Sequence[pathlib.Path], test: pathlib.Path, output: pathlib.Path
) -> Iterator[str]:
  """Parses a file's sentences with other files' grammar; yields the trees' scores.

  Args:
    output: the file for the trees, a tree a line. The scores, which the report reads,
      go beside it, as .json.

  Raises:
    UserError: a file cannot be read, or holds no tree or other text, or `output` does
      not end in .mrg.
  """
  from transformer_jax.machine import platform  # here, as it imports JAX

  if output.suffix != '.mrg':
    raise UserError(
      f'--output={output}: give a name in .mrg; the scores go beside it, in .json'
    )
  output.parent.mkdir(parents=True, exist_ok=True)
  treebank = [*itertools.chain.from_iterable(map(_whole, train))]
  gold = [*treebanks.read_whole(test)]
  if not treebank or not gold:
    raise UserError('--train and --test take files with trees: there are none')
  grammar = Grammar(treebank)
  sentences = tqdm([tree.words for tree in gold], desc='parsing', disable=None)
  parsed = [(words, grammar.parse(words)) for words in sentences]
  lines = [str(tree or trees.repair([], words)) for words, tree in parsed]
  files.write(output, ''.join(line + '\n' for line in lines))
  scores = evalb.score([*map(str, gold)], lines)
  names = [str(pathlib.Path(p.parent.name) / p.stem) for p in (*train, test)]
  baseline = Baseline(
    kind='baseline of parsing',
    parser='PCFG',
    train=names[:-1],
    test=names[-1],
    parsing=scores,
    device=platform.processor()[0],
    commit=platform.commit(),
  )
  files.write_json(output.with_suffix('.json'), dataclasses.asdict(baseline))
  yield from evalb.score_lines(scores)
  flat = sum(tree is None for _, tree in parsed)
  yield f'{flat} of {len(parsed)} sentences got a flat tree'
