"""The paired bootstrap of two systems, on made ones."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from transformer_jax.scoring import bleu

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


@pytest.mark.parametrize('lowercase', [False, True])
def test_scores_and_intervals_are_those_that_each_has_alone(
  systems: dict, lowercase: bool
):
  good, bad, references = (systems[k] for k in ('good', 'bad', 'references'))
  for metric in bleu.both('de', False, lowercase):
    paired = metric.compare(good, bad, references)
    ours, theirs = (metric.score(lines, references) for lines in (good, bad))
    assert paired.score == pytest.approx(ours.score, abs=1e-9)
    assert paired.baseline == pytest.approx(theirs.score, abs=1e-9)
    assert paired.interval == pytest.approx(ours.interval, abs=1e-3)
    assert paired.baseline_interval == pytest.approx(theirs.interval, abs=1e-3)
    assert paired.signature == metric.signature.replace(
      'nrefs:1', 'nrefs:1|bs:1000|seed:12345'
    )


def test_p(systems: dict):
  good, bad, references = (systems[k] for k in ('good', 'bad', 'references'))
  for metric in bleu.both('de', False, False):
    p = lambda a, b, metric=metric: metric.compare(a, b, references).p
    assert p(good, bad) == p(bad, good) < 0.01
    assert p(good, good) == 1.0  # sacreBLEU itself says 0.001 here
    assert p(good, systems['alike']) > 0.05
  named = [('alike', systems['alike']), ('good', good)]
  own = PairedTest(named, {'BLEU': BLEU()}, [references], test_type='bs')()
  found = bleu.sacrebleu('de', False, False).compare(good, systems['alike'], references)
  assert found.p == min(1.0, 2 * own[1]['BLEU'][1].p_value)
  assert found.signature == str(own[0]['BLEU'])


@pytest.mark.slow
def test_p_where_nothing_differs():
  """Of two systems with equal chances of errors, one in twenty has p < 0.05."""
  rng = np.random.default_rng(7)
  words = np.array([f'w{i}' for i in range(200)])

  def spoilt(lines: list[np.ndarray]) -> list[str]:
    drawn = lambda line: words[rng.integers(200, size=len(line))]
    bad = lambda line: rng.random(len(line)) < 0.25
    return [' '.join(np.where(bad(line), drawn(line), line)) for line in lines]

  metric, below = bleu.paper_bleu('de', True, False), 0
  for _ in range(400):
    lines = [words[rng.integers(200, size=rng.integers(6, 14))] for _ in range(50)]
    texts = spoilt(lines), spoilt(lines), [' '.join(line) for line in lines]
    below += metric.compare(*texts).p < 0.05
  assert 0.03 < below / 400 < 0.09  # sacreBLEU's own p: 0.12
