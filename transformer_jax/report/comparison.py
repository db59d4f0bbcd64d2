"""Differences from base, their noise between seeds, and verdicts on the claims."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from transformer_jax.report import paper
from transformer_jax.report.results import Group, ScoredRun
from transformer_jax.scoring.translations import JUDGED, PERPLEXITY, Metric

# Noise between seeds


class Noise(NamedTuple):
  """Standard deviation between seeds, pooled over the rows with several seeds."""

  deviation: float
  freedom: int  # degrees of freedom


def noise(groups: Sequence[Sequence[float]]) -> Noise | None:
  """Returns the deviation between seeds, assumed to be the same in all groups.

  A group has the values of all seeds of one row. Returns None if no group has a second
  seed, or if all seeds of each group have the same value.
  """
  freedom = sum(len(values) - 1 for values in groups)
  if all(len({*values}) == 1 for values in groups):
    return None
  squares = sum(
    sum((v - statistics.fmean(values)) ** 2 for v in values) for values in groups
  )
  return Noise(math.sqrt(squares / freedom), freedom)


def half_interval(noise: Noise, *seeds: int, level: float = 0.95) -> float:
  """Returns half the interval of a mean over this many seeds, by Student's t.

  With two numbers of seeds it is that of the difference of two means.
  """
  error = noise.deviation * math.sqrt(sum(1 / count for count in seeds))
  return float(stdtrit(noise.freedom, (1 + level) / 2)) * error


DRAWS = 10_000  # of a simulation


def power(noise: Noise, equivalence: float, *seeds: int) -> int:
  """Returns how many of 100 rows that equal base would be called so, by simulation.

  Each draw has its own means over seeds and its own estimate of the deviation. It is
  called equal if its 90 % interval lies within `equivalence`, as Difference.verdict has
  it.
  """
  rng = np.random.default_rng(1)
  spread = noise.deviation * math.sqrt(sum(1 / count for count in seeds))
  means = rng.normal(0, spread, DRAWS)
  estimates = np.sqrt(rng.chisquare(noise.freedom, DRAWS) / noise.freedom)
  halves = float(stdtrit(noise.freedom, 0.95)) * spread * estimates
  return round(100 * float(np.mean(np.abs(means) + halves < equivalence)))


# Differences from base

DAGGER = '†'

# (metric, systems, as many baselines) -> p of no difference; None without their texts
Compare = Callable[[Metric, Sequence[ScoredRun], Sequence[ScoredRun]], float | None]


class Difference(NamedTuple):
  """A row minus base, in a metric.

  Attributes:
    seeds: each run minus the mean of base's.
    half: half the 95 % interval of `mean`; None if no seeds of a row differ.
    narrow: half its 90 % interval.
    equivalence: the smallest difference that counts as one.
    sign: that the difference should have, 0 for none; None for a row that is not the
      paper's.
    p: over sentences; None without a test.
    power: of 100 rows like base, how many would agree; see power(). None if `sign` is
      not 0, or no seeds of a row differ.
    mark: DAGGER if outputs were decoded in other dtypes than base's, else nothing.
  """

  seeds: list[float]
  mean: float
  half: float | None
  narrow: float | None
  equivalence: float
  sign: int | None
  p: float | None = None
  power: int | None = None
  mark: str = ''

  @property
  def verdict(self) -> str:
    """Returns 'agrees', 'disagrees' or 'undecided'; '' for a row not of the paper.

    With a sign of 0 it agrees if two one-sided tests at 5 % show that it is smaller
    than `equivalence`, and disagrees if its whole interval is larger.
    """
    if self.sign is None:
      return ''
    if self.half is None or self.narrow is None:
      return 'undecided'
    nearest = abs(self.mean) - self.half  # end of the interval, seen from 0
    if self.sign == 0:
      if abs(self.mean) + self.narrow < self.equivalence:
        return 'agrees'
      return 'disagrees' if nearest > self.equivalence else 'undecided'
    if nearest <= 0:
      return 'undecided'
    return 'agrees' if self.mean * self.sign > 0 else 'disagrees'

  @property
  def power_text(self) -> str:
    """Returns '3 of 100' where "no difference" is undecided, else ''."""
    is_needed = self.power is not None and self.verdict == 'undecided'
    return f'{self.power} of 100' if is_needed else ''

  @property
  def in_claim(self) -> str:
    """Returns the mean as text, in brackets if it is undecided."""
    text = number(self.mean, '+') + self.mark
    return f'({text})' if self.verdict == 'undecided' else text

  def __str__(self) -> str:
    half = '' if self.half is None else f' ± {number(self.half)}'
    return f'{number(self.mean, "+")}{half}{self.mark}'


def number(value: float, sign: str = '') -> str:
  """Returns a value as text, with two decimals unless it is huge; `sign`: '+' or ''."""
  return f'{value:{sign}.2f}' if abs(value) < 1e6 else f'{value:{sign}.1e}'


Differences = Mapping[str, tuple[Difference, ...]]  # of a row in each of JUDGED


def differences(group: Group, compare: Compare) -> Differences:
  """Returns each row's differences from base, base's too; none if base was not run.

  Rows also have a paired test over sentences, of as many runs of each as both have, in
  the order of their seeds.
  """
  if 'base' not in group.table_3:
    return {}
  base, noises = group.table_3['base'], pool_noise(group)
  every = {}
  for row, results in group.table_3.items():
    pairs = [*zip(results, base, strict=False)]
    signs = expected_signs(row) if row in paper.TABLE_3 else [None] * len(JUDGED)
    ours = []
    for metric, pooled, sign in zip(JUDGED, noises, signs, strict=True):
      difference = _difference(results, base, metric, pooled, sign)
      if row != 'base' and metric.of_text:
        p = compare(metric, *zip(*pairs, strict=True))
        difference = difference._replace(p=p)
      ours.append(difference)
    every[row] = tuple(ours)
  return every


def values(runs: Iterable[ScoredRun], metric: Metric) -> list[float]:
  """Returns a metric's values, one for each run that has the metric."""
  every = (run.result.value(metric) for run in runs)
  return [value for value in every if value is not None]


def pool_noise(group: Group) -> list[Noise | None]:
  """Returns the noise between seeds in each of JUDGED, pooled over the paper's rows.

  It is None where nothing can be judged: no seeds differ, or base has not learnt.
  """
  if why_untrained(group):
    return [None] * len(JUDGED)
  known = [runs for row, runs in group.table_3.items() if row in paper.TABLE_3]
  return [noise([values(runs, metric) for runs in known]) for metric in JUDGED]


def why_untrained(group: Group) -> str:
  """Returns a sentence if base has learnt too little to judge other rows, else ''.

  An untrained model takes all pieces for equally likely. Base must have less than half
  of its loss: a perplexity below the root of the number of pieces.
  """
  base = group.table_3['base']
  pieces = base[0].pieces
  perplexity = statistics.fmean(values(base, PERPLEXITY))
  limit = math.sqrt(pieces)
  if perplexity < limit:
    return ''
  return (
    f"Nothing is judged: base's dev perplexity is {perplexity:,.0f} after "
    f'{base[0].result.step:,} updates, and not below {limit:.0f}, which is half the '
    f"loss of an untrained model's {pieces:,}."
  )


def paper_differences(row: str) -> list[float]:
  """Returns the paper's differences from its base in each of JUDGED."""
  both = (paper.TABLE_3[name].values for name in (row, 'base'))
  return [
    round(value - base, metric.decimals)
    for metric, value, base in zip(JUDGED, *both, strict=True)
  ]


def _margin(metric: Metric) -> float:
  assert metric.margin is not None, 'each of JUDGED has one'
  return metric.margin


def expected_signs(row: str) -> tuple[int, ...]:
  """Returns the signs that a row's differences are judged by, one for each of JUDGED.

  They are the claim's, or else those of the paper's differences, 0 for what is none.
  """
  if claimed := paper.TABLE_3[row].claimed:
    return claimed
  both = zip(JUDGED, paper_differences(row), strict=True)
  return tuple(0 if abs(x) < _margin(m) else int(math.copysign(1, x)) for m, x in both)


def _difference(
  results: Sequence[ScoredRun],
  base: Sequence[ScoredRun],
  metric: Metric,
  noise: Noise | None,
  sign: int | None,
) -> Difference:
  against = statistics.fmean(values(base, metric))
  printed = paper.TABLE_3['base'].values[JUDGED.index(metric)]
  equivalence = _margin(metric) * (against / printed if metric.is_relative else 1)
  seeds = [value - against for value in values(results, metric)]
  counts, mean = (len(results), len(base)), statistics.fmean(seeds)
  half: Callable[[float], float | None] = lambda level: (
    noise and half_interval(noise, *counts, level=level)
  )
  chance = power(noise, equivalence, *counts) if noise and sign == 0 else None
  dtypes = [{run.result.decode_dtype for run in runs} for runs in (results, base)]
  mark = DAGGER if len(set.union(*dtypes)) > 1 else ''
  rest = half(0.95), half(0.9), equivalence, sign
  return Difference(seeds, mean, *rest, power=chance, mark=mark)


def smallest_difference(group: Group) -> str:
  """Returns a sentence on the smallest differences that one run of a row decides."""
  if reason := why_untrained(group):
    return reason
  noises = [*zip(JUDGED, pool_noise(group), strict=True)]
  if lacking := [metric.title for metric, noise in noises if noise is None]:
    return f'No row has seeds that differ in {" or ".join(lacking)}: that is undecided.'
  count = len(group.table_3['base'])
  seeds = f'{count} of base' if count > 1 else 'one of base'
  smallest = (
    f'{half_interval(noise, 1, count):.2f} {m.column}' for m, noise in noises if noise
  )
  return (
    f'One run of a row against {seeds} decides a measured difference of '
    f'{" or ".join(smallest)} or more.'
  )


# Claims

# As verbs of one claim and of several.
VERDICTS = {
  'agrees': ('agrees', 'agree'),
  'disagrees': ('disagrees', 'disagree'),
  'undecided': ('is undecided', 'are undecided'),
  'not run': ('was not run', 'were not run'),
}


class Judgement(NamedTuple):
  """A claim, and its rows minus base: 'B1 +0.49, -1.48; B2 +0.17, (-0.28)'."""

  claim: paper.Claim
  verdict: str  # of VERDICTS
  ours: str  # with brackets around what is undecided
  papers: str


def judge(ours: Differences) -> list[Judgement]:
  """Judges each of the paper's claims by our runs of its rows."""
  return [judge_claim(claim, ours) for claim in paper.CLAIMS]


def judge_claim(claim: paper.Claim, ours: Differences) -> Judgement:
  """Judges a claim by its rows; it is undecided until all of them were run.

  It agrees if all of JUDGED do, and disagrees if one of them does.
  """
  every = paper.rows_of(claim)
  run = [row for row in every if row in ours]
  of_metrics = zip(*(ours[row] for row in run), strict=True)
  verdicts = {_together(x.verdict for x in of_metric) for of_metric in of_metrics}
  if not run:
    verdict = 'not run'
  elif len(run) < len(every):
    verdict = 'undecided'
  elif 'disagrees' in verdicts:
    verdict = 'disagrees'
  else:
    verdict = 'agrees' if verdicts == {'agrees'} else 'undecided'
  effects = (f'{row} {", ".join(x.in_claim for x in ours[row])}' for row in run)
  papers = (f'{row} {", ".join(paper_texts(row))}' for row in every)
  return Judgement(claim, verdict, '; '.join(effects), '; '.join(papers))


def paper_texts(row: str) -> list[str]:
  """Returns the paper's differences from its base, as text."""
  both = zip(JUDGED, paper_differences(row), strict=True)
  return [f'{difference:+.{metric.decimals}f}' for metric, difference in both]


def _together(verdicts: Iterable[str]) -> str:
  """Returns the one decided verdict among several rows', else 'undecided'."""
  decided = {*verdicts} - {'undecided'}
  return decided.pop() if len(decided) == 1 else 'undecided'


def count_verdicts(judgements: Sequence[Judgement]) -> str:
  """Returns 'Of 7 claims 3 agree, 1 disagrees, 2 are undecided, 1 was not run.'"""
  count = Counter(x.verdict for x in judgements)
  counts = (f'{count[x]} {VERDICTS[x][count[x] > 1]}' for x in VERDICTS if count[x])
  return f'Of {len(judgements)} claims {", ".join(counts)}.'
