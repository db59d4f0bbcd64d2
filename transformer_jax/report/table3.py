"""Table 3 beside the paper's: its rows, their differences from base, and the claims."""

import operator
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.comparable import Cells, Group, cells, differing_settings
from transformer_jax.report.page import facts, heading, paragraph, table
from transformer_jax.report.results import Scored
from transformer_jax.scoring.significance import Noise, half_interval, margin, noise

LEVEL = 0.05
# (system, baseline) -> p of no difference in BLEU; None if translations are missing
Compare = Callable[[Scored, Scored], float | None]
Read = Callable[[Scored], float]
PERPLEXITY: Read = operator.attrgetter('result.dev_perplexity')
BLEU: Read = operator.attrgetter('result.paper_bleu.score')
SACREBLEU: Read = operator.attrgetter('result.sacrebleu.score')
READ = PERPLEXITY, BLEU  # what the paper's Table 3 has


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
  base, noises = group.table_3['base'], pooled(group)
  rows = {}
  for row, results in group.table_3.items():
    ppl, bleu = (
      _difference(results, base, read, n) for read, n in zip(READ, noises, strict=True)
    )
    if row != 'base' and (bleu.margin is None or not bleu.may_be_noise):
      bleu = bleu._replace(p=paired_p(results, base, compare))
    rows[row] = ppl, bleu
  return rows


def pooled(group: Group) -> list[Noise | None]:
  """Returns the noise between seeds in perplexity and in BLEU, pooled over rows."""
  return [noise([[*map(read, r)] for r in group.table_3.values()]) for read in READ]


def paper_differences(row: str) -> tuple[float, float]:
  """Returns the paper's differences from its base, in perplexity and BLEU."""
  own, base = paper.TABLE_3[row], paper.TABLE_3['base']
  return round(own.perplexity - base.perplexity, 2), round(own.bleu - base.bleu, 1)


def paired_p(
  results: Sequence[Scored], base: Sequence[Scored], compare: Compare
) -> float | None:
  """Returns p of runs against base's of the same seed; None without such a pair."""
  seeds = {scored.seed: scored for scored in base}
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
  results: Sequence[Scored], base: Sequence[Scored], read: Read, noise: Noise | None
) -> Difference:
  against = sum(map(read, base)) / len(base)
  seeds = [read(scored) - against for scored in results]
  half = None if noise is None else margin(noise, len(results), len(base))
  return Difference(seeds, sum(seeds) / len(seeds), half, None)


def p_text(p: float | None) -> str:
  """Returns the cell of a p, empty without a test."""
  return '' if p is None else f'{p:.3f}'


def smallest_difference(group: Group) -> str:
  """Returns a sentence on the smallest differences that one run of a row can show."""
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


def column(rows: Sequence[Sequence[float]]) -> list[str]:
  """Returns a cell for each row's seeds: '25.31 ± 0.30 (sd 0.12)', '25.31' or ''."""
  pooled, cells = noise([values for values in rows if values]), []
  for values in rows:
    text = f'{statistics.fmean(values):.2f}' if values else ''
    if values and pooled is not None:
      half = half_interval(pooled.deviation, pooled.freedom, len(values))
      text += f' ± {half:.2f}'
    if len(values) > 1:
      text += f' (sd {statistics.stdev(values):.2f})'
    cells.append(text)
  return cells


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


def summarize(judged: Judgement, ours: Differences) -> str:
  """Returns a claim with its rows' differences, or counts of them if over two rows."""
  text = judged.claim.text
  if len(judged.rows) > 2:
    each = [verdict for both in judged.rows.values() for verdict in both]
    return f'{text} Of {len(each)} differences {_counts(each)}.'
  for row in judged.rows:
    (ppl, bleu), (papers_ppl, papers_bleu) = ours[row], paper_differences(row)
    text += f' {row}: {ppl.mean:+.2f} PPL (paper {papers_ppl:+.2f}),'
    text += f' {bleu.mean:+.1f} BLEU ({papers_bleu:+.1f}).'
  return text


# Blocks

SPREAD = (
  'Scores: mean of the seeds ± half its 95 % interval (Student, the spread between '
  'seeds pooled over all rows with several); sd: between the seeds of the row.'
)
NOTE = (
  'Each minus base, ± half the 95 % interval (Student, the spread between seeds pooled '
  "over all rows with several). Paired p: sacreBLEU's paired bootstrap over the "
  "sentences, two-sided (twice sacreBLEU's p), of the paper's BLEU, runs of the same "
  'seed, twice the mean of several; '
  'made where the difference lies outside its interval, and where these runs, their '
  'translations and the references are at hand. '
  '"agrees" and "disagrees" need an effect outside its interval, for BLEU also '
  f'p < {LEVEL} where a p is given; all else is undecided. A difference agrees here '
  "if it has the sign of the paper's difference, whatever the paper claims of the row. "
  'Each interval is for one comparison: without any true difference, one in twenty is '
  'wrong. A row with one seed is assumed to vary as the other rows do. The paper has '
  'one run for each row, and gives no spread.'
)


def title(group: Group) -> str:
  """Returns Table 3's title: 'in miniature' without the paper's test set and base."""
  if not group.table_3:
    return group.corpus
  test_set = next(iter(group.table_3.values()))[0].test_set
  if test_set == paper.TEST_SETS['dev'] and group.base == paper.BASE:
    return f'Table 3 on {group.corpus}'
  return f'Table 3 in miniature on {group.corpus}, scored on {test_set}'


def about(group: Group) -> str:
  """Describes corpus, devices, and what differs from the paper and between the runs."""
  scored = group.members[0]
  text = f'{scored.pair}, {scored.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.corpus} {scored.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda scored: scored.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda scored: scored.result.decode_dtype)}. '
  if keys := differing_settings(group):
    text += f'Their configs differ in {", ".join(keys)}. '
  other = ['corpus'] if scored.data['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {_text(sizes)})')
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += 'its columns can be compared in their directions alone. '
  return text + SPREAD


def _each(group: Group, read: Callable[[Scored], str | None]) -> str:
  """Returns what `read` returns for all runs, or, if it differs, for which rows."""
  rows: dict[str, list[str]] = {}
  for scored in group.members:
    rows.setdefault(read(scored) or 'not recorded', []).append(scored.row)
  if len(rows) == 1:
    return next(iter(rows))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows.items())


def table_3(group: Group) -> str:
  """Returns Table 3 with the paper's columns beside ours."""
  header = ['row', 'cells (paper)', 'cells', 'seeds', 'PPL (paper)', 'PPL']
  header += ['BLEU (paper)', 'BLEU', 'sacreBLEU', 'parameters (paper)', 'parameters']
  runs = [group.table_3[r] if r in group.table_3 else [] for r in paper.TABLE_3]
  column_of = lambda read: column([[*map(read, results)] for results in runs])
  scores = map(column_of, (*READ, SACREBLEU))
  rows = []
  for (row, printed), results, ppl, bleu, sacre in zip(
    paper.TABLE_3.items(),
    runs,
    *scores,
    strict=True,
  ):
    rows.append(
      [
        row,
        _text(printed.cells),
        _cells(row, results),
        str(len(results) or ''),
        f'{printed.perplexity:.2f}',
        ppl,
        f'{printed.bleu:.1f}',
        bleu,
        sacre,
        f'{printed.millions} M' if printed.millions else '',
        f'{results[0].result.parameters / 1e6:.2f} M' if results else '',
      ]
    )
  return table(header, rows)


def _cells(row: str, results: Sequence[Scored]) -> str:
  """Returns our values of the cells that the row fills in; '' without a run."""
  if not results:
    return ''
  ours = cells(results[0].config)
  return _text({cell: ours[cell] for cell in paper.TABLE_3[row].cells})


def _text(values: Cells) -> str:
  return ', '.join(
    f'{cell} {value:,}' if isinstance(value, int) else f'{cell} {value}'
    for cell, value in values.items()
  )


def rows_minus_base(group: Group, ours: Differences) -> list[str]:
  """Returns a table of each row minus base, beside the paper's."""
  top = heading(3, 'Each row minus base')
  if not ours:
    return [top, paragraph('There are no runs of base: nothing to compare.')]
  if len(ours) < 2:
    text = 'There are no runs of any other row: nothing to compare. '
    return [top, paragraph(text + smallest_difference(group))]
  header = ['row', 'PPL (paper)', 'PPL', 'verdict', 'BLEU (paper)', 'BLEU']
  header += ['paired p', 'verdict']
  lines = []
  for row in paper.TABLE_3:
    if row == 'base':
      continue
    ppl, bleu = paper_differences(row)
    line = [f'{ppl:+.2f}', '', '', f'{bleu:+.1f}', '', '', '']
    if row in ours:
      own = ours[row]
      line[1:3] = [str(own[0]), own[0].verdict(ppl)]
      line[4:] = [str(own[1]), p_text(own[1].p), own[1].verdict(bleu)]
    lines.append([row, *line])
  note = f'{NOTE} {smallest_difference(group)}'
  return [top, table(header, lines), paragraph(note)]


def claims(ours: Differences) -> list[str]:
  """Returns the paper's claims with their verdicts, and its rows beside ours."""
  judged = judge(ours)
  return [
    heading(3, "The paper's claims"),
    paragraph(
      f"{count_verdicts(judged, ours)} Differences from base, the paper's in brackets. "
      'A row is judged by the direction that the claim says, with the intervals and '
      'tests of the table below. A claim agrees where nothing disagrees, and '
      'perplexity agrees in some row and BLEU in some row; it disagrees where '
      'something disagrees and nothing agrees; else it is undecided.'
    ),
    facts(_fact(one, ours) for one in judged),
  ]


def _fact(judged: Judgement, ours: Differences) -> tuple[str, str]:
  effects = []
  for row, verdicts in judged.rows.items():
    (ppl, bleu), (papers_ppl, papers_bleu) = ours[row], paper_differences(row)
    effects.append(
      f'{row}: perplexity {ppl.mean:+.2f} ({papers_ppl:+.2f}) {verdicts[0]}, '
      f'BLEU {bleu.mean:+.2f} ({papers_bleu:+.1f}) {verdicts[1]}.'
    )
  text, section = judged.claim.text.removesuffix('.'), judged.claim.section
  rows = ', '.join(judged.claim.rows)
  return f'{judged.verdict.capitalize()}: {text} ({section})', ' '.join(effects) or rows
