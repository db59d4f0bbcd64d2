"""Pictures of Table 3 and of training: what is drawn, and at which values."""

from collections.abc import Callable

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toy.results import family
from transformer_jax.report import comparison, figures, results
from transformer_jax.report.page import Picture
from transformer_jax.report.results import ScoredRun
from transformer_jax.runs.records import Record
from transformer_jax.scoring.translations import JUDGED

STEPS = range(1, 9)


@pytest.fixture
def drawn(monkeypatch) -> dict[str, Figure]:
  """Returns what is drawn, by the names of pictures; nothing becomes SVG."""
  kept: dict[str, Figure] = {}

  def keep(name: str, text: str, height: float, draw: Callable) -> Picture:
    kept[name] = Figure(figsize=(4, height))
    draw(kept[name])
    return Picture(name, text, '')

  monkeypatch.setattr(figures, 'picture', keep)
  return kept


def differences(runs: list[ScoredRun]) -> tuple:
  (group,), _ = results.group(runs)
  return group, comparison.differences(group, lambda *_: None)


def points(axes: Axes, marker: str) -> list[tuple[float, float]]:
  lines = [line for line in axes.lines if line.get_marker() == marker]
  return [(x, y) for line in lines for x, y in line.get_xydata().tolist()]


def test_each_row_is_drawn_at_its_differences(drawn: dict[str, Figure]):
  """Seeds, mean, interval, and the paper's; what is far off is a number."""
  rows = ('C1', 2, 7.2, 15.8), ('C2', 1, 5.5, 19.0), ('E', 1, 1e9, 20.0)
  group, ours = differences(family(*rows, ('big', 1, 4.5, 21.0)))
  pictures = figures.rows_minus_base(group, ours, '.2')
  assert [x.name for x in pictures] == ['table3.perplexity.2', 'table3.bleu.2']
  for n, figure in enumerate(drawn.values()):
    (axes,) = figure.axes
    names = ['base', 'C1: N 1', 'C2: N 2', 'E: positions learned', 'big']
    assert [text.get_text() for text in axes.get_yticklabels()] == names
    heights = dict(zip(ours, axes.get_yticks(), strict=True))
    shown = {row: y for row, y in heights.items() if n or row != 'E'}
    rest = {row: y for row, y in shown.items() if row != 'base'}
    of_row = {row: ours[row][n] for row in heights}
    seeds = [(x, y) for row, y in shown.items() for x in of_row[row].seeds]
    assert points(axes, 'o')[: len(seeds)] == seeds and len(of_row['C1'].seeds) == 2
    assert points(axes, '|') == [(of_row[row].mean, y) for row, y in rest.items()]
    bars = [x.get_xydata().tolist() for x in axes.lines if x.get_linewidth() == 5]
    half = {row: of_row[row].half for row in rest}
    assert all(half.values()) and bars[: len(rest)] == [
      [[of_row[row].mean + sign * half[row], y] for sign in (-1, 1)]
      for row, y in rest.items()
    ]
    expected = [comparison.paper_differences(row)[n] for row in heights][1:]
    assert [x for x, _ in points(axes, 'D')] == expected
    texts = [(x.get_text(), x.get_position()[1]) for x in axes.texts]
    assert texts == ([] if n else [('+1.0e+09 →', heights['E'])])
    assert axes.get_xlim()[1] < 20, 'what is far off does not squeeze the others'
    ends = ['← better', 'worse →'] if n == 0 else ['← worse', 'better →']
    titles = [axes.get_title(loc=loc) for loc in ('left', 'center', 'right')]
    assert titles == [ends[0], JUDGED[n].column, ends[1]]
    (legend,) = figure.legends
    markers = [handle.get_marker() for handle in legend.legend_handles]
    assert markers == ['o', '|', 'None', 'D'] and 'paper' in legend.texts[3].get_text()


def test_curves_have_a_panel_for_each_measure(drawn: dict[str, Figure]):
  """One that diverged does not flatten the others; NaN has no point."""
  runs = [
    (name, [{'step': n, 'loss': factor * 8 / n, 'dev_perplexity': n} for n in STEPS])
    for name, factor in (('a', 1.0), ('b', 1.1), ('b', 1.2), ('c', 1000.0))
  ]
  unmeasured: Record = {'step': 9, 'dev_perplexity': None}
  curves = [(name, [*records, unmeasured]) for name, records in runs]
  (picture,) = figures.curves(curves, [('mine', [{'step': 3, 'loss': 4.0}])])
  loss, perplexity = drawn['curves'].axes
  assert picture.name == 'curves'
  for axes, key in (loss, 'loss'), (perplexity, 'dev_perplexity'):
    for line, (_, records) in zip(axes.lines, runs, strict=False):
      assert line.get_xydata().tolist() == [[r['step'], r[key]] for r in records]
  assert loss.lines[4].get_xydata().tolist() == [[3, 4]]
  looks = [(line.get_color(), line.get_linestyle()) for line in loss.lines[:5]]
  assert looks[1] == looks[2] and len({*looks}) == 4
  assert 0 < loss.get_ylim()[0] < 1 and 8.8 < loss.get_ylim()[1] < 9.5
  assert figures.curves([('a', [{'step': 3, 'seconds': 2.0}])]) == []
  figures.curves([(x, [{'step': 3, 'dev_bleu': n}]) for x, n in (('a', 3), ('b', 40))])
  assert drawn['curves'].axes[0].get_ylim()[1] > 40
