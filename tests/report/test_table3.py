"""Table 3 beside the paper's: differences from base, verdicts, claims."""

import pytest

from configs import table3 as configs
from toy.results import cells, changed, family, of_config, scored
from transformer_jax.report import comparison, paper, tables
from transformer_jax.report.page import markdown
from transformer_jax.report.report import describe_group
from transformer_jax.report.results import Evaluation


def printed(
  runs: list[Evaluation], compare: comparison.Compare = lambda *_: None
) -> str:
  (group,), _ = comparison.group(runs)
  ours = comparison.differences(group, compare)
  return markdown(describe_group(group, ours, None, ''))


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
    runs = cells(text, row, row != 'base')
    assert float(runs[4]) == papers.perplexity and float(runs[6]) == papers.bleu
    if row not in ('base', 'C1'):
      assert [*runs[2:4], runs[5], *runs[7:9], runs[10]] == [''] * 6
  assert "Not the paper's corpus, nor its base model (here N 3, d_model 128" in text


def test_runs_of_the_papers_size_stand_beside_its_numbers():
  result = of_config(configs.get_config('base'))
  text = printed([scored(result)])
  assert '## Table 3 on wmt14.en-de\n' in text and "Not the paper's" not in text
  other = changed(result, {'data.reader': 'files', 'data.name': 'mine'})
  text = printed([scored(other)])
  assert '## Table 3 on mine\n' in text and "Not the paper's corpus: its col" in text
  held_out = changed(result, {'data.files.dev': ['newstest2012']})
  text = printed([scored(held_out)])
  assert '## Table 3 in miniature on wmt14.en-de, scored on newstest2012' in text


def test_devices_and_dtypes_are_named():
  """Row by row if they differ, and also where they are not recorded."""
  runs = family()
  text = printed(runs)
  assert 'Trained on: CPU, 2 cores (2 JAX devices). Decoded in: float32. ' in text
  other = {'training_device': '1 x NVIDIA H100', 'decode_dtype': None}
  runs[3] = runs[3]._replace(result=changed(runs[3].result, **other))
  text = printed(runs)
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
    (0.0, 2.0, 1.0, None, 'disagrees'),
  ],
)
def test_verdict(papers, ours, margin, p, expected: str):
  assert comparison.Difference([ours], ours, margin, p).verdict(papers) == expected


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


def test_what_a_comparison_lacks_is_named():
  text = printed([s for s in family() if s.seed == 1], lambda *_: 0.001)
  assert cells(text, 'C1')[2:4] == ['+2.00', 'undecided']
  assert 'agrees |' not in text and 'No row has seeds that differ' in text
  text = printed([s for s in family() if s.name.startswith('base')])
  assert 'no runs of any other row' in text
  assert 'can show differences from 0.50 PPL and 0.99 BLEU on' in text
  text = printed([scored(of_config(configs.get_config('C1')))])
  assert 'There are no runs of base' in text and cells(text, 'C1')[5] == '5.00'


def test_pairs_are_of_one_seed():
  """Several values of p are combined to twice their mean."""
  runs = family(('C1', 2), ('C1', 9))
  base, c1 = runs[:3], runs[3:]
  compared = []

  def compare(system: Evaluation, baseline: Evaluation) -> float:
    compared.append((system.seed, baseline.seed))
    return 0.01 * system.seed

  assert comparison.paired_p(c1, base, compare) == pytest.approx(0.01 + 0.02)
  assert compared == [(1, 1), (2, 2)]
  assert comparison.paired_p(c1[:1], base, compare) == 0.01
  assert comparison.paired_p(c1, base, lambda *_: 0.9) == 1
  assert comparison.paired_p(c1, base, lambda *_: None) is None


# Claims

# Perplexity and BLEU of one run of a row beside family()'s base, of 5.0 and 20.0, whose
# seeds can tell differences of 0.50 and 0.99.
WORSE, BETTER, SAME = (7.0, 16.0), (3.0, 24.0), (5.1, 20.1)


def judged(
  *rows: tuple, p: float | None = 0.01
) -> tuple[dict[str, comparison.Judgement], comparison.Differences]:
  """Returns verdicts by the first word of a claim; family() has a worse C1."""
  runs = family(*((row, 1, *scores) for row, scores in rows))
  (group,), _ = comparison.group(runs)
  ours = comparison.differences(group, lambda *_: p)
  return {one.claim.text.split()[0]: one for one in comparison.judge(ours)}, ours


@pytest.mark.parametrize(
  'claim, rows, verdict',
  [
    ('One', [('A1', WORSE)], 'agrees'),
    ('One', [('A1', BETTER)], 'disagrees'),
    ('One', [('A1', SAME)], 'undecided'),
    ('One', [('A1', (7.0, 20.1))], 'undecided'),  # BLEU tells nothing
    ('One', [('A1', (5.1, 24.0))], 'disagrees'),
    ('One', [], 'not run'),
    ('Smaller', [('B1', WORSE), ('B2', SAME)], 'agrees'),
    ('Smaller', [('B1', WORSE), ('B2', BETTER)], 'undecided'),
    ('Bigger', [], 'agrees'),  # by C1
    ('Bigger', [('C3', WORSE)], 'undecided'),  # although the paper's BLEU fell, too
    ('Learned', [('E', SAME)], 'undecided'),
    ('Learned', [('E', BETTER)], 'disagrees'),
    ('Label', [('D3', (3.0, 16.0))], 'agrees'),
  ],
)
def test_verdict_of_a_claim(claim: str, rows: list[tuple], verdict: str):
  assert judged(*rows)[0][claim].verdict == verdict


def test_claims_are_counted_with_their_effects():
  by_claim, ours = judged(('A1', WORSE), ('B1', BETTER), ('C3', SAME), ('C2', WORSE))
  each = [*by_claim.values()]
  assert comparison.count_verdicts(each, ours) == (
    'Of 7 claims 2 agree, 1 disagrees, 4 were not run.'
  )
  text = markdown(tables.claims(ours))
  assert (
    '- **Agrees: One head is worse than eight (section 6.2)**: A1: perplexity +2.00 '
    '(+0.37) agrees, BLEU -4.00 (-0.9) agrees.\n'
  ) in text
  assert '- **Not run: Too many heads are worse, too (section 6.2)**: A4\n' in text
