"""Rows of Table 3 minus base, and what they say of the paper's claims."""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.comparable import Group
from transformer_jax.report.results import Evaluation
from transformer_jax.scoring.significance import Noise, margin, noise

LEVEL = 0.05
# (system, baseline) -> p of no difference in BLEU; None if translations are missing
Compare = Callable[[Evaluation, Evaluation], float | None]
Read = Callable[[Evaluation], float]
PERPLEXITY: Read = operator.attrgetter('result.dev_perplexity')
BLEU: Read = operator.attrgetter('result.paper_bleu.score')
SACREBLEU: Read = operator.attrgetter('result.sacrebleu.score')
METRICS = PERPLEXITY, BLEU  # what the paper's Table 3 has


class Difference(NamedTuple):
  """A row minus base, in perplexity or in BLEU."""

  seeds: list[float]  # each run minus the mean of base's
  mean: float
  margin: float | None  # half its 95 % interval; None if no seeds of a row differ
  p: float | None  # of the paired test over sentences; None without one

  def verdict(self, sign: float) -> str:
    """Returns whether it has the sign of the paper's, unless it may be noise.

    Args:
      sign: the paper's difference, or another number of that sign; 0 if the paper says
        that nothing differs. Then no difference agrees.
    """
    if self.may_be_noise or (self.p is not None and self.p >= LEVEL):
      return 'undecided'
    return 'agrees' if self.mean * sign > 0 else 'disagrees'

  @property
  def may_be_noise(self) -> bool:
    """Whether zero lies within the interval, or there is none."""
    return self.margin is None or abs(self.mean) <= self.margin

  @property
  def lacks_test(self) -> bool:
    """Whether a difference in BLEU is judged by its interval alone."""
    return self.p is None and not self.may_be_noise

  def __str__(self) -> str:
    return f'{self.mean:+.2f}' + (
      '' if self.margin is None else f' ± {self.margin:.2f}'
    )


Differences = Mapping[str, tuple[Difference, Difference]]  # perplexity, BLEU of a row


def differences(group: Group, compare: Compare) -> Differences:
  """Returns each row's differences from base, base's too; none if base was not run.

  BLEU also gets a paired test over sentences, unless its difference lies within its
  interval: then the verdict is 'undecided' in any case.
  """
  if 'base' not in group.table_3:
    return {}
  base, noises = group.table_3['base'], pool_noise(group)
  rows = {}
  for row, results in group.table_3.items():
    ppl, bleu = (
      _difference(results, base, read, n)
      for read, n in zip(METRICS, noises, strict=True)
    )
    if row != 'base' and (bleu.margin is None or not bleu.may_be_noise):
      bleu = bleu._replace(p=paired_p(results, base, compare))
    rows[row] = ppl, bleu
  return rows


def pool_noise(group: Group) -> list[Noise | None]:
  """Returns the noise between seeds in perplexity and in BLEU, pooled over rows."""
  return [noise([[*map(read, r)] for r in group.table_3.values()]) for read in METRICS]


def paper_differences(row: str) -> tuple[float, float]:
  """Returns the paper's differences from its base, in perplexity and BLEU."""
  own, base = paper.TABLE_3[row], paper.TABLE_3['base']
  return round(own.perplexity - base.perplexity, 2), round(own.bleu - base.bleu, 1)


def paired_p(
  results: Sequence[Evaluation], base: Sequence[Evaluation], compare: Compare
) -> float | None:
  """Returns p of runs against base's of the same seed; None without such a pair."""
  seeds = {run.seed: run for run in base}
  return combine(compare(s, seeds[s.seed]) for s in results if s.seed in seeds)


def combine(tests: Iterable[float | None]) -> float | None:
  """Returns one p of several tests: twice their mean; None without a test.

  This holds however the tests depend on each other (Vovk and Wang, Biometrika 107,
  2020).
  """
  each = [p for p in tests if p is not None]
  if len(each) < 2:
    return each[0] if each else None
  return min(1.0, 2 * sum(each) / len(each))


def _difference(
  results: Sequence[Evaluation],
  base: Sequence[Evaluation],
  read: Read,
  noise: Noise | None,
) -> Difference:
  against = sum(map(read, base)) / len(base)
  seeds = [read(run) - against for run in results]
  half = None if noise is None else margin(noise, len(results), len(base))
  return Difference(seeds, sum(seeds) / len(seeds), half, None)


def smallest_difference(group: Group) -> str:
  """Returns a sentence on the smallest differences that one run of a row can show."""
  noises = pool_noise(group)
  named = zip(('perplexity', 'BLEU'), noises, strict=True)
  if lacking := [name for name, noise in named if noise is None]:
    return f'No row has seeds that differ in {" or ".join(lacking)}: that is undecided.'
  base_seeds = len(group.table_3['base'])
  ppl, bleu = (margin(noise, 1, base_seeds) for noise in noises)
  seeds = f'{base_seeds} of base' if base_seeds > 1 else 'one of base'
  return (
    f'One run of a row against {seeds} can show differences from {ppl:.2f} PPL '
    f'and {bleu:.2f} BLEU on.'
  )


# Claims

# In words, of one and of several.
VERDICTS = {
  'agrees': ('agrees', 'agree'),
  'disagrees': ('disagrees', 'disagree'),
  'undecided': ('is undecided', 'are undecided'),
  'not run': ('was not run', 'were not run'),
}


class Judgement(NamedTuple):
  """A claim beside our runs."""

  claim: paper.Claim
  verdict: str  # of VERDICTS
  rows: dict[str, tuple[str, str]]  # verdicts in perplexity and BLEU of each row run


def judge(ours: Differences) -> list[Judgement]:
  """Judges each of the paper's claims by our runs of its rows."""
  return [_judge(claim, ours) for claim in paper.CLAIMS]


def _judge(claim: paper.Claim, ours: Differences) -> Judgement:
  """Judges a claim by the rows that were run.

  It agrees if no row disagrees, and perplexity and BLEU agree in a row each.
  """
  rows = {
    row: tuple(one.verdict(s) for s, one in zip(signs, ours[row], strict=True))
    for row, signs in claim.rows.items()
    if row in ours
  }
  all_said = {verdict for both in rows.values() for verdict in both}
  if not rows:
    verdict = 'not run'
  elif 'disagrees' in all_said and 'agrees' not in all_said:
    verdict = 'disagrees'
  elif 'disagrees' not in all_said and all(
    'agrees' in measure for measure in zip(*rows.values(), strict=True)
  ):
    verdict = 'agrees'
  else:
    verdict = 'undecided'
  return Judgement(claim, verdict, rows)


def count_verdicts(judged: Sequence[Judgement], ours: Differences) -> str:
  """Returns 'Of 7 claims 3 agree, 1 disagrees, 2 are undecided, 1 was not run.'

  It counts the paired tests that are missing, too: they could change a verdict.
  """
  text = f'Of {len(judged)} claims {_counts(one.verdict for one in judged)}'
  untested = [row for row in ours if row != 'base' and ours[row][1].lacks_test]
  if not untested:
    return f'{text}.'
  rows = 'row' if len(untested) == 1 else 'rows'
  return (
    f'{text}, without the paired test of {len(untested)} {rows}, which can change this '
    'and needs the references (--references).'
  )


def _counts(verdicts: Iterable[str]) -> str:
  count = Counter(verdicts)
  said = (
    f'{count[verdict]} {one if count[verdict] == 1 else many}'
    for verdict, (one, many) in VERDICTS.items()
    if count[verdict]
  )
  return ', '.join(said)


def effects(judged: Judgement, ours: Differences) -> str:
  """Returns a sentence on each row's differences, or the names of rows not run."""
  sentences = []
  for row, verdicts in judged.rows.items():
    (ppl, bleu), (papers_ppl, papers_bleu) = ours[row], paper_differences(row)
    sentences.append(
      f'{row}: perplexity {ppl.mean:+.2f} ({papers_ppl:+.2f}) {verdicts[0]}, '
      f'BLEU {bleu.mean:+.2f} ({papers_bleu:+.1f}) {verdicts[1]}.'
    )
  return ' '.join(sentences) or ', '.join(judged.claim.rows)
