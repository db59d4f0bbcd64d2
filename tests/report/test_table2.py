"""Table 2 beside the paper's, and training FLOPs."""

import pytest

from configs import table3 as configs
from toy.results import cells, changed, of_config, scored
from transformer_jax.report import paper, report, results
from transformer_jax.report.results import ScoredRun
from transformer_jax.runs.result import Result


def printed(runs: list[ScoredRun]) -> str:
  (group,), _ = results.group(runs)
  return report.table_2(group)


def on_test(row: str) -> Result:
  average = paper.TRAINING[row].averaged
  return changed(of_config(configs.get_config(row), average=average), split='test')


@pytest.mark.parametrize(
  'row, bleu, flops, counted',
  [('base', '27.3', '3.3e+18', '3.8e+15'), ('big', '28.4', '2.3e+19', '1.3e+16')],
)
def test_table_2(row: str, bleu: str, flops: str, counted: str):
  text = printed([scored(on_test(row))])
  ours = cells(text, f'Transformer ({row})')
  assert ours[1:] == ['1', bleu, '20.00', '19.50', '19.50', flops, counted]
  assert cells(text, 'ByteNet')[1:] == ['', '23.75', *5 * ['']]
  french = {'data.target_language': 'fr'}
  text = printed([scored(changed(on_test('base'), french))])
  assert cells(text, 'Transformer (base)')[2] == '38.1'
