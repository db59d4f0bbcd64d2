"""Pictures of Table 3 and of training: what is drawn, and at which values."""

import xml.etree.ElementTree
from collections.abc import Callable

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toy.results import family
from transformer_jax.report import comparison, figures, results
from transformer_jax.report.page import COLOURS, Picture
from transformer_jax.report.results import ScoredRun
from transformer_jax.runs.records import Record
from transformer_jax.scoring.translations import JUDGED

XML = '{http://www.w3.org/2000/svg}'


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
  """Seeds, mean, interval, and lower the paper's; what is far off is a number."""
  rows = ('C1', 2, 7.2, 15.8), ('C2', 1, 5.5, 19.0), ('E', 1, 1e9, 20.0)
  group, ours = differences(family(*rows, ('big', 1, 4.5, 21.0)))
  pictures = figures.rows_minus_base(group, ours, '.2')
  assert [x.name for x in pictures] == ['table3.perplexity.2', 'table3.bleu.2']
  assert all("of each row of Table 3 minus base's" in x.text for x in pictures)
  heights = {'base': 0.0, 'C1': 1.5, 'C2': 2.5, 'E': 4.0, 'big': 5.5}
  for n, figure in enumerate(drawn.values()):
    (axes,) = figure.axes
    shown = {row: y for row, y in heights.items() if n or row != 'E'}
    rest = {row: y for row, y in shown.items() if row != 'base'}
    names = ['base', 'C1: N 1', 'C2: N 2', 'E: positions learned', 'big']
    assert [text.get_text() for text in axes.get_yticklabels()] == names
    assert [*axes.get_yticks()] == [*heights.values()]
    of_row = {row: ours[row][n] for row in heights}
    seeds = [(x, y) for row, y in shown.items() for x in of_row[row].seeds]
    assert points(axes, 'o')[: len(seeds)] == seeds and len(of_row['C1'].seeds) == 2
    assert points(axes, '|') == [(of_row[row].mean, y) for row, y in rest.items()]
    assert [*axes.lines[0].get_xdata()] == [0, 0], 'base'
    bars = [x.get_xydata().tolist() for x in axes.lines if x.get_linewidth() == 5]
    half = {row: of_row[row].margin for row in rest}
    assert all(half.values()) and bars[: len(rest)] == [
      [[of_row[row].mean + sign * half[row], y] for sign in (-1, 1)]
      for row, y in rest.items()
    ]
    printed = points(axes, 'D')
    expected = [comparison.paper_differences(row)[n] for row in heights][1:]
    assert [x for x, _ in printed] == expected
    below = [
      y - of for (_, y), of in zip(printed, [*heights.values()][1:], strict=True)
    ]
    assert below == pytest.approx(4 * [0.32])
    texts = [(x.get_text(), x.get_position()[1]) for x in axes.texts]
    assert texts == ([] if n else [('+1.0e+09 →', 4.0)])
    left, right = axes.get_xlim()
    widest = max(abs(of_row[row].mean) + half[row] for row in rest)
    assert left == -right and max(map(abs, expected)) < right
    assert widest < right < 2 * widest
    assert axes.get_ylim()[0] > 6 > 0 > axes.get_ylim()[1], 'base is at the top'
    ends = ['← better', 'worse →'] if n == 0 else ['← worse', 'better →']
    titles = [axes.get_title(loc=loc) for loc in ('left', 'center', 'right')]
    assert titles == [ends[0], JUDGED[n].column, ends[1]]
    assert axes.get_xlabel().startswith(JUDGED[n].title)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ['a run', 'mean', '95 % interval', 'the paper']


def test_an_axis_has_what_is_near(drawn: dict[str, Figure]):
  """A row of a few times the usual size widens it; a larger one to the left leaves."""
  for bleu, wide in (10.0, True), (-900.0, False):
    group, ours = differences(family(('C2', 1, 5.5, 19.0), ('D1', 1, 5.6, bleu)))
    figures.rows_minus_base(group, ours, '')
    (axes,) = drawn['table3.bleu'].axes
    texts = [x.get_text() for x in axes.texts]
    assert texts == ([] if wide else ['← -920.00'])
    # Its interval, and four times that of C1, which is in the middle; with a margin.
    edge = 10 + 0.99 if wide else 4 * (4 + 0.99)
    assert axes.get_xlim() == pytest.approx((-1.08 * edge, 1.08 * edge), rel=0.01)


def test_a_picture_is_svg_in_the_page_s_colours():
  group, ours = differences(family())
  picture, other = figures.rows_minus_base(group, ours, '')
  assert picture.name == 'table3.perplexity'
  assert picture.text.startswith('Perplexity of each row')
  assert figures.rows_minus_base(group, ours, '') == [picture, other], 'the same bytes'
  root = xml.etree.ElementTree.fromstring(picture.svg)
  words = {''.join(x.itertext()).strip() for x in root.iter(f'{XML}text')}
  assert {'base', 'C1: N 1', 'the paper', 'worse →'} <= words
  assert float(root.get('width').removesuffix('pt')) == pytest.approx(288, abs=1)
  inches = 1.4 + 0.2 * 1.5
  assert float(root.get('height').removesuffix('pt')) == pytest.approx(
    72 * inches, 0.02
  )
  used = {name for name in COLOURS if f'var(--{name})' in picture.svg}
  assert {'ink', 'faint', 'grey', 'blue', 'vermilion'} <= used
  assert not any(light in picture.svg for light, _ in COLOURS.values())


NO_SCORE: Record = {'step': 9, 'dev_perplexity': None}


def test_curves_have_a_line_for_each_run(drawn: dict[str, Figure]):
  """One that diverged does not flatten the others; NaN has no point."""
  runs = [
    (name, [*({'step': n, 'loss': factor * 8 / n} for n in range(1, 9)), NO_SCORE])
    for name, factor in (('a', 1.0), ('b', 1.1), ('b', 1.2), ('c', 1000.0))
  ]
  (picture,) = figures.curves(runs, [('mine', [{'step': 3, 'loss': 4.0}])])
  assert picture.name == 'curves' and picture.text.startswith('Training loss')
  (axes,) = drawn['curves'].axes
  assert axes.get_xlabel() == 'update' and 'loss' in axes.get_ylabel()
  lines = axes.lines[:5]
  for line, (_, records) in zip(lines, runs, strict=False):
    assert line.get_xydata().tolist() == [[r['step'], r['loss']] for r in records[:-1]]
  assert lines[4].get_xydata().tolist() == [[3, 4]]
  looks = [(line.get_color(), line.get_linestyle()) for line in lines]
  assert looks[1] == looks[2] and len({*looks}) == 4
  assert looks[4][0] == COLOURS['ink'][0]
  assert 0 < axes.get_ylim()[0] < 1 and 8.8 < axes.get_ylim()[1] < 9.5
  (legend,) = drawn['curves'].legends
  assert [x.get_text() for x in legend.get_texts()] == ['a', 'b', 'c', 'mine']


def test_curves_have_a_panel_for_each_measure(drawn: dict[str, Figure]):
  """As many looks as there are runs; perplexity by its logarithm."""
  record = {'loss': 3.0, 'dev_perplexity': 40.0, 'dev_bleu': 7.0}
  runs = [
    (f'{n}', [record | {'step': 1}, {'step': 2, 'dev_bleu': n}]) for n in range(18)
  ]
  figures.curves(runs)
  panels = drawn['curves'].axes
  measured = zip(panels, (3.0, 40.0, 7.0), strict=True)
  assert all(x.lines[0].get_ydata()[0] == value for x, value in measured)
  assert [axes.get_yscale() for axes in panels] == ['linear', 'log', 'linear']
  low, high = panels[1].get_ylim()
  assert 30 < low < 40 < high < 50
  bleu = [line.get_ydata().tolist() for line in panels[2].lines[:18]]
  assert bleu == [[7.0, n] for n in range(18)]
  low, high = panels[0].get_ylim()
  assert low < 3 < high
  looks = {(x.get_color(), x.get_linestyle()) for x in panels[2].lines[:18]}
  assert len(looks) == 18
  assert drawn['curves'].get_figheight() > 5
  assert figures.curves([('a', [{'step': 3, 'seconds': 2.0}])]) == []
