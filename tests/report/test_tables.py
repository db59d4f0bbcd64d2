"""Tables 2 and 3 beside the paper's: differences from base, verdicts, claims."""

import numpy as np
import pytest
import scipy.stats

from configs import table3 as configs
from toy.results import cells, changed, family, of_config, scored
from transformer_jax.report import comparison, results
from transformer_jax.report.page import markdown
from transformer_jax.report.report import describe_group
from transformer_jax.report.results import ScoredRun

pytestmark = pytest.mark.usefixtures('no_pictures')


def printed(
  runs: list[ScoredRun], compare: comparison.Compare = lambda *_: None
) -> str:
  (group,), _ = results.group(runs)
  ours = comparison.differences(group, compare)
  return markdown(describe_group(group, ours, ''))


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
    *2 * ['19.50 ± 0.50 (sd 0.20)'],
    '65 M',
    '2.40 M',
  ]
  assert cells(text, 'C1', 1)[1:6] == ['N 2', 'N 1', '1', '6.11', '7.00 ± 0.43']
  assert '| row | PPL verdict | BLEU verdict | PPL |' in text  # a phone shows three
  assert "Not the paper's corpus, nor its base model (here N 3, d_model 128" in text


def test_runs_of_the_papers_size_stand_beside_its_numbers():
  result = of_config(configs.get_config('base'))
  text = printed([scored(result)])
  assert '## Table 3 on wmt14.en-de\n' in text and "Not the paper's" not in text
  other = changed(result, {'data.reader': 'files', 'data.name': 'mine'})
  text = printed([scored(other)])
  assert '## Table 3 on mine\n' in text and "Not the paper's corpus: compare" in text
  held_out = changed(result, {'data.files.dev': ['newstest2012']})
  text = printed([scored(held_out)])
  assert '## Table 3 in miniature on wmt14.en-de, scored on newstest2012' in text


@pytest.mark.parametrize('level', [0.95, 0.9])
def test_the_interval_is_student_s(level: float):
  """Of two rows SciPy has it; the deviation of others counts, too."""
  base, row = [20.0, 20.4, 19.9], [21.0, 21.5]
  noise = comparison.noise([base, row, [7.0]])
  half = comparison.half_interval(noise, 2, 3, level=level)
  low, high = scipy.stats.ttest_ind(row, base).confidence_interval(level)
  assert [np.mean(row) - np.mean(base) + x for x in (-half, half)] == pytest.approx(
    [low, high]
  )
  low, high = scipy.stats.t.interval(level, 2, np.mean(base), scipy.stats.sem(base))
  alone = comparison.half_interval(comparison.noise([base]), 3, level=level)
  assert alone == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
  'sign, mean, margin, expected',
  [
    (-1, -2.0, 1.0, 'agrees'),
    (-1, 2.0, 1.0, 'disagrees'),
    (-1, -1.0, 1.0, 'undecided'),
    (-1, -2.0, None, 'undecided'),
    (0, -0.1, 0.2, 'agrees'),
    (0, 0.2, 0.25, 'undecided'),
    (0, 2.0, 1.5, 'disagrees'),
    (0, 0.6, 0.2, 'undecided'),  # no more than the margin, perhaps
  ],
)
def test_verdict(sign: int, mean: float, margin: float | None, expected: str):
  narrow = margin and 0.8 * margin
  difference = comparison.Difference([mean], mean, margin, narrow, 0.4, sign)
  assert difference.verdict == expected


def test_differences_from_base():
  rows = ('C7', 1, 5.6, 20.3), ('D1', 1, 3.0, 22.0), ('E', 1, 5.7, 20.3)
  text = printed(family(*rows), lambda *_: 0.9)
  # Two degrees of freedom, sd 0.1 and 0.2, one run against three: t is 4.303.
  assert cells(text, 'C1') == (
    'C1 | agrees | agrees | +2.00 ± 0.50 | -4.00 ± 0.99 | 0.900 | +1.19 | -2.1'
  ).split(' | ')
  assert cells(text, 'D1')[1:3] == ['disagrees', 'disagrees']
  assert cells(text, 'C7')[1:3] == ['disagrees', 'undecided']
  assert cells(text, 'E')[1:3] == ['disagrees', 'undecided (13 of 100)']
  assert 'Not run: A1, A2, ' in text and '| B1 |' not in text
  assert 'decides a measured difference of 0.50 PPL or 0.99 BLEU or more' in text


def test_a_row_of_ones_own_has_no_verdict():
  config = configs.get_config('A5,mini', {'A5': {'h': 64, 'd_k': 8}})
  with pytest.raises(ValueError, match='A5'):
    configs.get_config('A5,mini')
  other = changed(of_config(config, 2), {'model.d_k': 4})
  runs = [*family(), scored(of_config(config), 'mine'), scored(other, 'other')]
  text = printed(runs)
  # It has no part in the noise of the paper's rows.
  cells_of_a5 = ['', '', '+0.00 ± 0.50', '+0.00 ± 0.99']
  assert cells(text, 'A5') == ['A5', *cells_of_a5, '', '', '']
  assert cells(text, 'A5', 1)[1:5] == ['', 'h 64, d_k 2', '1', '']
  assert 'other (row A5) is not in Table 3: its cells are not those of mine: ' in text


def test_what_was_decoded_in_another_dtype_is_marked():
  base, *rest, row = family()
  other = changed(row.result, decode_dtype='bfloat16')
  text = printed([base, *rest, row._replace(result=other)])
  assert cells(text, 'C1')[3] == '+2.00 ± 0.50†' and 'C1 +2.00†, -4.00†' in text
  assert 'Decoded in: float32 (base); bfloat16 (C1).' in text
  assert '†' not in printed(family())


def test_every_run_of_a_row_is_compared_with_one_of_base():
  (group,), _ = results.group(family(('C1', 9), ('C1', 2), ('D1', 9)))
  seeds = lambda _, *both: [[run.seed for run in runs] for runs in both]
  ours = comparison.differences(group, seeds)
  assert ours['C1'][1].p == [[1, 2, 9], [1, 2, 3]]
  # The smallest difference that counts is relative to base, which has 5.0 here.
  assert ours['C1'][0].equivalence == pytest.approx(0.09 / 4.92 * 5.0)
  assert ours['D1'][1].p == [[9], [1]] and ours['base'][1].p is None


def test_nothing_is_judged_before_base_has_learnt():
  """Half the loss of an untrained model is the root of the number of pieces, 77."""
  for factor, judged in ((15.4, True), (15.6, False)):
    runs = family()
    for n, run in enumerate(runs):
      perplexity = run.result.dev_perplexity * factor
      runs[n] = run._replace(result=changed(run.result, dev_perplexity=perplexity))
    text = printed(runs)
    assert ('| agrees |' in text) == judged
    reason = "Nothing is judged: base's dev perplexity is 78 after 3,125 updates"
    assert (reason in text) != judged


def test_what_a_comparison_lacks_is_named():
  text = printed([s for s in family() if s.seed == 1], lambda *_: 0.001)
  assert cells(text, 'C1')[2:4] == ['undecided', '+2.00']
  assert 'agrees |' not in text and 'No row has seeds that differ' in text
  text = printed([s for s in family() if s.name.startswith('base')])
  assert 'no runs of any other row' in text
  text = printed([scored(of_config(configs.get_config('C1')))])
  assert 'There are no runs of base' in text and cells(text, 'C1')[5] == '5.00'


# Perplexity and BLEU of one run of a row beside family()'s base, of 5.0 and 20.0, whose
# seeds can tell differences of 0.50 and 0.99.
WORSE, BETTER, SAME = (7.0, 16.0), (3.0, 24.0), (5.1, 20.1)


def differences(*rows: tuple) -> comparison.Differences:
  """Returns those of these rows and of family(), which has a worse C1."""
  runs = family(*((row, 1, *scores) for row, scores in rows))
  (group,), _ = results.group(runs)
  return comparison.differences(group, lambda *_: None)


SIZES = [('C2', WORSE), ('C4', WORSE), ('C6', WORSE), ('C5', BETTER)]


@pytest.mark.parametrize(
  'claim, rows, verdict',
  [
    ('One', [('A1', WORSE)], 'agrees'),
    ('One', [('A1', BETTER)], 'disagrees'),
    ('One', [('A1', (7.0, 20.1))], 'undecided'),  # BLEU tells nothing
    ('One', [('A1', (7.0, 24.0))], 'disagrees'),  # in BLEU
    ('One', [], 'not run'),
    ('Smaller', [('B1', WORSE), ('B2', SAME)], 'agrees'),
    ('Smaller', [('B1', WORSE), ('B2', BETTER)], 'undecided'),
    ('Bigger', [], 'undecided'),  # C1 alone ran
    ('Bigger', [*SIZES, ('C3', BETTER), ('C7', BETTER)], 'agrees'),
    # although the paper's BLEU of C3 fell, too
    ('Bigger', [*SIZES, ('C3', WORSE), ('C7', BETTER)], 'undecided'),
    ('Learned', [('E', SAME)], 'undecided'),
    ('Label', [('D3', (3.0, 16.0))], 'agrees'),
  ],
)
def test_verdict_of_a_claim(claim: str, rows: list[tuple], verdict: str):
  judged = comparison.judge(differences(*rows))
  assert [x.verdict for x in judged if x.claim.text.startswith(claim)] == [verdict]


def test_table_2():
  result = of_config(configs.get_config('base'), average=5)
  text = printed([scored(changed(result, split='test'))])
  assert '### Table 2 on wmt14.en-de\n' in text and 'Table 3' not in text
  ours = cells(text, 'Transformer (base)')[1:]
  assert ours == ['1', '27.3', '20.00', '19.50', '19.50', '3.3e+18', '3.8e+15']
  assert cells(text, 'ByteNet')[1:] == ['', '23.75', *5 * ['']]
  french = changed(result, {'data.target_language': 'fr'}, split='test')
  text = printed([scored(french)])
  assert cells(text, 'Transformer (base)')[2] == '38.1'
  assert cells(text, 'GNMT + RL')[2::4] == ['39.92', '1.4e+20']
