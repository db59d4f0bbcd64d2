"""Pictures of Table 3: their marks and labels."""

import re
import xml.etree.ElementTree

import pytest

from toy.results import family
from transformer_jax.report import comparison, figures, results
from transformer_jax.report.page import Picture
from transformer_jax.report.results import ScoredRun
from transformer_jax.runs.records import Record

XML = '{http://www.w3.org/2000/svg}'


def words(svg: str) -> list[str]:
  texts = xml.etree.ElementTree.fromstring(svg).iter(f'{XML}text')
  return [''.join(x.itertext()).strip() for x in texts]


def pictured(runs: list[ScoredRun]) -> tuple[list[Picture], comparison.Differences]:
  (group,), _ = results.group(runs)
  ours = comparison.differences(group, lambda *_: None)
  return figures.rows_minus_base(group, ours, ''), ours


def test_table_3_is_pictured():
  runs = family(('C1', 2, 7.2, 15.8))
  (perplexity, bleu), ours = pictured(runs)
  assert pictured(runs)[0] == [perplexity, bleu]  # the same bytes
  assert perplexity.name == 'table3.perplexity' and bleu.name == 'table3.bleu'
  for picture, difference in zip((perplexity, bleu), ours['C1'], strict=True):
    labels = words(picture.svg)
    assert {'base', 'C1: N 1', 'the paper'} <= {*labels}
    assert not any(label.startswith('E:') for label in labels), 'it did not run'
    # C1's bar is its interval, in the scale of the points of its two seeds.
    bar, _ = re.findall(r'<path d="M ([^"]*)" [^>]*stroke-opacity: 0.3', picture.svg)
    left, y, _, right, _ = bar.split()
    marks = re.findall(rf'x="([\d.]+)" y="{y}" style="fill: var\(--blue', picture.svg)
    mean, *seeds = map(float, marks)
    assert [float(left) + float(right), sum(seeds)] == pytest.approx([2 * mean] * 2)
    scale = (seeds[1] - seeds[0]) / (difference.seeds[1] - difference.seeds[0])
    half = (float(right) - float(left)) / 2
    assert half == pytest.approx(scale * difference.margin, rel=1e-3)
  assert {'← better', 'worse →'} <= {*words(perplexity.svg)}
  assert {'← worse', 'better →'} <= {*words(bleu.svg)}


NO_SCORE: Record = {'step': 9, 'dev_perplexity': None}


def test_curves_have_a_line_for_each_run():
  """One that diverged does not flatten the others; NaN has no point."""
  runs = [
    (name, [*({'step': n, 'loss': factor * 8 / n} for n in range(1, 9)), NO_SCORE])
    for name, factor in (('a', 1.0), ('b', 1.1), ('c', 1000.0))
  ]
  (picture,) = figures.curves(runs, [('mine', [{'step': 3, 'loss': 4.0}])])
  texts = {*words(picture.svg)}
  assert {'a', 'b', 'c', 'mine'} <= texts and 'dev perplexity' not in texts
  ticks = [float(x) for x in words(picture.svg) if re.fullmatch(r'\d+(\.\d+)?', x)]
  assert picture.svg.count('stroke: var(--blue)') > 1 and max(ticks) < 10
