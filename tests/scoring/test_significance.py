"""Spread over seeds against SciPy and simulation; the paired test on made systems."""

import numpy as np
import pytest
import scipy.stats
from sacrebleu.significance import PairedTest

from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import bleu, significance

WORDS = (
  'ein kleines Haus-Boot steht am alten Fluss, wo “Ruhe” und 3.5 Vögel sind'.split()
)


@pytest.fixture(scope='module')
def systems() -> dict[str, list[str]]:
  """References, and systems that spoil words of them."""
  rng = np.random.default_rng(0)
  references = [' '.join(rng.permutation(WORDS)) + '.' for _ in range(120)]

  def worse(*places: int) -> list[str]:
    """Spoils those words of every ten, other ones in each line."""
    spoilt = lambda i, j, word: 'X\xa0y' if (7 * i + 3 * j) % 10 in places else word
    return [
      ' '.join(spoilt(i, j, word) for j, word in enumerate(line.split(' ')))
      for i, line in enumerate(references)
    ]

  return {
    'references': references,
    'good': worse(0),
    'alike': worse(5),
    'bad': worse(0, 2, 5, 7),
  }


def test_spread_is_scipys():
  values = [25.1, 25.6, 24.9, 25.8]
  found = significance.spread(values)
  low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
  assert found.mean == pytest.approx(np.mean(values))
  assert found.deviation == pytest.approx(np.std(values, ddof=1))
  assert found.mean - found.margin == pytest.approx(low)
  assert found.mean + found.margin == pytest.approx(high)


def test_one_seed_has_no_spread():
  assert significance.spread([3.0]) == (3.0, None, None, 1)
  assert significance.noise([[3.0], [4.0]]) is None


def test_seeds_that_are_all_equal_tell_of_no_noise():
  """As where all score 0.00: else any difference would be beyond it."""
  assert significance.noise([[0.0, 0.0], [0.4]]) is None
  assert significance.noise([[0.1, 0.1, 0.1]]) is None, 'however it is rounded'


def test_noise_pools_what_varies_within_groups():
  groups = [[1.0, 2.0, 3.0], [10.0, 14.0], [99.0]]
  found = significance.noise(groups)
  assert found.freedom == 3
  assert found.deviation == pytest.approx(((2 + 8) / 3) ** 0.5)


def test_margin_holds_95_percent_of_the_differences():
  rng = np.random.default_rng(1)
  held = 0
  for _ in range(2000):
    base, row = rng.normal(20, 0.3, 3), rng.normal(20, 0.3, 1)
    noise = significance.noise([base, row])
    held += abs(row.mean() - base.mean()) <= significance.margin(noise, 1, 3)
  assert held / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize('lowercase', [False, True])
def test_scores_are_those_of_bleu(systems: dict, lowercase: bool):
  good, bad, references = (systems[k] for k in ('good', 'bad', 'references'))
  found = significance.paired_bootstrap(
    good, bad, references, 'de', lowercase=lowercase
  )
  score = lambda system: bleu.paper_bleu(system, references, 'de', lowercase).score
  assert found['paper_bleu'].score == pytest.approx(score(good), abs=1e-9)
  assert found['paper_bleu'].baseline == pytest.approx(score(bad), abs=1e-9)
  score = lambda system: bleu.sacre_bleu(system, references, lowercase).score
  assert found['sacrebleu'].score == pytest.approx(score(good), abs=1e-9)
  assert found['sacrebleu'].baseline == pytest.approx(score(bad), abs=1e-9)
  assert 'bs:1000|seed:' in found['sacrebleu'].signature
  plain = bleu.paper_bleu(good, references, 'de', lowercase).signature
  assert found['paper_bleu'].signature == f'{plain}|bs:1000|seed:12345'


def test_tokens_given_are_left_as_they_are(systems: dict):
  good, bad, references = (systems[k] for k in ('good', 'bad', 'references'))
  found = significance.paired_bootstrap(
    good, bad, references, 'de', tokenized=True, kinds=['paper_bleu']
  )
  expected = bleu.tokenized_bleu(good, references).score
  assert [*found] == ['paper_bleu']
  assert found['paper_bleu'].score == pytest.approx(expected, abs=1e-9)
  assert '|tok:none|' in found['paper_bleu'].signature
  split = significance.paired_bootstrap(good, bad, references, 'de')['paper_bleu']
  assert split.score != pytest.approx(expected, abs=1e-3)


def test_p(systems: dict):
  good, bad, references = (systems[k] for k in ('good', 'bad', 'references'))
  test = lambda a, b: significance.paired_bootstrap(a, b, references, 'de')
  clear, equal, alike = test(good, bad), test(good, good), test(good, systems['alike'])
  for kind in ('sacrebleu', 'paper_bleu'):
    assert clear[kind].p < 0.01
    assert equal[kind].p == 1.0  # sacreBLEU itself says 0.001 here
    assert alike[kind].p > 0.05
  metric = bleu.sacre_metric(False, False, 'de')
  named = [('alike', systems['alike']), ('good', good)]
  own = PairedTest(named, {'BLEU': metric}, [references], test_type='bs')()[1]
  assert alike['sacrebleu'].p == min(1.0, 2 * own['BLEU'][1].p_value)
  assert test(bad, good)['sacrebleu'].p == clear['sacrebleu'].p


@pytest.mark.slow
def test_p_where_nothing_differs():
  """Of two systems with equal chances of errors, one in twenty has p < 0.05."""
  rng = np.random.default_rng(7)
  words = np.array([f'w{i}' for i in range(200)])

  def spoilt(lines: list[np.ndarray]) -> list[str]:
    drawn = lambda line: words[rng.integers(200, size=len(line))]
    bad = lambda line: rng.random(len(line)) < 0.25
    return [' '.join(np.where(bad(line), drawn(line), line)) for line in lines]

  below = 0
  for _ in range(400):
    lines = [words[rng.integers(200, size=rng.integers(6, 14))] for _ in range(50)]
    texts = spoilt(lines), spoilt(lines), [' '.join(line) for line in lines]
    found = significance.paired_bootstrap(*texts, 'de', True, kinds=['paper_bleu'])
    below += found['paper_bleu'].p < 0.05
  assert 0.03 < below / 400 < 0.09  # sacreBLEU's own p: 0.12


def test_unequal_numbers_of_lines_are_refused():
  with pytest.raises(UserError, match='2 and 1 hypotheses for 2 references'):
    significance.paired_bootstrap(['a', 'b'], ['a'], ['a', 'b'], 'de')
  with pytest.raises(UserError, match='0 and 0 hypotheses'):
    significance.paired_bootstrap([], [], [], 'de')
