"""Which results one table may compare, their differences from base, and the claims."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.config import KEYS, Tag, cells, flat, keys_of
from transformer_jax.report import paper
from transformer_jax.report.results import ScoredRun, signatures
from transformer_jax.scoring.significance import Noise, margin, noise
from transformer_jax.scoring.translations import JUDGED, PERPLEXITY, Metric

Cells = dict[str, float | str]  # of Table 3, by the names of its columns

# Keys that cannot change a score; the corpus's identity stands for those of CORPUS.
NO_INFLUENCE = frozenset(
  name for name, key in KEYS.items() if key.tags in (Tag.CORPUS, Tag.BOOKKEEPING)
)
# Keys in which runs of one table may differ: its subject, and how a result was decoded.
# unmet_conditions() checks the latter for each table.
VARIED = frozenset({*keys_of(Tag.CELL), *keys_of(Tag.VARIES)})


class Group(NamedTuple):
  """Runs that can be compared; each row holds one result for each of its seeds."""

  base: Cells
  table_3: dict[str, list[ScoredRun]]
  table_2: dict[str, list[ScoredRun]]
  left_out: list[str]

  @property
  def members(self) -> list[ScoredRun]:
    """The results of both tables."""
    return sum([*self.table_3.values(), *self.table_2.values()], [])

  @property
  def corpus(self) -> str:
    """Returns the name of the corpus."""
    return self.members[0].data['name']


def conditions(run: ScoredRun, runs: Sequence[ScoredRun]) -> tuple[str, ...]:
  """Returns what results of one table share: corpus, scorers, other settings.

  Scorers are those that all of `runs` have.
  """
  config = flat(run.config)
  settings = {key: config[key] for key in config.keys() - VARIED - NO_INFLUENCE}
  return run.result.corpus, *signatures(run, runs), json.dumps(settings, sort_keys=True)


def label(row: str, values: Cells) -> str:
  """Returns a row's name and the first cell that it fills in: 'C4: d_model 32'."""
  if row in ('base', 'big'):
    return row
  cell = next(iter(paper.TABLE_3[row].cells))
  return f'{row}: {cell} {_text(values[cell])}'


def cells_of_row(row: str, base: Cells, french: bool) -> Cells:
  """Returns a row's cells for this base, which may be smaller than the paper's.

  A number is scaled so that its ratio to the base's number is the same as in the paper.
  """
  expected = dict(base)
  for cell, printed in paper.TABLE_3[row].cells.items():
    if isinstance(printed, str):
      expected[cell] = printed
    else:
      expected[cell] = base[cell] * (printed / paper.BASE[cell])
  if row == 'big' and french:
    expected['P_drop'] = base['P_drop']  # section 6.1
  return expected


def wrong_cells(run: ScoredRun, base: Cells) -> str:
  """Returns the cells in which a run differs from its row; '' if it does in none."""
  expected = cells_of_row(run.row, base, run.data['target_language'] == 'fr')
  return ', '.join(
    f'{cell} is {value}, not {_text(expected[cell])}'
    for cell, value in cells(run.config).items()
    if value != expected[cell]
    and (isinstance(value, str) or not math.isclose(value, expected[cell]))
  )


def _text(value: float | str) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def find_base(members: Sequence[ScoredRun]) -> Cells | None:
  """Returns the base that fits the most rows: those with a run without wrong_cells().

  Candidates are the paper's base and the cells of the runs of row base; of equals it is
  the paper's, or else the last, as of a sweep that was prolonged. If none fits any row,
  it is the paper's base on WMT14, and None elsewhere.
  """
  runs = [cells(run.config) for run in members if run.row == 'base']
  fits = lambda base: len({s.row for s in members if not wrong_cells(s, base)})
  base = max([paper.BASE, *reversed(runs)], key=fits)
  return base if fits(base) or members[0].data['reader'] == 'wmt14' else None


def group(results: Sequence[ScoredRun]) -> tuple[list[Group], list[str]]:
  """Returns groups of comparable runs, and reasons why other runs are in none.

  Runs of no row are in neither. The runs have distinct names.
  """
  alike: dict[tuple[str, ...], list[ScoredRun]] = {}
  groups, left_out = [], []
  for run in results:
    if run.row in paper.TABLE_3:
      alike.setdefault(conditions(run, results), []).append(run)
  for members in alike.values():
    base = find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(run.name for run in members))
      left_out.append(
        f'{names}: no base to compare with: no run of row base has the same content of '
        f'{members[0].data["name"]}, the same scorer and settings'
      )
      continue
    own = _group(base, members)
    if own.table_2 or own.table_3:
      groups.append(own)
    else:
      left_out += own.left_out
  return groups, left_out


def _group(base: Cells, members: Sequence[ScoredRun]) -> Group:
  own = Group(base, {}, {}, [])
  # A run has several results; one that was prolonged also has results of fewer steps.
  by_run: dict[tuple[str, str, int], list[ScoredRun]] = {}
  for run in members:
    if wrong := wrong_cells(run, base):
      reason = f'{run.name} is not row {run.row}, as its config says: {wrong}'
      own.left_out.extend({reason} - {*own.left_out})
    else:
      is_test = run.result.split == 'test' and run.row in paper.TABLE_2_NAMES
      key = run.name, run.row, 2 if is_test else 3
      by_run.setdefault(key, []).append(run)
  for (name, row, number), results in by_run.items():
    table = own.table_2 if number == 2 else own.table_3
    best = min(results, key=lambda run: len([*unmet_conditions(run, number)]))
    reasons = '; '.join(unmet_conditions(best, number))
    same_seed = [run.name for run in table.get(row, []) if run.seed == best.seed]
    if same_seed and not reasons:
      reasons = f'seed {best.seed} is in the table already, from {same_seed[0]}'
    if reasons:
      own.left_out.append(f'{name} (row {row}) is not in Table {number}: {reasons}')
    else:
      table.setdefault(row, []).append(best)
  return own


def unmet_conditions(run: ScoredRun, table: int) -> Iterator[str]:
  """Yields what keeps a result out of Table 2 or 3.

  Table 2 takes newstest2014 with 5 (base) or 20 (big) checkpoints averaged, Table 3 dev
  with the last checkpoint alone.
  """
  result = run.result
  pairs, averaged = ['en-de'], 1
  if table == 2:
    pairs, averaged = [*paper.VOCABULARY], paper.TRAINING[run.row].averaged
  if run.pair not in pairs:
    yield f'{run.pair}, not {" or ".join(pairs)}'
  if table == 2 and run.test_set != paper.TEST_SETS['test']:
    yield f'scored on {run.test_set}, not {paper.TEST_SETS["test"]}'
  if table == 3 and result.split != 'dev':
    yield f'scored on {run.test_set}, which is {result.split}, not dev'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != averaged:
    yield f'{len(result.averaged)} checkpoints averaged, not {averaged}'
  if result.step != run.config['train_steps']:
    yield f'{result.step:,} of {run.config["train_steps"]:,} updates'


# Differences from base

# (metric, systems, as many baselines) -> p of no difference; None without their texts
Compare = Callable[[Metric, Sequence[ScoredRun], Sequence[ScoredRun]], float | None]


class Difference(NamedTuple):
  """A row minus base, in a metric."""

  seeds: list[float]  # each run minus the mean of base's
  mean: float
  margin: float | None  # half its 95 % interval; None if no seeds of a row differ
  narrow: float | None  # half its 90 % interval
  equivalence: float  # what is smaller is no difference
  p: float | None = None  # over sentences; None without a test

  def verdict(self, sign: int) -> str:
    """Returns 'agrees', 'disagrees' or 'undecided'.

    Args:
      sign: of the difference that the paper has; 0 if it has none. Then the difference
        agrees if two one-sided tests at 5 % show that it is smaller than `equivalence`,
        and disagrees if its whole interval is larger.
    """
    if self.margin is None:
      return 'undecided'
    nearest = abs(self.mean) - self.margin  # end of the interval, seen from 0
    if sign == 0:
      if abs(self.mean) + self.narrow < self.equivalence:
        return 'agrees'
      return 'disagrees' if nearest > self.equivalence else 'undecided'
    if nearest <= 0:
      return 'undecided'
    return 'agrees' if self.mean * sign > 0 else 'disagrees'

  def __str__(self) -> str:
    margin = '' if self.margin is None else f' ± {self.margin:.2f}'
    return f'{self.mean:+.2f}{margin}'


Differences = Mapping[str, tuple[Difference, ...]]  # of a row in each of JUDGED


def differences(group: Group, compare: Compare) -> Differences:
  """Returns each row's differences from base, base's too; none if base was not run.

  Rows with a run of a seed of base's also have a paired test over sentences, of the
  runs of equal seeds.
  """
  if 'base' not in group.table_3:
    return {}
  base, noises = group.table_3['base'], pool_noise(group)
  seeds, rows = {run.seed: run for run in base}, {}
  for row, results in group.table_3.items():
    pairs = [(run, seeds[run.seed]) for run in results if run.seed in seeds]
    ours = []
    for metric, pooled in zip(JUDGED, noises, strict=True):
      one = _difference(results, base, metric, pooled)
      if row != 'base' and pairs and metric.of_text:
        one = one._replace(p=compare(metric, *zip(*pairs, strict=True)))
      ours.append(one)
    rows[row] = tuple(ours)
  return rows


def values(runs: Iterable[ScoredRun], metric: Metric) -> list[float]:
  """Returns a metric's values, one a run; none for runs that lack it."""
  every = (run.result.value(metric) for run in runs)
  return [value for value in every if value is not None]


def pool_noise(group: Group) -> list[Noise | None]:
  """Returns the noise between seeds in each of JUDGED, pooled over rows.

  It is None where nothing can be judged: no seeds differ, or base has not learnt.
  """
  if why_untrained(group):
    return [None] * len(JUDGED)
  rows = group.table_3.values()
  return [noise([values(runs, metric) for runs in rows]) for metric in JUDGED]


def why_untrained(group: Group) -> str:
  """Returns a sentence if base has learnt too little to judge other rows, else ''.

  An untrained model takes all pieces for equally likely. Base must have less than half
  of its loss: a perplexity below the root of the number of pieces.
  """
  base = group.table_3['base']
  pieces = base[0].config['model']['vocab_size']
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
    round(own - base, metric.decimals)
    for metric, own, base in zip(JUDGED, *both, strict=True)
  ]


def paper_signs(row: str) -> list[int]:
  """Returns the signs of the paper's differences, 0 for those that are none."""
  both = zip(JUDGED, paper_differences(row), strict=True)
  return [0 if abs(x) < m.margin else int(math.copysign(1, x)) for m, x in both]


def _difference(
  results: Sequence[ScoredRun],
  base: Sequence[ScoredRun],
  metric: Metric,
  noise: Noise | None,
) -> Difference:
  against = statistics.fmean(values(base, metric))
  printed = paper.TABLE_3['base'].values[JUDGED.index(metric)]
  equivalence = metric.margin * (against / printed if metric.is_relative else 1)
  seeds = [value - against for value in values(results, metric)]
  half = lambda level: noise and margin(noise, len(results), len(base), level=level)
  return Difference(seeds, statistics.fmean(seeds), half(0.95), half(0.9), equivalence)


def smallest_difference(group: Group) -> str:
  """Returns a sentence on the smallest differences that one run of a row can show."""
  if reason := why_untrained(group):
    return reason
  noises = [*zip(JUDGED, pool_noise(group), strict=True)]
  if lacking := [metric.title for metric, noise in noises if noise is None]:
    return f'No row has seeds that differ in {" or ".join(lacking)}: that is undecided.'
  count = len(group.table_3['base'])
  seeds = f'{count} of base' if count > 1 else 'one of base'
  smallest = (f'{margin(noise, 1, count):.2f} {m.column}' for m, noise in noises)
  return (
    f'One run of a row against {seeds} can show differences from '
    f'{" and ".join(smallest)} on.'
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
  rows = {row: signs for row, signs in claim.rows.items() if row in ours}
  verdicts = [[*map(Difference.verdict, ours[row], rows[row])] for row in rows]
  both = {_together(of_rows) for of_rows in zip(*verdicts, strict=True)}
  if not rows:
    verdict = 'not run'
  elif len(rows) < len(claim.rows):
    verdict = 'undecided'
  elif 'disagrees' in both:
    verdict = 'disagrees'
  else:
    verdict = 'agrees' if both == {'agrees'} else 'undecided'
  own = (
    f'{row} {", ".join(map(_effect, ours[row], of_row))}'
    for row, of_row in zip(rows, verdicts, strict=True)
  )
  papers = (f'{row} {", ".join(paper_texts(row))}' for row in claim.rows)
  return Judgement(claim, verdict, '; '.join(own), '; '.join(papers))


def paper_texts(row: str) -> list[str]:
  """Returns the paper's differences from its base, as text."""
  both = zip(JUDGED, paper_differences(row), strict=True)
  return [f'{difference:+.{metric.decimals}f}' for metric, difference in both]


def _effect(one: Difference, verdict: str) -> str:
  return f'({one.mean:+.2f})' if verdict == 'undecided' else f'{one.mean:+.2f}'


def _together(verdicts: Iterable[str]) -> str:
  """Returns the verdict of several rows: what some say and none denies."""
  decided = {*verdicts} - {'undecided'}
  return decided.pop() if len(decided) == 1 else 'undecided'


def count_verdicts(judged: Sequence[Judgement]) -> str:
  """Returns 'Of 7 claims 3 agree, 1 disagrees, 2 are undecided, 1 was not run.'"""
  count = Counter(one.verdict for one in judged)
  said = (f'{count[x]} {VERDICTS[x][count[x] > 1]}' for x in VERDICTS if count[x])
  return f'Of {len(judged)} claims {", ".join(said)}.'
