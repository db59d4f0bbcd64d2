"""Differences of Table 3's rows from base, and whether the paper's have their sign."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.blocks import Block, Heading, Paragraph, Table
from transformer_jax.report.grouping import Group
from transformer_jax.report.results import Scored
from transformer_jax.scoring.significance import Noise, margin, noise

LEVEL = 0.05
# (system, baseline) -> p of no difference in BLEU; None if translations are missing
Compare = Callable[[Scored, Scored], float | None]
Read = Callable[[Scored], float]
READ: tuple[Read, Read] = operator.attrgetter('perplexity'), operator.attrgetter('bleu')


class Difference(NamedTuple):
  """A row minus base, in perplexity or in BLEU."""

  seeds: list[float]  # each run minus the mean of base's
  mean: float
  margin: float | None  # half its 95 % interval; None if no seeds of a row differ
  p: float | None  # of the paired test over sentences; None if there was none

  def verdict(self, sign: float) -> str:
    """Whether it has the sign of the paper's, unless it may be noise.

    Args:
      sign: the paper's difference, or another number of that sign; 0 if the paper says
        that nothing differs. Then no difference agrees.
    """
    if self.may_be_noise or (self.p is not None and self.p >= LEVEL):
      return 'undecided'
    return 'agrees' if self.mean * sign > 0 else 'disagrees'

  @property
  def may_be_noise(self) -> bool:
    return self.margin is None or abs(self.mean) <= self.margin

  def __str__(self) -> str:
    return f'{self.mean:+.2f}' + (
      '' if self.margin is None else f' ± {self.margin:.2f}'
    )


Differences = Mapping[str, tuple[Difference, Difference]]  # perplexity, BLEU of a row


def differences(group: Group, compare: Compare) -> Differences:
  """Each row's differences from base, also base's own; empty if base was not run.

  BLEU also gets a paired test over sentences, unless its difference lies within its
  interval: then the verdict is 'undecided' in any case.
  """
  if 'base' not in group.table_3:
    return {}
  base, noises = group.table_3['base'], pooled(group)
  found = {}
  for row, results in group.table_3.items():
    ppl, bleu = (
      _difference(results, base, read, n) for read, n in zip(READ, noises, strict=True)
    )
    if row != 'base' and (bleu.margin is None or not bleu.may_be_noise):
      bleu = bleu._replace(p=paired_p(results, base, compare))
    found[row] = ppl, bleu
  return found


def pooled(group: Group) -> list[Noise | None]:
  """The noise between a row's seeds, in perplexity and in BLEU, pooled over rows."""
  return [noise([[*map(read, r)] for r in group.table_3.values()]) for read in READ]


def paper_differences(row: str) -> tuple[float, float]:
  """The paper's differences from its base, in perplexity and BLEU."""
  own, base = paper.TABLE_3[row], paper.TABLE_3['base']
  return round(own.perplexity - base.perplexity, 2), round(own.bleu - base.bleu, 1)


def blocks(group: Group, found: Differences) -> list[Block]:
  """A table of each row minus base, beside the paper's."""
  heading = Heading(3, 'Each row minus base')
  if not found:
    return [heading, Paragraph('There are no runs of base: nothing to compare.')]
  if len(found) < 2:
    text = 'There are no runs of any other row: nothing to compare. '
    return [heading, Paragraph(text + smallest(group))]
  header = ['row', 'PPL (paper)', 'PPL', 'verdict', 'BLEU (paper)', 'BLEU']
  header += ['paired p', 'verdict']
  rows = []
  for row in paper.TABLE_3:
    if row == 'base':
      continue
    ppl, bleu = paper_differences(row)
    cells = [f'{ppl:+.2f}', '', '', f'{bleu:+.1f}', '', '', '']
    if row in found:
      ours = found[row]
      cells[1:3] = [str(ours[0]), ours[0].verdict(ppl)]
      cells[4:] = [str(ours[1]), p_text(ours[1].p), ours[1].verdict(bleu)]
    rows.append([row, *cells])
  return [heading, Table(header, rows), Paragraph(f'{NOTE} {smallest(group)}')]


def paired_p(
  results: Sequence[Scored], base: Sequence[Scored], compare: Compare
) -> float | None:
  """p of runs against base's of the same seed; None if none could be compared."""
  seeds = {scored.seed: scored for scored in base}
  return combined(compare(s, seeds[s.seed]) for s in results if s.seed in seeds)


def combined(made: Iterable[float | None]) -> float | None:
  """One p of several tests: twice their mean; None if there was no test.

  This holds however the tests depend on each other (Vovk and Wang, Biometrika 107,
  2020).
  """
  each = [p for p in made if p is not None]
  if len(each) < 2:
    return each[0] if each else None
  return min(1.0, 2 * sum(each) / len(each))


def _difference(
  results: Sequence[Scored], base: Sequence[Scored], read: Read, noise: Noise | None
) -> Difference:
  against = sum(map(read, base)) / len(base)
  seeds = [read(scored) - against for scored in results]
  half = None if noise is None else margin(noise, len(results), len(base))
  return Difference(seeds, sum(seeds) / len(seeds), half, None)


def p_text(p: float | None) -> str:
  return '' if p is None else f'{p:.3f}'


NOTE = (
  'Each minus base, ± half the 95 % interval (Student, the spread between seeds pooled '
  "over all rows with several). Paired p: sacreBLEU's paired bootstrap over the "
  "sentences, two-sided (twice sacreBLEU's p), of the paper's BLEU, runs of the same "
  'seed, twice the mean of several; '
  'made where the difference lies outside its interval, and where these runs, their '
  'translations and the prepared corpus are at hand. '
  '"agrees" and "disagrees" need an effect outside its interval, for BLEU also '
  f'p < {LEVEL} where a p is given; all else is undecided. A difference agrees here '
  "if it has the sign of the paper's difference, whatever the paper claims of the row. "
  'Each interval is for one comparison: without any true difference, one in twenty is '
  'wrong. A row with one seed is assumed to vary as the other rows do. The paper has '
  'one run for each row, and gives no spread.'
)


def smallest(group: Group) -> str:
  """The smallest differences that one more run could show."""
  noises = pooled(group)
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
