"""Pictures of differences from base and of training: SVG, in light and in dark."""

import functools
import io
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cycler
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer_jax.config import cells
from transformer_jax.report import comparison, paper
from transformer_jax.report.comparison import Difference, Differences
from transformer_jax.report.page import COLOURS, Picture
from transformer_jax.report.results import Group
from transformer_jax.runs.records import Record
from transformer_jax.scoring.translations import JUDGED, Metric

_, INK, FAINT, GREY, *LINES = (light for light, _ in COLOURS.values())
WIDTH = 4.0  # inches: 384 pixels, so that a phone shows the letters as they are
FONT = 'DejaVu Sans'  # measures the text; the reader's own font shows it

_STYLE: Any = {
  'axes.edgecolor': GREY,
  'axes.facecolor': 'none',
  'axes.grid': True,
  'axes.labelcolor': INK,
  'axes.prop_cycle': cycler.cycler(color=LINES),
  'axes.spines.right': False,
  'axes.spines.top': False,
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
MARGINS, ROW = 1.4, 0.2  # inches: around the rows, and of a row
RUN: dict[str, Any] = {'marker': 'o', 'color': OURS, 'markersize': 3.2, 'linestyle': ''}
MEAN: dict[str, Any] = {
  'marker': '|',
  'color': OURS,
  'markersize': 8,
  'markeredgewidth': 1.4,
}
INTERVAL: dict[str, Any] = {
  'color': OURS,
  'linewidth': 5,
  'alpha': 0.3,
  'solid_capstyle': 'butt',
}
PRINTED: dict[str, Any] = {
  'marker': 'D',
  'color': PAPERS,
  'markersize': 4,
  'linestyle': '',
}
BELOW = 0.32  # of a row's height, by which the paper's value stands lower


def rows_minus_base(group: Group, ours: Differences, number: str) -> list[Picture]:
  """Returns pictures of each row that ran minus base, one for each of JUDGED.

  `number` ends their names, so that each group has its files.
  """
  pictures = []
  for n, metric in enumerate(JUDGED):
    of_rows = {row: ours[row][n] for row in group.rows}
    known = [row for row in of_rows if row in paper.TABLE_3]
    printed = {row: comparison.paper_differences(row)[n] for row in known}
    first = lambda row: cells(group.table_3[row][0].config)
    names = {row: paper.label(row, first(row), group.base) for row in of_rows}
    title = metric.title[0].upper() + metric.title[1:]
    text = f"{title} of each row of Table 3 minus base's, ours and the paper's"
    draw = functools.partial(_draw_rows, metric, names, of_rows, printed)
    name = f'table3.{metric.title.lower()}{number}'
    height = MARGINS + ROW * max(_heights(of_rows).values())
    pictures.append(picture(name, text, height, draw))
  return pictures


def _draw_rows(
  metric: Metric,
  names: dict[str, str],
  ours: dict[str, Difference],
  printed: dict[str, float],
  figure: Figure,
) -> None:
  axes = figure.add_subplot(xlabel=f'{metric.title} ({metric.unit}), minus base')
  heights, edge = _heights(ours), _edge(ours, printed)
  axes.set(xlim=(-1.08 * edge, 1.08 * edge), ylim=(max(heights.values()) + 0.8, -0.8))
  if edge >= 100:  # whose labels are wide
    axes.xaxis.set_major_locator(MaxNLocator(4))
  axes.axvline(0, color=INK, linewidth=0.8)
  axes.set_yticks([*heights.values()], [names[row] for row in heights])
  axes.tick_params(axis='y', length=0)
  axes.spines['left'].set_visible(False)
  ends = ('worse', 'better')[:: metric.sign]
  axes.set_title(f'← {ends[0]}', loc='left', weight='normal')
  axes.set_title(f'{ends[1]} →', loc='right', weight='normal')
  axes.set_title(metric.column, loc='center')
  for row, y in heights.items():
    _draw_row(axes, ours[row], y, edge, row != 'base')
    if row != 'base' and row in printed:
      axes.plot(printed[row], y + BELOW, **PRINTED)
  kinds = {'a run': RUN, 'mean': MEAN | {'linestyle': ''}, '95 % interval': INTERVAL}
  kinds['the paper'] = PRINTED
  handles = [axes.plot([], [], **kind)[0] for kind in kinds.values()]
  where: Any = {'loc': 'outside lower center', 'ncols': 4, 'handlelength': 1.2}
  figure.legend(handles, [*kinds], columnspacing=1.2, **where)


def _draw_row(
  axes: Axes, ours: Difference, y: float, edge: float, has_interval: bool
) -> None:
  """Draws a point for each seed, the mean, its interval; a number if off the axis."""
  if abs(ours.mean) > edge:
    right = ours.mean > 0
    mean = comparison.number(ours.mean, '+')
    text = f'{mean} →' if right else f'← {mean}'
    style: Any = {'ha': 'right' if right else 'left', 'va': 'center', 'weight': 'bold'}
    axes.text(edge if right else -edge, y, text, color=OURS, **style)
    return
  if has_interval:
    half = ours.half or 0.0
    axes.plot([ours.mean - half, ours.mean + half], [y, y], **INTERVAL)
    axes.plot(ours.mean, y, **MEAN)
  axes.plot(ours.seeds, [y] * len(ours.seeds), **RUN)


def _heights(names: Iterable[str]) -> dict[str, float]:
  """Returns each row's height, from the top, with a gap between groups."""
  heights, y, before = {}, 0.0, 'base'
  for row in names:
    y += 0.5 if row[0] != before[0] or row == 'big' else 0.0
    heights[row], before = y, row
    y += 1.0
  return heights


def _edge(ours: dict[str, Difference], printed: dict[str, float]) -> float:
  """Returns where the axis ends; rows that are far off do not squeeze the others."""
  needed = [
    max(abs(difference.mean) + (difference.half or 0.0), *map(abs, difference.seeds))
    for row, difference in ours.items()
    if row != 'base'
  ]
  papers = max(map(abs, printed.values()))
  usual, largest = max(papers, 4 * statistics.median_low(needed)), max(needed)
  return max(papers, largest if largest < 1.5 * usual else usual)


# Curves

# What training measures, by its name in metrics.jsonl.
MEASURED = {
  'loss': 'training loss (nats)',
  'dev_perplexity': 'dev perplexity',
  'dev_bleu': 'dev BLEU (percent)',
}
STYLES = ('-', '--', ':', '-.')
CURVE_HEIGHT = 2.0  # inches
Curve = tuple[str, list[Record]]  # the name of a run, and what its training measured


def curves(runs: Sequence[Curve], over: Sequence[Curve] = ()) -> list[Picture]:
  """Returns a picture with a panel for each of MEASURED by update; [] without any.

  Args:
    runs: each is a line. Those of one name have one colour.
    over: each is a black line over the others.
  """
  records = [record for _, curve in (*runs, *over) for record in curve]
  has = lambda key: any(record.get(key) is not None for record in records)
  if not (keys := [key for key in MEASURED if has(key)]):
    return []
  text = f'{", ".join(MEASURED[key] for key in keys)} of each run by update'
  draw = functools.partial(_draw_curves, keys, runs, over)
  height = CURVE_HEIGHT * len(keys) + 0.5
  return [picture('curves', text[0].upper() + text[1:], height, draw)]


def _draw_curves(
  keys: Sequence[str], runs: Sequence[Curve], over: Sequence[Curve], figure: Figure
) -> None:
  names = [*dict.fromkeys(name for name, _ in runs)]
  looks: dict[str, Any] = {
    name: {'color': LINES[n % len(LINES)], 'linestyle': STYLES[n // len(LINES) % 4]}
    for n, name in enumerate(names)
  }
  looks |= {
    name: {'color': INK, 'linestyle': STYLES[n % 4]} for n, (name, _) in enumerate(over)
  }
  panels = figure.subplots(len(keys), squeeze=False, sharex=True)[:, 0]
  for key, axes in zip(keys, panels, strict=True):
    axes.set_ylabel(MEASURED[key])
    every: list[tuple[str, list[Any]]] = [*runs, *over]
    lines = [
      (name, points)
      for name, records in every
      if (points := [(r['step'], r[key]) for r in records if r.get(key) is not None])
    ]
    for name, points in lines:
      axes.plot(*zip(*points, strict=True), linewidth=1, **looks[name])
    # The axis ends at the median of the runs' maxima, for one that diverged may leave
    # it; that of BLEU ends at the best run's.
    values = [[value for _, value in points] for _, points in lines]
    bottom = min(map(min, values))
    middle = max if key == 'dev_bleu' else statistics.median_low
    top = middle(map(max, values))
    if key == 'dev_perplexity':
      axes.set_yscale('log')
      axes.set_ylim(bottom / 1.1, top * 1.1)
    else:
      margin = 0.05 * (top - bottom) or 0.5  # of one value, such as BLEU 0
      axes.set_ylim(bottom - margin, top + margin)
  panels[-1].set_xlabel('update')
  handles = [panels[0].plot([], [], linewidth=1, **looks[x])[0] for x in looks]
  where: Any = {'loc': 'outside lower center', 'ncols': 2, 'handlelength': 1.8}
  figure.legend(handles, [*looks], columnspacing=1.2, fontsize=7, **where)
