"""Trees drawn: a parser's below the treebank's, with what is in one of them alone."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_jax.parsing.trees import Tree
from transformer_jax.report.blocks import Picture
from transformer_jax.report.pictures import FAINT, GREY, INK, LINES, picture

WRONG = LINES[1]
LEVEL = 0.28  # inches
WORDS = 0.8  # inches, for words that stand upright


class Node(NamedTuple):
  """A constituent, or a word with its tag."""

  label: str
  first: int  # word
  last: int
  x: float
  level: int  # 0 of a word; one more than the highest below
  below: list['Node']

  @property
  def bracket(self) -> tuple[str, int, int]:
    return self.label, self.first, self.last


def nodes(tree: Tree) -> list[Node]:
  """The highest nodes of a tree, which has no root."""
  rows: list[list[Node]] = [[]]
  count = 0
  for token in tree.tokens:
    if token[0] == '(':
      rows.append([])
    elif token[0] != ')':
      rows[-1].append(Node(token, count, count, float(count), 0, []))
      count += 1
    else:
      below = rows.pop()
      x = (below[0].x + below[-1].x) / 2
      level = 1 + max(node.level for node in below)
      ends = below[0].first, below[-1].last
      rows[-1].append(Node(token[1:], *ends, x, level, below))
  return rows[0]


def pair(name: str, text: str, ours: Tree, gold: Tree) -> Picture:
  """Two trees of the same words; what one alone has is in another colour."""
  drawn = [(title, nodes(tree)) for title, tree in (('treebank', gold), ('ours', ours))]
  found = [{node.bracket for node in _all(top) if node.level} for _, top in drawn]
  levels = [1 + max(node.level for node in top) for _, top in drawn]
  height = sum(LEVEL * (n + 1) + WORDS for n in levels)

  def draw(figure: Figure) -> None:
    ratios = [LEVEL * (n + 1) + WORDS for n in levels]
    panels = figure.subplots(2, 1, height_ratios=ratios)
    for axes, (title, top), alone in zip(
      panels, drawn, (found[0] - found[1], found[1] - found[0]), strict=True
    ):
      axes.set_title(title)
      axes.axis('off')
      axes.set_xlim(-0.6, len(gold.words) - 0.4)
      deepest = max(node.level for node in top)
      axes.set_ylim(-WORDS / LEVEL, deepest + 0.7)
      for node in _all(top):
        _draw(axes, node, gold.words, node.level > 0 and node.bracket in alone)

  return picture(name, text, height, draw)


def _all(top: Sequence[Node]) -> list[Node]:
  return [one for node in top for one in (node, *_all(node.below))]


def _draw(axes: Axes, node: Node, words: Sequence[str], alone: bool) -> None:
  for below in node.below:
    axes.plot((node.x, below.x), (node.level, below.level), color=FAINT, linewidth=1)
  style = {'color': WRONG, 'weight': 'bold'} if alone else {'color': INK}
  if not node.level:
    style = {'color': GREY}
    axes.text(node.x, -0.4, words[node.first], rotation=90, ha='center', va='top')
  box = {'facecolor': 'none', 'edgecolor': 'none', 'pad': 1}
  place = {'ha': 'center', 'va': 'center', 'fontsize': 7, 'bbox': box}
  axes.text(node.x, node.level, node.label, **place, **style)
