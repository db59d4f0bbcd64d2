"""Curves: which are drawn together, in which colours, on which axes; and pictures."""

import json
import pathlib
import re
import xml.etree.ElementTree

import pytest

from toy.results import PARSED, changed, family, of_row, scored, unscored
from transformer_jax.report import comparable, figures, page, report, table3
from transformer_jax.report.page import Picture
from transformer_jax.report.results import HeldOut, Scored
from transformer_jax.tasks import TASKS

RECORDS = [{'step': n, 'loss': 4 + 9 / n} for n in range(1, 41)]
RECORDS += [{'step': n, 'dev_perplexity': 5 + 900 / n**2} for n in range(1, 41)]
XML = '{http://www.w3.org/2000/svg}'


def with_curves(found: list[Scored], records: list[dict] = RECORDS) -> list[Scored]:
  return [one._replace(records=records) for one in found]


def drawn(found: list[Scored], *others) -> dict[str, str]:
  """SVG by the picture's name."""
  made = figures.curves([*others, *found])
  return {block.name: block.svg for block in made if isinstance(block, Picture)}


def words(svg: str) -> list[str]:
  texts = xml.etree.ElementTree.fromstring(svg).iter(f'{XML}text')
  return [''.join(x.itertext()).strip() for x in texts]


def numbers(svg: str) -> list[float]:
  """Those of the axes' ticks, x and then y."""
  found = (re.fullmatch(r'[\d,.]+', word) for word in words(svg))
  return [float(x[0].replace(',', '')) for x in found if x]


def colour(svg: str, label: str) -> str:
  """That of a legend's line, which stands before its label."""
  before = svg[: svg.index(f'>{label}</text>')]
  return re.findall(r'stroke: (var\(--\w+\))', before)[-1]


def test_each_group_of_rows_has_its_axis_with_base_in_all():
  found = with_curves(family(('A1', 1), ('A2', 1), ('C7', 1), ('big', 1)))
  svgs = drawn(found)
  assert [*svgs] == [
    f'{x}.{g}' for x in ('perplexity', 'loss') for g in 'A C big'.split()
  ]
  assert {'base', 'A1: h 1', 'A2: h 4'} <= {*words(svgs['loss.A'])}
  assert {'base', 'C1: N 1', 'C7: d_ff 1024'} <= {*words(svgs['perplexity.C'])}
  assert 'nats' in ' '.join(words(svgs['loss.A']))
  assert drawn(found) == svgs  # the same bytes
  assert drawn(family()) == {}


def test_a_row_has_its_colour_wherever_it_is_drawn():
  both = drawn(with_curves(family(('A1', 1), ('A2', 1))))['loss.A']
  alone = drawn(with_curves([scored(of_row('A2'), 'x')]))['loss.A']
  assert colour(both, 'A2: h 4') == colour(alone, 'A2: h 4')
  assert len({colour(both, x) for x in ('A1: h 1', 'A2: h 4', 'base')}) == 3


def test_one_corpus_to_an_axis():
  found = with_curves(family())
  other = [
    one._replace(run=f'x{n}', home=pathlib.Path(f'/x{n}'), result=result)
    for n, one in enumerate(found)
    for result in [changed(one.result, row=None, corpus='f' * 64)]
  ]
  svgs = drawn([*found, *other])
  assert [*svgs] == ['perplexity.C.1', 'loss.C.1', 'perplexity.runs.2', 'loss.runs.2']
  assert 'x0' in words(svgs['loss.runs.2']) and 'x0' not in words(svgs['loss.C.1'])


def test_runs_without_a_result_are_drawn(tmp_path: pathlib.Path):
  started = unscored(tmp_path / 'run', 'D1', RECORDS)
  assert 'D1: P_drop 0' in words(drawn([], started)['perplexity.D'])


def test_a_parsers_curves_are_drawn(tmp_path: pathlib.Path):
  """In a report of parsers alone, and beside runs that translate."""
  parser = tmp_path / 'parser'
  PARSED.write(tmp_path / 'parser.json')
  lines = ''.join(json.dumps(record) + '\n' for record in RECORDS)
  (tmp_path / 'parser.metrics.jsonl').write_text(lines)
  of_row('D1').write(tmp_path / 'D1.json')
  (tmp_path / 'D1.metrics.jsonl').write_text(lines)
  for others in ([], [tmp_path / 'D1.json']):
    paths = [parser.with_suffix('.json'), *others]
    blocks = report.make_report(paths, TASKS, HeldOut(tmp_path), 0, None).blocks
    names = [b.name for b in blocks if isinstance(b, Picture)]
    assert [n for n in names if n.startswith('perplexity')] == (
      ['perplexity.runs.1', 'perplexity.D.2'] if others else ['perplexity.runs']
    )


def test_dev_bleu_is_drawn_where_it_was_measured():
  measured = [{'step': n, 'dev_bleu': 20 + n, 'bleu_seconds': 1} for n in (1, 2)]
  assert [*drawn(with_curves([scored(of_row())], measured))] == ['bleu.base']


def test_how_a_curve_begins_does_not_squeeze_how_it_ends():
  svg = drawn(with_curves(family()))['perplexity.C']
  assert max(numbers(svg)[-4:]) < 20  # it begins at 905


def test_values_that_are_no_numbers_are_passed_over():
  odd = [{'step': 5, 'loss': None}]
  assert drawn(with_curves(family(), odd)) == {}
  assert drawn(with_curves(family(), RECORDS + odd)) == drawn(with_curves(family()))


@pytest.mark.parametrize(
  'name',
  ['$x_1$', '$\\frac{', '_begins', 'a\udcffb\x01', '漢字', '<b>&--', 'x' * 300, '\n'],
)
def test_no_name_breaks_a_picture(name: str):
  one = scored(changed(of_row(), row=None), 'run')._replace(run=name, records=RECORDS)
  found = words(drawn([one])['loss.runs'])
  if name.isprintable() and len(name) < 20:
    assert name in found


def test_pictures_take_the_colours_of_the_page(tmp_path: pathlib.Path):
  """A file of its own brings light and dark ones along."""
  drawings = figures.curves(with_curves(family()))
  picture = next(x for x in drawings if isinstance(x, Picture))
  assert not re.search('#[0-9a-f]{6}', picture.svg)
  used = {*re.findall(r'var\(--(\w+)\)', picture.svg)}
  assert {'ink', 'paper', 'grey', 'blue'} <= used <= {*page.COLOURS}
  picture.write(tmp_path / 'x.svg')
  xml.etree.ElementTree.parse(tmp_path / 'x.svg')
  assert page.css() in (tmp_path / 'x.svg').read_text()
  assert 'prefers-color-scheme: dark' in page.css()


# Table 3 as a picture


def pictured(found: list[Scored]) -> list[Picture]:
  (group,), _ = comparable.group(found)
  ours = table3.differences(group, lambda *_: None)
  return figures.rows_minus_base(group, ours, '')


def marks(svg: str, named: str) -> int:
  """How many markers have the colour of runs ('blue') or of the paper."""
  uses = re.findall(r'<use [^>]*style="fill: var\(--(\w+)\)', svg)
  return uses.count(named)


def test_table_3_is_pictured_with_a_point_for_each_run():
  perplexity, bleu = pictured(family(('C1', 2, 7.2, 15.8)))
  assert perplexity.name == 'table3.perplexity' and bleu.name == 'table3.bleu'
  for picture in (perplexity, bleu):
    found = words(picture.svg)
    assert {'base', 'C1: N 1', 'E: positions learned', 'the paper'} <= {*found}
    # Three runs of base, two of C1 and their mean; 19 rows; one in the legend of each.
    assert marks(picture.svg, 'blue') == 3 + 2 + 1 + 2
    assert marks(picture.svg, 'vermilion') == 19 + 1
  assert {'← better', 'worse →'} <= {*words(perplexity.svg)}
  assert {'← worse', 'better →'} <= {*words(bleu.svg)}


def test_a_row_that_is_far_off_is_told_as_a_number():
  rows = [(row, 1, 5.1, 20.1) for row in ('A2', 'A3', 'B1', 'B2')]
  perplexity, bleu = pictured(family(*rows, ('D1', 1, 45.0, 2.0)))
  assert '+40.0 →' in words(perplexity.svg)
  assert '← -18.0' in words(bleu.svg)
