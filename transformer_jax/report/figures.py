"""A report's pictures: SVG as wide as a phone, in light and in dark.

Curves of loss, perplexity and BLEU over steps, and Table 3 as differences from base.
"""

import functools
import io
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import cycler
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from transformer_jax.report import paper
from transformer_jax.report.comparable import Cells, Group, cells, cells_of_row, label
from transformer_jax.report.page import COLOURS, Block, Picture, heading, legible
from transformer_jax.report.results import Scored, Unscored
from transformer_jax.report.table3 import Difference, Differences, paper_differences

BACKGROUND, INK, FAINT, GREY, *LINES = (light for light, _ in COLOURS.values())
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
  'axes.titlecolor': INK,
  'axes.titlelocation': 'left',
  'axes.titlesize': 9,
  'axes.titleweight': 'bold',
  'figure.facecolor': BACKGROUND,
  'font.sans-serif': [FONT],
  'font.size': 8,
  'grid.color': FAINT,
  'grid.linewidth': 0.6,
  'legend.frameon': False,
  'legend.labelcolor': INK,
  'savefig.facecolor': BACKGROUND,
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
  """Returns what `draw` draws as SVG; equal figures give equal bytes.

  Args:
    height: in inches.
  """
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

NO_ROW = ''  # the group of runs that are no row of Table 3
DASHES = ('-', '--', ':')
CUT = 0.5  # the axis fits the values after this fraction of a curve's steps
LONGEST = 44  # characters of a name in a legend


class Line(NamedTuple):
  """One curve of one run."""

  row: str | None  # of Table 3
  label: str
  steps: Sequence[int]
  values: Sequence[float]


class Plot(NamedTuple):
  """A field of metrics.jsonl, as pictures show it."""

  name: str
  title: str
  axis: str


SMOOTHED = 'Training loss, label-smoothed by epsilon_ls'
LOSS = Plot('loss', SMOOTHED, 'training loss (nats per piece)')
PERPLEXITY = Plot('perplexity', 'Dev perplexity', 'perplexity per piece')
BLEU = Plot('bleu', 'Dev BLEU, greedy', 'BLEU (percent)')
PLOTS = {'dev_perplexity': PERPLEXITY, 'loss': LOSS, 'dev_bleu': BLEU}  # by their field


def curves(results: Sequence[Scored | Unscored]) -> list[Block]:
  """Returns pictures of what runs logged: dev perplexity, training loss, dev BLEU.

  Losses of several corpora or vocabularies cannot be compared, so each has its own
  pictures; in these, each group of Table 3's rows has one, with base in all.
  """
  data: dict[tuple, list[Scored | Unscored]] = {}
  for one in {one.home: one for one in results}.values():
    data.setdefault(_data(one), []).append(one)
  blocks: list[Block] = []
  for n, ((_, pieces), runs) in enumerate(data.items(), 1):
    number = f'.{n}' if len(data) > 1 else ''
    plots = [(plot, _logged(runs, field)) for field, plot in PLOTS.items()]
    nonempty = [(plot, lines) for plot, lines in plots if lines]
    name = f'{runs[0].config["data"]["name"]}, {pieces:,} pieces'
    blocks += [heading(2, f'Curves: {name}')] if nonempty else []
    for plot, lines in nonempty:
      blocks.append(heading(3, plot.title))
      blocks += _pictures(plot, lines, number)
  return blocks


def _data(one: Scored | Unscored) -> tuple[str, int]:
  """Returns the corpus and the number of pieces, on which a loss per piece depends."""
  return one.corpus, one.config['model']['vocab_size']


def _row(one: Scored | Unscored) -> str | None:
  return one.row if one.row in paper.TABLE_3 else None


def _label(one: Scored | Unscored) -> str:
  row = _row(one)
  return label(row, cells(one.config)) if row else one.run


def _logged(runs: Iterable[Scored | Unscored], key: str) -> list[Line]:
  lines = []
  for one in runs:
    points = [(r['step'], r[key]) for r in one.records if r.get(key) is not None]
    if points:
      lines.append(Line(_row(one), _label(one), *zip(*points, strict=True)))
  return lines


def _pictures(plot: Plot, lines: Sequence[Line], number: str) -> list[Picture]:
  groups: dict[str, list[Line]] = {}
  for line in lines:
    groups.setdefault(_group(line), []).append(line)
  base = groups.pop('base') if 'base' in groups and len(groups) > 1 else []
  pictures = []
  for group in sorted(groups, key=[*paper.GROUPS, 'base', NO_ROW].index):
    name = f'{plot.name}.{group or "runs"}{number}'
    shown = groups[group] + (base if group != NO_ROW else [])
    in_table = group in paper.GROUPS
    title = f'{group}: {paper.GROUPS[group]}' if in_table else plot.title
    text = f'{plot.title} over steps: '
    names = dict.fromkeys(line.label for line in shown)
    columns = 1 if max(map(len, names)) > LONGEST / 2 else 2
    draw = functools.partial(
      _draw, plot=plot, title=title, lines=shown, names=[*names], columns=columns
    )
    height = 2.6 + 0.17 * -(-len(names) // columns)
    pictures.append(picture(name, text + ', '.join(names), height, draw))
  return pictures


def _group(line: Line) -> str:
  if line.row is None:
    return NO_ROW
  return line.row if line.row in ('base', 'big') else line.row[0]


def _draw(
  figure: Figure,
  plot: Plot,
  title: str,
  lines: Sequence[Line],
  names: Sequence[str],
  columns: int,
) -> None:
  axes = figure.add_subplot(title=title, xlabel='step', ylabel=plot.axis)
  handles = {}
  for line in lines:
    style = _style(line, names)
    (handles[line.label],) = axes.plot(line.steps, line.values, **style)
  _set_axes(axes, plot, lines)
  shown = [_short(name) for name in handles]
  where = {'loc': 'outside lower left', 'ncols': columns, 'handlelength': 1.8}
  figure.legend([*handles.values()], shown, **where)


def _style(line: Line, names: Sequence[str]) -> dict:
  """Returns a line's style: a row's own in every picture; base is grey, behind all."""
  if line.row == 'base':
    return {'color': GREY, 'linewidth': 1.1, 'zorder': 1}
  if line.row is None:
    number = names.index(line.label)
  else:
    alike = [row for row in paper.TABLE_3 if row[0] == line.row[0] and row != 'base']
    number = alike.index(line.row)
  dashes, colour = divmod(number, len(LINES))
  dash = DASHES[dashes % len(DASHES)]
  return {'color': LINES[colour], 'linewidth': 1.3, 'linestyle': dash}


def _short(name: str) -> str:
  """Returns a name for a legend; leaves out the middle of a long one."""
  text = legible(name)
  if len(text) > LONGEST:
    text = f'{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}'
  # A legend passes over names that begin with an underscore.
  return f' {text}' if text.startswith('_') else text


def _set_axes(axes: Axes, plot: Plot, lines: Sequence[Line]) -> None:
  """Sets ticks and limits, so that the high losses of the first steps are cut off."""
  axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f'{x:,.0f}'))
  axes.set_xlim(left=0)
  axes.yaxis.set_major_locator(MaxNLocator(5))
  if plot is BLEU:
    return
  shown = [
    value
    for line in lines
    for step, value in zip(line.steps, line.values, strict=True)
    if step >= CUT * line.steps[-1]
  ]
  low, high = min(shown), max(shown)
  margin = 0.05 * (high - low) or 0.1
  axes.set_ylim(low - margin, high + margin)


# Table 3

OURS, PAPERS = LINES[:2]
HEIGHT = 5.6  # inches
RUN = {'marker': 'o', 'color': OURS, 'markersize': 3.2, 'linestyle': ''}
MEAN = {'marker': '|', 'color': OURS, 'markersize': 8, 'markeredgewidth': 1.4}
INTERVAL = {'color': OURS, 'linewidth': 5, 'alpha': 0.3, 'solid_capstyle': 'butt'}
PRINTED = {'marker': 'D', 'color': PAPERS, 'markersize': 4, 'linestyle': ''}
BELOW = 0.32  # of a row's height, by which the paper's value stands lower


class Measure(NamedTuple):
  """What is compared with base, and which side of the axis is the better one."""

  name: str
  title: str
  axis: str
  left: str
  right: str


MEASURES = (
  Measure('perplexity', 'Perplexity', 'perplexity per piece', 'better', 'worse'),
  Measure('bleu', 'BLEU', 'BLEU (percent)', 'worse', 'better'),
)


def rows_minus_base(group: Group, rows: Differences, number: str) -> list[Picture]:
  """Returns pictures of each row of Table 3 minus base, in perplexity and in BLEU.

  Args:
    number: ends the pictures' names, which differ from those of other groups.
  """
  return [
    picture(
      f'table3.{measure.name}{number}',
      f"{measure.title} of each row of Table 3 minus base's, ours and the paper's",
      HEIGHT,
      functools.partial(
        _draw_rows,
        base=group.base,
        ours={row: both[n] for row, both in rows.items()},
        printed={row: paper_differences(row)[n] for row in paper.TABLE_3},
        measure=measure,
      ),
    )
    for n, measure in enumerate(MEASURES)
  ]


def _draw_rows(
  figure: Figure,
  base: Cells,
  ours: dict[str, Difference],
  printed: dict[str, float],
  measure: Measure,
) -> None:
  axes = figure.add_subplot(xlabel=f'{measure.axis}, minus base')
  heights, edge = _heights(), _edge(ours, printed)
  axes.set(xlim=(-1.08 * edge, 1.08 * edge), ylim=(max(heights.values()) + 0.8, -0.8))
  axes.axvline(0, color=INK, linewidth=0.8)
  labels = [label(row, cells_of_row(row, base, False)) for row in heights]
  axes.set_yticks([*heights.values()], labels)
  axes.tick_params(axis='y', length=0)
  axes.spines['left'].set_visible(False)
  axes.set_title(f'← {measure.left}', weight='normal')
  axes.set_title(f'{measure.right} →', loc='right', weight='normal')
  axes.set_title(measure.title, loc='center')
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
