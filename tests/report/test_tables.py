"""Tables 2 and 3 beside the paper's, differences from base, and training FLOPs."""

import pytest

from configs import table3
from toy.results import cells, changed, family, of_config, scored
from transformer_jax.report import differences, flops, grouping, page, paper, tables
from transformer_jax.report.blocks import Table
from transformer_jax.report.results import Scored
from transformer_jax.runs.result import Result


def printed(found: list[Scored], compare: differences.Compare = lambda *_: None) -> str:
  (group,), _ = grouping.group(found)
  differ = differences.differences(group, compare)
  return page.markdown(tables.comparable(group, None, differ))


# Table 3


def test_table_3_in_miniature_beside_the_papers():
  text = printed(family())
  assert '## Table 3 in miniature on multi30k.en-de.mini, scored on val+test' in text
  # Base alone has several seeds, so its spread is that of C1, too.
  assert cells(text, 'base') == [
    'base',
    'N 6, d_model 512, d_ff 2,048, h 8, d_k 64, d_v 64, P_drop 0.1, epsilon_ls 0.1, '
    'train_steps 100,000',
    'N 3, d_model 128, d_ff 512, h 8, d_k 16, d_v 16, P_drop 0.1, epsilon_ls 0.1, '
    'train_steps 3,125',
    '3',
    '4.92',
    '5.00 ± 0.25 (sd 0.10)',
    '25.8',
    '20.00 ± 0.50 (sd 0.20)',
    '19.50 ± 0.50 (sd 0.20)',
    '65 M',
    '2.40 M',
  ]
  assert cells(text, 'C1', 1)[1:6] == ['N 2', 'N 1', '1', '6.11', '7.00 ± 0.43']
  for row, papers in paper.TABLE_3.items():
    found = cells(text, row, row != 'base')
    assert float(found[4]) == papers.perplexity and float(found[6]) == papers.bleu
    if row not in ('base', 'C1'):
      assert [*found[2:4], found[5], *found[7:9], found[10]] == [''] * 6
  assert "Not the paper's corpus, nor its base model (here N 3, d_model 128" in text


def test_runs_of_the_papers_size_stand_beside_its_numbers():
  result = of_config(table3.get_config('base'))
  text = printed([scored(result)])
  assert '## Table 3 on wmt14.en-de\n' in text and "Not the paper's" not in text
  other = changed(result, {'data.reader': 'files', 'data.name': 'mine'})
  text = printed([scored(other)])
  assert '## Table 3 on mine\n' in text and "Not the paper's corpus: its col" in text
  held_out = changed(result, {'data.files.dev': ['newstest2012']})
  text = printed([scored(held_out)])
  assert '## Table 3 in miniature on wmt14.en-de, scored on newstest2012' in text


def test_where_it_was_trained_and_decoded_is_told():
  """Row by row if the rows differ in it, and also where it is not known."""
  found = family()
  text = printed(found)
  assert 'Trained on: CPU, 2 cores (2 JAX devices). Decoded in: float32. ' in text
  other = {'training_device': '1 x NVIDIA H100', 'decode_dtype': None}
  found[3] = found[3]._replace(result=changed(found[3].result, **other))
  text = printed(found)
  assert 'CPU, 2 cores (2 JAX devices) (base); 1 x NVIDIA H100 (C1). ' in text
  assert 'Decoded in: float32 (base); not recorded (C1). ' in text


# Differences from base


@pytest.mark.parametrize(
  'papers, ours, margin, p, expected',
  [
    (-0.9, -2.0, 1.0, None, 'agrees'),
    (-0.9, 2.0, 1.0, None, 'disagrees'),
    (-0.9, -1.0, 1.0, None, 'undecided'),
    (-0.9, -2.0, None, 0.001, 'undecided'),
    (-0.9, -2.0, 1.0, 0.05, 'undecided'),
    (-0.9, -2.0, 1.0, 0.049, 'agrees'),
    (0.4, 2.0, 1.0, None, 'agrees'),
    (0.0, 2.0, 1.0, None, 'disagrees'),
    (0.0, 0.5, 1.0, None, 'undecided'),
  ],
)
def test_verdict(papers, ours, margin, p, expected: str):
  assert differences.Difference([ours], ours, margin, p).verdict(papers) == expected


def test_differences_from_base():
  text = printed(family(('C7', 1, 5.6, 20.3), ('D1', 1, 3.0, 22.0)), lambda *_: 0.01)
  # Two degrees of freedom, sd 0.1 and 0.2, one run against three: t is 4.303.
  assert cells(text, 'C1') == (
    'C1 | +1.19 | +2.00 ± 0.50 | agrees | -2.1 | -4.00 ± 0.99 | 0.010 | agrees'
  ).split(' | ')
  assert cells(text, 'D1')[3::4] == ['disagrees', 'disagrees']
  assert cells(text, 'C7')[3::4] == ['disagrees', 'undecided']
  assert cells(text, 'C7')[6] == '', 'inside its interval no test can change it'
  assert cells(text, 'B1') == ['B1', '+0.24', '', '', '-0.7', '', '', '']
  assert 'can show differences from 0.50 PPL and 0.99 BLEU on' in text


def test_what_is_missing_to_tell_differences_is_said():
  text = printed([s for s in family() if s.seed == 1], lambda *_: 0.001)
  assert cells(text, 'C1')[2:4] == ['+2.00', 'undecided']
  assert 'agrees |' not in text and 'No row has seeds that differ' in text
  text = printed([s for s in family() if s.run.startswith('base')])
  assert 'no runs of any other row' in text
  assert 'can show differences from 0.50 PPL and 0.99 BLEU on' in text
  text = printed([scored(of_config(table3.get_config('C1')))])
  assert 'There are no runs of base' in text and cells(text, 'C1')[5] == '5.00'


def test_pairs_are_of_one_seed():
  """Several are combined to twice their mean, one stays as it is."""
  found = family(('C1', 2), ('C1', 9))
  base, c1 = found[:3], found[3:]
  asked = []

  def compare(system: Scored, baseline: Scored) -> float:
    asked.append((system.seed, baseline.seed))
    return 0.01 * system.seed

  assert differences.paired_p(c1, base, compare) == pytest.approx(0.01 + 0.02)
  assert asked == [(1, 1), (2, 2)]
  assert differences.paired_p(c1[:1], base, compare) == 0.01
  assert differences.paired_p(c1, base, lambda *_: 0.9) == 1
  assert differences.paired_p(c1, base, lambda *_: None) is None


# Table 2 and FLOPs


def on_test(row: str, device: str | None = '8 x Tesla P100-SXM2-16GB') -> Result:
  average = paper.TRAINING[row].averaged
  result = of_config(table3.get_config(row), average=average)
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
    ('2 x NVIDIA H200', None, None),
    ('CPU, 2 cores (2 JAX devices)', None, None),
    ('4 x Quadro P1000', None, None),  # is no P100
    ('8 x Tesla P100-SXM2-16GB; 1 x Tesla P100-SXM2-16GB', 50.0, None),
    (None, 50.0, None),
  ],
)
def test_flops_by_the_papers_method(device, tflops, expected):
  found = flops.by_paper(scored(on_test('base', device)), tflops)
  assert found == (expected and pytest.approx(expected, rel=1e-3))


def test_counted_flops():
  found = flops.counted(scored(on_test('base')))
  assert found == pytest.approx(0.381e9 * 10_000_000, rel=0.01)
  table = next(block for block in flops.papers_own() if isinstance(block, Table))
  assert table.rows == [
    ['base', '3.3e+18', '3.28e+18', '3.04e+18', '9.53e+17', '29%'],
    ['big', '2.3e+19', '2.30e+19', '2.28e+19', '9.68e+18', '42%'],
  ]


def test_where_the_paper_contradicts_itself():
  _, listed = tables.inconsistencies()
  assert len(listed.items) == len(paper.INCONSISTENCIES)
  assert any('41.8' in item and '41.0' in item for item in listed.items)
  assert any('3.3e18' in item and '3.0e18' in item for item in listed.items)
