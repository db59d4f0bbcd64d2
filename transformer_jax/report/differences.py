"""Differences of Table 3's rows from base, and whether the paper's have their sign."""

import operator
from collections.abc import Callable, Iterable, Sequence

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


def verdict(
  papers: float, ours: float, margin: float | None, p: float | None = None
) -> str:
  """Whether our difference has the sign of the paper's, unless it may be noise.

  Args:
    margin: half the 95 % interval of `ours`; None if no row has a second seed.
    p: of the paired test over sentences; None if there was none.
  """
  if margin is None or abs(ours) <= margin or (p is not None and p >= LEVEL):
    return 'undecided'
  return 'agrees' if ours * papers > 0 else 'disagrees'


def differences(group: Group, compare: Compare) -> list[Block]:
  """A table of each row minus base, and of what it says to the paper's claims."""
  table = group.table_3
  base = table['base'] if 'base' in table else []
  heading = Heading(3, 'Differences from base')
  if not base:
    return [heading, Paragraph('There are no runs of base: nothing to compare.')]
  noises = [noise([[*map(read, r)] for r in table.values()]) for read in READ]
  if len(table) < 2:
    text = 'There are no runs of any other row: nothing to compare. '
    return [heading, Paragraph(text + _smallest(noises, len(base)))]
  header = ['row', 'PPL (paper)', 'PPL', 'direction', 'BLEU (paper)', 'BLEU']
  header += ['paired p', 'direction']
  rows, found = [], {}
  for row, printed in paper.TABLE_3.items():
    if row == 'base':
      continue
    papers = [
      round(printed.perplexity - paper.TABLE_3['base'].perplexity, 2),
      round(printed.bleu - paper.TABLE_3['base'].bleu, 1),
    ]
    cells = [f'{papers[0]:+.2f}', '', '', f'{papers[1]:+.1f}', '', '', '']
    if row in table:
      results = table[row]
      p = paired_p(results, base, compare)
      ppl, score = (
        _difference(results, base, read, n)
        for read, n in zip(READ, noises, strict=True)
      )
      found[row] = ppl, (*score, p)
      cells[1:3] = [_text(*ppl), verdict(papers[0], *ppl)]
      cells[4:] = [_text(*score), p_text(p), verdict(papers[1], *score, p)]
    rows.append([row, *cells])
  return [
    heading,
    Table(header, rows),
    Paragraph(_note(noises, len(base))),
    _claims(found),
  ]


def _claims(found: dict[str, tuple[tuple, tuple]]) -> Table:
  """What our runs say to each claim; empty where none of its rows was run."""
  rows = []
  for claim in paper.CLAIMS:
    said = []
    for row, claimed in claim.rows.items():
      if row in found:
        pairs = zip(claimed, found[row], strict=True)  # 0 is claimed for none
        ppl, bleu = (verdict(sign, *ours) for sign, ours in pairs)
        said.append(f'{row}: PPL {ppl}, BLEU {bleu}')
    rows.append([f'{claim.text} ({claim.section})', '; '.join(said)])
  return Table(["the paper's claim", 'our rows'], rows)


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
) -> tuple[float, float | None]:
  """Difference of the means, and half its 95 % interval."""
  mean = lambda group: sum(map(read, group)) / len(group)
  half = None if noise is None else margin(noise, len(results), len(base))
  return mean(results) - mean(base), half


def _text(difference: float, half: float | None) -> str:
  return f'{difference:+.2f}' + ('' if half is None else f' ± {half:.2f}')


def p_text(p: float | None) -> str:
  return '' if p is None else f'{p:.3f}'


def _note(noises: Sequence[Noise | None], base_seeds: int) -> str:
  text = (
    'Each minus base, ± half the 95 % interval (Student, the spread between seeds '
    "pooled over all rows with several). Paired p: sacreBLEU's paired bootstrap over "
    'the sentences, of BLEU as above, runs of the same seed, twice the mean of '
    'several; it is empty where these, their translations or the prepared corpus are '
    'missing. '
    '"agrees" and "disagrees" need an effect outside its interval, for BLEU also '
    f'p < {LEVEL} where there is one; all else is undecided. Each interval is of one '
    'comparison: where nothing differs, one in twenty goes wrong. A row of one seed is '
    'taken to vary as the others do. '
    "The paper's rows are one run each, and it tells no spread. "
  )
  return text + _smallest(noises, base_seeds)


def _smallest(noises: Sequence[Noise | None], base_seeds: int) -> str:
  if None in noises:
    return 'No row has a second seed here, so everything is undecided.'
  smallest = [margin(noise, 1, base_seeds) for noise in noises]
  seeds = f'{base_seeds} of base' if base_seeds > 1 else 'one of base'
  return (
    f'One run of a row against {seeds} can show differences from {smallest[0]:.2f} PPL '
    f'and {smallest[1]:.2f} BLEU on.'
  )
