"""Table 2 beside the paper's, and training FLOPs."""

import pytest

from configs import table3 as configs
from toy.results import cells, changed, of_config, scored
from transformer_jax.report import comparison, paper, tables
from transformer_jax.report.results import Evaluation
from transformer_jax.runs.result import Result


def printed(runs: list[Evaluation]) -> str:
  (group,), _ = comparison.group(runs)
  return tables.table_2(group, None)


def on_test(row: str, device: str | None = '8 x Tesla P100-SXM2-16GB') -> Result:
  average = paper.TRAINING[row].averaged
  result = of_config(configs.get_config(row), average=average)
  return changed(result, split='test', training_device=device)


@pytest.mark.parametrize(
  'row, bleu, flops', [('base', '27.3', '3.3e+18'), ('big', '28.4', '2.3e+19')]
)
def test_table_2(row: str, bleu: str, flops: str):
  text = printed([scored(on_test(row))])
  ours = cells(text, f'Transformer ({row})')
  assert ours[1:7] == ['1', bleu, '20.00', '19.50', flops, '3.3e+18']
  assert cells(text, 'ByteNet')[1:] == ['', '23.75', '', '', '', '', '']
  french = {'data.target_language': 'fr'}
  text = printed([scored(changed(on_test('base'), french))])
  assert cells(text, 'Transformer (base)')[2] == '38.1'


def test_a_mean_of_flops_needs_them_of_all_seeds():
  other = changed(on_test('base', '8 x TPU v3'), {'seed': 2})
  text = printed([scored(on_test('base'), 'first'), scored(other, 'second')])
  ours = cells(text, 'Transformer (base)')
  assert ours[1] == '2' and ours[6] == '' and ours[7] == '3.8e+15'


@pytest.mark.parametrize(
  'device, tflops, expected',
  [
    ('8 x Tesla P100-SXM2-16GB', None, 3.283e18),
    ('2 x NVIDIA H200', 50.0, 12 * 3600 * 2 * 50e12),
    ('8 x Tesla P100-SXM2-16GB', 5.0, 12 * 3600 * 8 * 5e12),
    ('2 x NVIDIA H200', None, None),
    ('CPU, 2 cores (2 JAX devices)', None, None),
    ('4 x Quadro P1000', None, None),  # is no P100
    ('8 x Tesla P100-SXM2-16GB; 1 x Tesla P100-SXM2-16GB', 50.0, None),
    (None, 50.0, None),
  ],
)
def test_flops_by_the_papers_method(device, tflops, expected):
  operations = tables.flops_by_paper(scored(on_test('base', device)), tflops)
  assert operations == (expected and pytest.approx(expected, rel=1e-3))
