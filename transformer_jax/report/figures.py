"""Pictures of Table 3 as differences from base: SVG, in light and in dark."""

import functools
import io
import statistics
from collections.abc import Callable, Sequence

import cycler
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer_jax.report import comparison, paper
from transformer_jax.report.comparison import Difference, Differences, Group, label
from transformer_jax.report.page import COLOURS, Picture
from transformer_jax.scoring.translations import JUDGED, Metric

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
  with matplotlib.rc_context(_STYLE | {'svg.hashsalt': name}):
    figure = Figure(figsize=(WIDTH, height), layout='constrained')
    draw(figure)
    figure.savefig(file, format='svg', metadata={'Date': None})
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :].replace(f"'{FONT}'", 'system-ui')
  for variable, (light, _) in COLOURS.items():
    svg = svg.replace(light, f'var(--{variable})')
  return Picture(name, text, svg)


OURS, PAPERS = LINES[:2]
HEIGHT = 5.6  # inches
RUN = {'marker': 'o', 'color': OURS, 'markersize': 3.2, 'linestyle': ''}
MEAN = {'marker': '|', 'color': OURS, 'markersize': 8, 'markeredgewidth': 1.4}
INTERVAL = {'color': OURS, 'linewidth': 5, 'alpha': 0.3, 'solid_capstyle': 'butt'}
PRINTED = {'marker': 'D', 'color': PAPERS, 'markersize': 4, 'linestyle': ''}
BELOW = 0.32  # of a row's height, by which the paper's value stands lower


def rows_minus_base(group: Group, rows: Differences, number: str) -> list[Picture]:
  """Returns pictures of each row of Table 3 minus base, one for each of JUDGED.

  `number` ends their names, which so differ from those of other groups.
  """
  pictures = []
  for n, metric in enumerate(JUDGED):
    ours = {row: both[n] for row, both in rows.items()}
    printed = {row: comparison.paper_differences(row)[n] for row in paper.TABLE_3}
    cells_of = lambda row: comparison.cells_of_row(row, group.base, False)
    names = [label(row, cells_of(row)) for row in printed]
    title = metric.title[0].upper() + metric.title[1:]
    text = f"{title} of each row of Table 3 minus base's, ours and the paper's"
    draw = functools.partial(_draw_rows, metric, names, ours, printed)
    name = f'table3.{metric.title.lower()}{number}'
    pictures.append(picture(name, text, HEIGHT, draw))
  return pictures


def _draw_rows(
  metric: Metric,
  names: Sequence[str],
  ours: dict[str, Difference],
  printed: dict[str, float],
  figure: Figure,
) -> None:
  axes = figure.add_subplot(xlabel=f'{metric.title} ({metric.unit}), minus base')
  heights, edge = _heights(), _edge(ours, printed)
  axes.set(xlim=(-1.08 * edge, 1.08 * edge), ylim=(max(heights.values()) + 0.8, -0.8))
  if edge >= 100:  # whose labels are wide
    axes.xaxis.set_major_locator(MaxNLocator(4))
  axes.axvline(0, color=INK, linewidth=0.8)
  axes.set_yticks([*heights.values()], names)
  axes.tick_params(axis='y', length=0)
  axes.spines['left'].set_visible(False)
  ends = ('worse', 'better')[:: metric.sign]
  axes.set_title(f'← {ends[0]}', weight='normal')
  axes.set_title(f'{ends[1]} →', loc='right', weight='normal')
  axes.set_title(metric.column, loc='center')
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
