"""A report's pictures: SVG as wide as a phone, in light and in dark.

Curves of loss, perplexity and BLEU over steps, and Table 3 as differences from base.
"""

import functools
import io
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import cycler
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from transformer_jax.config import cells
from transformer_jax.report import comparison, paper
from transformer_jax.report.comparison import Difference, Differences, Group, label
from transformer_jax.report.page import COLOURS, Block, Picture, heading, legible
from transformer_jax.report.results import Evaluation

_, INK, FAINT, GREY, *LINES = (light for light, _ in COLOURS.values())
WIDTH = 4.0  # inches: 384 pixels, so that a phone shows the letters as they are
FONT = 'DejaVu Sans'  # measures the text; the reader's own font shows it

_STYLE = {
  'axes.edgecolor': GREY,
  'axes.facecolor': 'none',
  'axes.grid': True,
  'axes.labelcolor': INK,
  'axes.prop_cycle': cycler.cycler(color=LINES),
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlelocation': 'left',
  'axes.titlesize': 9,
  'axes.titleweight': 'bold',
  'font.sans-serif': [FONT],
  'font.size': 8,
  'grid.color': FAINT,
  'grid.linewidth': 0.6,
  'legend.frameon': False,
  'svg.fonttype': 'none',
  'text.color': INK,
  'text.parse_math': False,  # names of runs may have dollar signs
  'xtick.color': GREY,
  'xtick.labelcolor': INK,
  'ytick.color': GREY,
  'ytick.labelcolor': INK,
}


def picture(
  name: str, text: str, height: float, draw: Callable[[Figure], None]
) -> Picture:
  """Returns what `draw` draws, `height` inches high; equal figures give equal bytes."""
  file = io.StringIO()
  style = matplotlib.rc_context(_STYLE | {'svg.hashsalt': name})
  with style, warnings.catch_warnings():
    warnings.filterwarnings('ignore', r'Glyph \d+')  # the reader's font may have it
    figure = Figure(figsize=(WIDTH, height), layout='constrained')
    draw(figure)
    figure.savefig(file, format='svg', metadata={'Date': None})
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :].replace(f"'{FONT}'", 'system-ui')
  for variable, (light, _) in COLOURS.items():
    svg = svg.replace(light, f'var(--{variable})')
  return Picture(name, text, svg)


# Curves

NO_ROW = 'runs'  # the group of runs that are no row of Table 3
DASHES = ('-', '--', ':')
CUT = 0.5  # the axis fits the values after this fraction of a curve's steps
LONGEST = 44  # characters of a name in a legend


class Plot(NamedTuple):
  """A field of metrics.jsonl, as pictures show it."""

  field: str
  name: str
  title: str
  axis: str


SMOOTHED = 'Training loss, label-smoothed by epsilon_ls'
PLOTS = (
  Plot('dev_perplexity', 'perplexity', 'Dev perplexity', 'perplexity per piece'),
  Plot('loss', 'loss', SMOOTHED, 'training loss (nats per piece)'),
  Plot('dev_bleu', 'bleu', 'Dev BLEU, greedy', 'BLEU (percent)'),
)


class Line(NamedTuple):
  """One curve of one run."""

  row: str | None  # of Table 3
  label: str
  steps: Sequence[int]
  values: Sequence[float]


def curves(runs: Sequence[Evaluation]) -> list[Block]:
  """Returns pictures of what runs logged: dev perplexity, training loss, dev BLEU.

  Losses of several corpora or vocabularies cannot be compared, so each has its own
  pictures; in these, each group of Table 3's rows has one, with base in all.
  """
  alike: dict[tuple[str, int], list[Evaluation]] = {}
  for run in {run.home: run for run in runs}.values():
    corpus = run.result.corpus, run.config['model']['vocab_size']
    alike.setdefault(corpus, []).append(run)
  blocks: list[Block] = []
  for n, ((_, pieces), members) in enumerate(alike.items(), 1):
    number = f'.{n}' if len(alike) > 1 else ''
    title = f'Curves: {members[0].config["data"]["name"]}, {pieces:,} pieces'
    pictures: list[Block] = []
    for plot in PLOTS:
      if lines := [*_lines(members, plot.field)]:
        pictures += [heading(3, plot.title), *_pictures(plot, lines, number)]
    blocks += [heading(2, title), *pictures] if pictures else []
  return blocks


def _lines(runs: Sequence[Evaluation], field: str) -> Iterator[Line]:
  for run in runs:
    points = [(r['step'], r[field]) for r in run.records if r.get(field) is not None]
    if points:
      row = run.row if run.row in paper.TABLE_3 else None
      name = label(row, cells(run.config)) if row else run.name
      yield Line(row, name, *zip(*points, strict=True))


def _pictures(plot: Plot, lines: Sequence[Line], number: str) -> Iterator[Picture]:
  groups: dict[str, list[Line]] = {}
  for line in lines:
    row = line.row or NO_ROW
    group = row if row in ('base', 'big', NO_ROW) else row[0]
    groups.setdefault(group, []).append(line)
  base = groups.pop('base') if 'base' in groups and len(groups) > 1 else []
  for group in sorted(groups, key=[*paper.GROUPS, 'base', NO_ROW].index):
    shown = groups[group] + (base if group != NO_ROW else [])
    in_table = group in paper.GROUPS
    title = f'{group}: {paper.GROUPS[group]}' if in_table else plot.title
    names = [*dict.fromkeys(line.label for line in shown)]
    columns = 1 if max(map(len, names)) > LONGEST / 2 else 2
    draw = functools.partial(_draw, plot, title, shown, names, columns)
    height = 2.6 + 0.17 * -(-len(names) // columns)
    text = f'{plot.title} over steps: {", ".join(names)}'
    yield picture(f'{plot.name}.{group}{number}', text, height, draw)


def _draw(
  plot: Plot,
  title: str,
  lines: Sequence[Line],
  names: Sequence[str],
  columns: int,
  figure: Figure,
) -> None:
  axes = figure.add_subplot(title=title, xlabel='step', ylabel=plot.axis)
  handles = {}
  for line in lines:
    style = _style(line, names)
    (handles[line.label],) = axes.plot(line.steps, line.values, **style)
  axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f'{x:,.0f}'))
  axes.set_xlim(left=0)
  axes.yaxis.set_major_locator(MaxNLocator(5))
  if plot.field != 'dev_bleu':  # the high losses of the first steps are cut off
    late = [
      value
      for line in lines
      for step, value in zip(line.steps, line.values, strict=True)
      if step >= CUT * line.steps[-1]
    ]
    margin = 0.05 * (max(late) - min(late)) or 0.1
    axes.set_ylim(min(late) - margin, max(late) + margin)
  where = {'loc': 'outside lower left', 'ncols': columns, 'handlelength': 1.8}
  figure.legend([*handles.values()], [*map(_short, handles)], **where)


def _style(line: Line, names: Sequence[str]) -> dict:
  """Returns a line's style: a row's own in every picture; base is grey, behind all."""
  if line.row == 'base':
    return {'color': GREY, 'linewidth': 1.1, 'zorder': 1}
  alike = names
  if line.row is not None:
    alike = [row for row in paper.TABLE_3 if row[0] == line.row[0] and row != 'base']
  dashes, colour = divmod(alike.index(line.row or line.label), len(LINES))
  dash = DASHES[dashes % len(DASHES)]
  return {'color': LINES[colour], 'linewidth': 1.3, 'linestyle': dash}


def _short(name: str) -> str:
  """Returns a name for a legend; leaves out the middle of a long one."""
  text = legible(name)
  if len(text) > LONGEST:
    text = f'{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}'
  # A legend passes over names that begin with an underscore.
  return f' {text}' if text.startswith('_') else text


# Table 3

OURS, PAPERS = LINES[:2]
HEIGHT = 5.6  # inches
RUN = {'marker': 'o', 'color': OURS, 'markersize': 3.2, 'linestyle': ''}
MEAN = {'marker': '|', 'color': OURS, 'markersize': 8, 'markeredgewidth': 1.4}
INTERVAL = {'color': OURS, 'linewidth': 5, 'alpha': 0.3, 'solid_capstyle': 'butt'}
PRINTED = {'marker': 'D', 'color': PAPERS, 'markersize': 4, 'linestyle': ''}
BELOW = 0.32  # of a row's height, by which the paper's value stands lower


# Name, title, axis, which end of the axis is better and worse
MEASURES = (
  ('perplexity', 'Perplexity', 'perplexity per piece', ('better', 'worse')),
  ('bleu', 'BLEU', 'BLEU (percent)', ('worse', 'better')),
)


def rows_minus_base(group: Group, rows: Differences, number: str) -> list[Picture]:
  """Returns pictures of each row of Table 3 minus base, in perplexity and in BLEU.

  `number` ends their names, which so differ from those of other groups.
  """
  pictures = []
  for n, (name, title, axis, ends) in enumerate(MEASURES):
    ours = {row: both[n] for row, both in rows.items()}
    printed = {row: comparison.paper_differences(row)[n] for row in paper.TABLE_3}
    cells_of = lambda row: comparison.cells_of_row(row, group.base, False)
    names = [label(row, cells_of(row)) for row in printed]
    text = f"{title} of each row of Table 3 minus base's, ours and the paper's"
    draw = functools.partial(_draw_rows, title, axis, ends, names, ours, printed)
    pictures.append(picture(f'table3.{name}{number}', text, HEIGHT, draw))
  return pictures


def _draw_rows(
  title: str,
  axis: str,
  ends: tuple[str, str],
  names: Sequence[str],
  ours: dict[str, Difference],
  printed: dict[str, float],
  figure: Figure,
) -> None:
  axes = figure.add_subplot(xlabel=f'{axis}, minus base')
  heights, edge = _heights(), _edge(ours, printed)
  axes.set(xlim=(-1.08 * edge, 1.08 * edge), ylim=(max(heights.values()) + 0.8, -0.8))
  if edge >= 100:  # whose labels are wide
    axes.xaxis.set_major_locator(MaxNLocator(4))
  axes.axvline(0, color=INK, linewidth=0.8)
  axes.set_yticks([*heights.values()], names)
  axes.tick_params(axis='y', length=0)
  axes.spines['left'].set_visible(False)
  axes.set_title(f'← {ends[0]}', weight='normal')
  axes.set_title(f'{ends[1]} →', loc='right', weight='normal')
  axes.set_title(title, loc='center')
  for row, y in heights.items():
    if row in ours:
      _draw_row(axes, ours[row], y, edge, row != 'base')
    if row != 'base':
      axes.plot(printed[row], y + BELOW, **PRINTED)
  kinds = {'a run': RUN, 'mean': MEAN | {'linestyle': ''}, '95 % interval': INTERVAL}
  kinds['the paper'] = PRINTED
  handles = [axes.plot([], [], **kind)[0] for kind in kinds.values()]
  where = {'loc': 'outside lower center', 'ncols': 4, 'handlelength': 1.2}
  figure.legend(handles, kinds, columnspacing=1.2, **where)


def _draw_row(
  axes: Axes, ours: Difference, y: float, edge: float, has_interval: bool
) -> None:
  """Draws a point for each seed, the mean, its interval; a number if off the axis."""
  if abs(ours.mean) > edge:
    right = ours.mean > 0
    text = f'{ours.mean:+.1f} →' if right else f'← {ours.mean:+.1f}'
    style = {'ha': 'right' if right else 'left', 'va': 'center', 'weight': 'bold'}
    axes.text(edge if right else -edge, y, text, color=OURS, **style)
    return
  if has_interval:
    half = ours.margin or 0.0
    axes.plot([ours.mean - half, ours.mean + half], [y, y], **INTERVAL)
    axes.plot(ours.mean, y, **MEAN)
  axes.plot(ours.seeds, [y] * len(ours.seeds), **RUN)


def _heights() -> dict[str, float]:
  """Returns each row's height, from the top, with a gap between groups."""
  heights, y, before = {}, 0.0, 'base'
  for row in paper.TABLE_3:
    y += 0.5 if row[0] != before[0] or row == 'big' else 0.0
    heights[row], before = y, row
    y += 1.0
  return heights


def _edge(ours: dict[str, Difference], printed: dict[str, float]) -> float:
  """Returns where the axis ends; rows that are far off do not squeeze the others."""
  needed = [
    max(abs(printed[row]), abs(one.mean) + (one.margin or 0.0), *map(abs, one.seeds))
    for row, one in ours.items()
  ]
  usual, largest = 4 * statistics.median(needed), max(needed)
  papers = max(map(abs, printed.values()))
  return max(papers, largest if largest < 1.5 * usual else usual)
