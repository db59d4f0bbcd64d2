"""Table 3 in two pictures: each row's difference from base, beside the paper's."""

import functools
import statistics
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_jax.report import paper, rows
from transformer_jax.report.blocks import Picture
from transformer_jax.report.differences import (
  Difference,
  Differences,
  paper_differences,
)
from transformer_jax.report.grouping import Group
from transformer_jax.report.pictures import INK, LINES, picture

OURS, PAPERS = LINES[:2]
HEIGHT = 5.6  # inches
RUN = {'marker': 'o', 'color': OURS, 'markersize': 3.2, 'linestyle': ''}
MEAN = {'marker': '|', 'color': OURS, 'markersize': 8, 'markeredgewidth': 1.4}
INTERVAL = {'color': OURS, 'linewidth': 5, 'alpha': 0.3, 'solid_capstyle': 'butt'}
PRINTED = {'marker': 'D', 'color': PAPERS, 'markersize': 4, 'linestyle': ''}
BELOW = 0.32  # of a row, where the paper's value stands


class Measure(NamedTuple):
  name: str
  title: str
  axis: str
  left: str
  right: str


MEASURES = (
  Measure('perplexity', 'Perplexity', 'perplexity per piece', 'better', 'worse'),
  Measure('bleu', 'BLEU', 'BLEU (percent)', 'worse', 'better'),
)


def pictures(group: Group, found: Differences, number: str) -> list[Picture]:
  """One of perplexity and one of BLEU.

  Args:
    number: tells the names of the pictures from those of other groups.
  """
  return [
    picture(
      f'table3.{measure.name}{number}',
      f"{measure.title} of each row of Table 3 minus base's, ours and the paper's",
      HEIGHT,
      functools.partial(
        _draw,
        base=group.base,
        ours={row: both[n] for row, both in found.items()},
        theirs={row: paper_differences(row)[n] for row in paper.TABLE_3},
        measure=measure,
      ),
    )
    for n, measure in enumerate(MEASURES)
  ]


def _draw(
  figure: Figure,
  base: rows.Cells,
  ours: dict[str, Difference],
  theirs: dict[str, float],
  measure: Measure,
) -> None:
  axes = figure.add_subplot(xlabel=f'{measure.axis}, minus base')
  places, edge = _places(), _edge(ours, theirs)
  axes.set(xlim=(-1.08 * edge, 1.08 * edge), ylim=(max(places.values()) + 0.8, -0.8))
  axes.axvline(0, color=INK, linewidth=0.8)
  labels = [rows.label(row, rows.cells_of_row(row, base, False)) for row in places]
  axes.set_yticks([*places.values()], labels)
  axes.tick_params(axis='y', length=0)
  axes.spines['left'].set_visible(False)
  axes.set_title(f'← {measure.left}', weight='normal')
  axes.set_title(f'{measure.right} →', loc='right', weight='normal')
  axes.set_title(measure.title, loc='center')
  for row, y in places.items():
    if row in ours:
      _row(axes, ours[row], y, edge, row != 'base')
    if row != 'base':
      axes.plot(theirs[row], y + BELOW, **PRINTED)
  kinds = {'a run': RUN, 'mean': MEAN | {'linestyle': ''}, '95 % interval': INTERVAL}
  kinds['the paper'] = PRINTED
  handles = [axes.plot([], [], **kind)[0] for kind in kinds.values()]
  place = {'loc': 'outside lower center', 'ncols': 4, 'handlelength': 1.2}
  figure.legend(handles, kinds, columnspacing=1.2, **place)


def _row(
  axes: Axes, ours: Difference, y: float, edge: float, has_interval: bool
) -> None:
  """A point for each seed, the mean, its interval; a number if it is off the axis."""
  if abs(ours.mean) > edge:
    right = ours.mean > 0
    text = f'{ours.mean:+.1f} →' if right else f'← {ours.mean:+.1f}'
    side = {'ha': 'right' if right else 'left', 'va': 'center', 'weight': 'bold'}
    axes.text(edge if right else -edge, y, text, color=OURS, **side)
    return
  if has_interval:
    half = ours.margin or 0.0
    axes.plot([ours.mean - half, ours.mean + half], [y, y], **INTERVAL)
    axes.plot(ours.mean, y, **MEAN)
  axes.plot(ours.seeds, [y] * len(ours.seeds), **RUN)


def _places() -> dict[str, float]:
  """Where each row stands, from the top, with a gap between groups."""
  places, y, before = {}, 0.0, 'base'
  for row in paper.TABLE_3:
    y += 0.5 if row[0] != before[0] or row == 'big' else 0.0
    places[row], before = y, row
    y += 1.0
  return places


def _edge(ours: dict[str, Difference], theirs: dict[str, float]) -> float:
  """Where the axis ends, so that a row that is far off does not squeeze all others."""
  needed = [
    max(abs(theirs[row]), abs(one.mean) + (one.margin or 0.0), *map(abs, one.seeds))
    for row, one in ours.items()
  ]
  usual, largest = 4 * statistics.median(needed), max(needed)
  printed = max(map(abs, theirs.values()))
  return max(printed, largest if largest < 1.5 * usual else usual)
