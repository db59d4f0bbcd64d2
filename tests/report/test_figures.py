"""Curves: which share axes, and in which colours; pictures of Table 3."""

import re
import xml.etree.ElementTree

import pytest

from toy.results import changed, family, of_row, scored
from transformer_jax.report import comparison, figures
from transformer_jax.report.page import Picture
from transformer_jax.report.results import Evaluation

RECORDS = [{'step': n, 'loss': 4 + 9 / n} for n in range(1, 41)]
RECORDS += [{'step': n, 'dev_perplexity': 5 + 900 / n**2} for n in range(1, 41)]
GROUPS = 'A', 'C', 'big'
XML = '{http://www.w3.org/2000/svg}'


def with_curves(runs: list[Evaluation]) -> list[Evaluation]:
  return [one._replace(records=RECORDS) for one in runs]


def svgs_of(runs: list[Evaluation]) -> dict[str, str]:
  """Returns the SVG of each picture by its name."""
  drawings = figures.curves(runs)
  return {block.name: block.svg for block in drawings if isinstance(block, Picture)}


def words(svg: str) -> list[str]:
  texts = xml.etree.ElementTree.fromstring(svg).iter(f'{XML}text')
  return [''.join(x.itertext()).strip() for x in texts]


def test_each_group_of_rows_has_its_axis_with_base_in_all():
  runs = with_curves(family(('A1', 1), ('A2', 1), ('C7', 1), ('big', 1)))
  svgs = svgs_of(runs)
  assert [*svgs] == [f'{x}.{g}' for x in ('perplexity', 'loss') for g in GROUPS]
  assert {'base', 'A1: h 1', 'A2: h 4'} <= {*words(svgs['loss.A'])}
  assert {'base', 'C1: N 1', 'C7: d_ff 1024'} <= {*words(svgs['perplexity.C'])}
  assert 'nats' in ' '.join(words(svgs['loss.A']))
  assert svgs_of(runs) == svgs  # the same bytes
  assert svgs_of(family()) == {}


@pytest.mark.parametrize(
  'name', ['$x_1$', '_begins', 'a\udcffb\x01', '漢字', '<b>&--', 'x' * 300]
)
def test_no_name_breaks_a_picture(name: str):
  one = scored(changed(of_row(), row=None), 'run')._replace(name=name, records=RECORDS)
  labels = words(svgs_of([one])['loss.runs'])
  if name.isprintable() and len(name) < 20:
    assert name in labels


def pictured(runs: list[Evaluation]) -> list[Picture]:
  (group,), _ = comparison.group(runs)
  ours = comparison.differences(group, lambda *_: None)
  return figures.rows_minus_base(group, ours, '')


def marks(svg: str, named: str) -> int:
  """Returns how many markers have a colour."""
  uses = re.findall(r'<use [^>]*style="fill: var\(--(\w+)\)', svg)
  return uses.count(named)


def test_table_3_is_pictured_with_a_point_for_each_run():
  perplexity, bleu = pictured(family(('C1', 2, 7.2, 15.8)))
  assert perplexity.name == 'table3.perplexity' and bleu.name == 'table3.bleu'
  for picture in (perplexity, bleu):
    labels = words(picture.svg)
    assert {'base', 'C1: N 1', 'E: positions learned', 'the paper'} <= {*labels}
    # Three runs of base, two of C1 and their mean; 19 rows; one in the legend of each.
    assert marks(picture.svg, 'blue') == 3 + 2 + 1 + 2
    assert marks(picture.svg, 'vermilion') == 19 + 1
  assert {'← better', 'worse →'} <= {*words(perplexity.svg)}
  assert {'← worse', 'better →'} <= {*words(bleu.svg)}
