"""Pictures of Table 3: their marks and labels."""

import re
import xml.etree.ElementTree

from toy.results import family
from transformer_jax.report import comparison, figures
from transformer_jax.report.page import Picture
from transformer_jax.report.results import ScoredRun

XML = '{http://www.w3.org/2000/svg}'


def words(svg: str) -> list[str]:
  texts = xml.etree.ElementTree.fromstring(svg).iter(f'{XML}text')
  return [''.join(x.itertext()).strip() for x in texts]


def pictured(runs: list[ScoredRun]) -> list[Picture]:
  (group,), _ = comparison.group(runs)
  ours = comparison.differences(group, lambda *_: None)
  return figures.rows_minus_base(group, ours, '')


def marks(svg: str, named: str) -> int:
  """Returns how many markers have a colour."""
  uses = re.findall(r'<use [^>]*style="fill: var\(--(\w+)\)', svg)
  return uses.count(named)


def test_table_3_is_pictured_with_a_point_for_each_run():
  runs = family(('C1', 2, 7.2, 15.8))
  perplexity, bleu = pictured(runs)
  assert pictured(runs) == [perplexity, bleu]  # the same bytes
  assert perplexity.name == 'table3.perplexity' and bleu.name == 'table3.bleu'
  for picture in (perplexity, bleu):
    labels = words(picture.svg)
    assert {'base', 'C1: N 1', 'E: positions learned', 'the paper'} <= {*labels}
    # Three runs of base, two of C1 and their mean; 19 rows; one in the legend of each.
    assert marks(picture.svg, 'blue') == 3 + 2 + 1 + 2
    assert marks(picture.svg, 'vermilion') == 19 + 1
  assert {'← better', 'worse →'} <= {*words(perplexity.svg)}
  assert {'← worse', 'better →'} <= {*words(bleu.svg)}
