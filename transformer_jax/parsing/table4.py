"""Table 4: the paper's parsers, ours and their baselines, with pictures of trees."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_jax.parsing import trees
from transformer_jax.parsing.evalb import Parsing
from transformer_jax.parsing.pcfg import Baseline
from transformer_jax.parsing.trees import Tree
from transformer_jax.report import paper
from transformer_jax.report.figures import FAINT, GREY, INK, LINES, picture
from transformer_jax.report.page import Block, Picture, heading, paragraph, table
from transformer_jax.report.results import HeldOut, Scored

JOURNAL, GUM = 'wsj.23', 'gum/'  # as configs/parsing.py calls their files
HEADER = ('parser', 'training', 'scored on', 'F1', '95 %', 'recall', 'precision')
HEADER += ('complete', 'tags', 'trees before repair', 'about')
FEWEST = 20  # a label with fewer brackets in the treebank is not listed
SHOWN = range(5, 13)  # words of a sentence whose trees are shown

WRONG = LINES[1]  # the colour of what only one of two trees has
LEVEL = 0.28  # inches
WORDS = 0.8  # inches, for words that stand upright


class Row(NamedTuple):
  """A parser on a test set."""

  name: str
  training: str
  test_set: str
  parsing: Parsing
  valid: float | None
  about: str


def blocks(
  parsed: Sequence[Scored],
  baselines: Sequence[Baseline],
  texts: HeldOut,
  samples: int,
) -> list[Block]:
  """Returns the table, and for each test set F1 by length and by label, and trees.

  Trees are those of the best run of the test set, if its text is at hand.
  """
  rows = [*map(_run_row, parsed), *map(_baseline_row, baselines)]
  section: list[Block] = [heading(2, 'Table 4')]
  section.append(table(HEADER, [*_paper_rows(), *map(_cells, rows)]))
  section.append(paragraph(_about(rows)))
  for group in _by_treebank(rows):
    name = group[0].test_set
    section += [heading(3, f'F1 by words, {name}'), _by_length(group)]
    if labels := _labels(group):
      section += [heading(3, f'F1 by label, {name}'), _by_label(group, labels)]
  for treebank in dict.fromkeys(one.result.parsing['treebank'] for one in parsed):
    runs = [one for one in parsed if one.result.parsing['treebank'] == treebank]
    best = max(runs, key=lambda one: one.result.parsing['f1']['score'])
    section += _samples(best, texts, samples)
  return section


def summary(parsed: Sequence[Scored], baselines: Sequence[Baseline]) -> str:
  """Returns a line for each parser, for a terminal."""
  lines = []
  for row in [*map(_run_row, parsed), *map(_baseline_row, baselines)]:
    f1 = row.parsing.f1
    low, high = f1.interval
    agreement = ' (agreement with a parser)' if row.test_set.startswith(GUM) else ''
    lines.append(
      f'{f1.score:6.2f} F1 [{low:.1f}, {high:.1f}], {row.test_set}{agreement}: '
      f'{row.name}'
    )
  return ''.join(line + '\n' for line in lines)


def _samples(scored: Scored, texts: HeldOut, count: int) -> Iterator[Block]:
  """Yields pictures of short sentences, evenly spaced in the test set."""
  held_out, lines = texts.text(scored), scored.translations
  if held_out is None or lines is None or len(lines) != len(held_out[0]) or not count:
    return
  name = _files(scored, scored.result.split)
  yield heading(3, f'Trees of {name}, by {scored.run}')
  yield paragraph('Constituents that only one of the trees has are bold and in colour.')
  sentences = [line.split(' ') for line in held_out[0]]
  short = [n for n, words in enumerate(sentences) if len(words) in SHOWN]
  for n in short[:: max(1, len(short) // count)][:count]:
    gold = Tree(sentences[n], held_out[1][n].split(' '))
    (ours,) = trees.parse([lines[n]], f'{scored.text}, sentence {n + 1}')
    number = f'{name.replace("/", ".")}.{n + 1}'
    text = f'Two trees of: {held_out[0][n]}'
    yield _picture(f'trees.{number}', text, ours, gold)


def _run_row(scored: Scored) -> Row:
  result, model = scored.result, scored.config['model']
  return Row(
    scored.run,
    _files(scored, 'train'),
    _files(scored, result.split),
    Parsing.from_json(result.parsing),
    result.valid,
    f'N {model["N"]}, d_model {model["d_model"]}, {result.parameters / 1e6:.1f} M, '
    f'seed {scored.seed}, step {result.step:,}, averaged {len(result.averaged)}, '
    f'beam {result.beam}, alpha {result.alpha}',
  )


def _files(scored: Scored, split: str) -> str:
  return ' + '.join(scored.data['files'][split])


def _baseline_row(baseline: Baseline) -> Row:
  training = ' + '.join(baseline.train)
  # One parser may learn from several treebanks.
  name = f'{baseline.parser} of {training}'
  return Row(name, training, baseline.test, baseline.parsing, None, baseline.device)


def _paper_rows() -> Iterator[list[str]]:
  blank = [''] * (len(HEADER) - 5)
  for parser in paper.TABLE_4:
    yield [parser.name, parser.training, JOURNAL, f'{parser.f1}', *blank, 'the paper']


def _cells(row: Row) -> list[str]:
  scores = row.parsing
  low, high = scores.f1.interval
  parts = scores.recall, scores.precision, scores.complete_match, scores.tagging
  return [
    *(row.name, row.training, row.test_set, f'{scores.f1.score:.2f}'),
    f'{low:.2f}, {high:.2f}',
    *(f'{part:.2f}' for part in parts),
    '' if row.valid is None else f'{row.valid:.2f}',
    row.about,
  ]


def _about(rows: Sequence[Row]) -> str:
  text = [
    'F1 as EVALB counts it under COLLINS.prm, all lengths, on the tags of the '
    'treebank; its interval is by bootstrap. An output that is no tree is repaired '
    'first.'
  ]
  if any(row.test_set.startswith(GUM) for row in rows):
    text.append(
      "GUM's trees are the output of another parser from gold tags, which has 88.4 F1 "
      'on a small sample made by people: F1 on GUM is agreement with that parser.'
    )
  if not any(row.test_set == JOURNAL for row in rows):
    text.append(
      "No run here was scored on the paper's test set, section 23 of the Wall Street "
      'Journal: the rows of other text do not compare with its figures.'
    )
  return ' '.join(text)


def _by_treebank(rows: Sequence[Row]) -> Iterator[list[Row]]:
  """Yields the rows that were scored on the same trees."""
  for treebank in dict.fromkeys(row.parsing.treebank for row in rows):
    yield [row for row in rows if row.parsing.treebank == treebank]


def _by_length(rows: Sequence[Row]) -> str:
  counts = rows[0].parsing.lengths
  header = ['parser', *(f'{words} ({int(n):,})' for words, (n, _) in counts.items())]
  cells = lambda row: [
    f'{f1:.2f}' if n else '' for n, f1 in row.parsing.lengths.values()
  ]
  return table(header, [[row.name, *cells(row)] for row in rows])


def _labels(rows: Sequence[Row]) -> dict[str, int]:
  """Returns how often the treebank has each label, the commonest first."""
  gold = {label: n for label, (_, n, _) in rows[0].parsing.labels.items()}
  often = {label: n for label, n in gold.items() if n >= FEWEST}
  return dict(sorted(often.items(), key=lambda item: -item[1]))


def _by_label(rows: Sequence[Row], labels: Mapping[str, int]) -> str:
  cells = [
    [label, f'{count:,}', *(_f1(row.parsing, label) for row in rows)]
    for label, count in labels.items()
  ]
  return table(['label', 'brackets', *(row.name for row in rows)], cells)


def _f1(parsing: Parsing, label: str) -> str:
  matched, gold, test = parsing.labels[label]
  return f'{200 * matched / (gold + test):.2f}'


class _Node(NamedTuple):
  """A constituent, or a word with its tag."""

  label: str
  first: int  # word
  last: int
  x: float
  level: int  # 0 of a word; one more than the highest below
  below: list['_Node']

  @property
  def bracket(self) -> tuple[str, int, int]:
    return self.label, self.first, self.last


def _nodes(tree: Tree) -> list[_Node]:
  """Returns the highest nodes of a tree, which has no root."""
  rows: list[list[_Node]] = [[]]
  count = 0
  for token in tree.tokens:
    if token[0] == '(':
      rows.append([])
    elif token[0] != ')':
      rows[-1].append(_Node(token, count, count, float(count), 0, []))
      count += 1
    else:
      below = rows.pop()
      x = (below[0].x + below[-1].x) / 2
      level = 1 + max(node.level for node in below)
      ends = below[0].first, below[-1].last
      rows[-1].append(_Node(token[1:], *ends, x, level, below))
  return rows[0]


def _picture(name: str, text: str, ours: Tree, gold: Tree) -> Picture:
  """Draws two trees of the same words, what only one of them has in another colour."""
  tops = _nodes(gold), _nodes(ours)
  brackets = [{node.bracket for node in _all(top) if node.level} for top in tops]
  wrong = brackets[0] ^ brackets[1]
  heights = [LEVEL * (2 + max(node.level for node in top)) + WORDS for top in tops]

  def draw(figure: Figure) -> None:
    panels = figure.subplots(2, 1, height_ratios=heights)
    for axes, title, top in zip(panels, ('treebank', 'ours'), tops, strict=True):
      axes.set_title(title)
      axes.axis('off')
      axes.set_xlim(-0.6, len(gold.words) - 0.4)
      deepest = max(node.level for node in top)
      axes.set_ylim(-WORDS / LEVEL, deepest + 0.7)
      for node in _all(top):
        _draw(axes, node, gold.words, node.level > 0 and node.bracket in wrong)

  return picture(name, text, sum(heights), draw)


def _all(top: Sequence[_Node]) -> list[_Node]:
  return [one for node in top for one in (node, *_all(node.below))]


def _draw(axes: Axes, node: _Node, words: Sequence[str], is_wrong: bool) -> None:
  for below in node.below:
    axes.plot((node.x, below.x), (node.level, below.level), color=FAINT, linewidth=1)
  style = {'color': WRONG, 'weight': 'bold'} if is_wrong else {'color': INK}
  if not node.level:
    style = {'color': GREY}
    axes.text(node.x, -0.4, words[node.first], rotation=90, ha='center', va='top')
  box = {'facecolor': 'none', 'edgecolor': 'none', 'pad': 1}
  centre = {'ha': 'center', 'va': 'center', 'fontsize': 7, 'bbox': box}
  axes.text(node.x, node.level, node.label, **centre, **style)
