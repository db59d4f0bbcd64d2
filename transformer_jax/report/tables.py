"""Tables 2 and 3 beside the paper's, and its claims, as Markdown."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from transformer_jax.config import cells
from transformer_jax.model import flops
from transformer_jax.report import comparison, paper
from transformer_jax.report.comparison import Differences, Group
from transformer_jax.report.page import heading, paragraph, table, table_of
from transformer_jax.report.results import ScoredRun, shown_metrics
from transformer_jax.scoring.significance import Noise, margin, noise
from transformer_jax.scoring.translations import JUDGED, Metric

SPREAD = (
  'Scores: mean of the seeds ± half its 95 % interval (Student, the spread between '
  'seeds pooled over all rows with several); sd: between the seeds of the row.'
)
DASH = '–'  # for a metric that a result lacks
RULES = 'docs/report.md has the rules of a verdict.'
NOTE = (
  'Each minus base, ± half the 95 % interval (Student, the spread between seeds pooled '
  'over all rows with several). p: of another sign with other sentences; no verdict '
  f'depends on it. The paper has one run for each row. {RULES}'
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
  """Describes corpus, devices, and what differs from the paper."""
  run = group.members[0]
  text = f'{run.pair}, {run.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.corpus} {run.result.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda run: run.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda run: run.result.decode_dtype)}. '
  other = ['corpus'] if run.data['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {_text(sizes)})')
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += 'its columns can be compared in their directions alone. '
  return text + SPREAD


def _each(group: Group, read: Callable[[ScoredRun], str | None]) -> str:
  """Returns what `read` returns for all runs, or, if it differs, for which rows."""
  rows: dict[str, list[str]] = {}
  for run in group.members:
    rows.setdefault(read(run) or 'not recorded', []).append(run.row)
  if len(rows) == 1:
    return next(iter(rows))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows.items())


def columns(
  rows: Sequence[Sequence[ScoredRun]], metrics: Iterable[Metric]
) -> Iterator[list[str]]:
  """Yields each metric's column: '25.31 ± 0.30 (sd 0.12)' of seeds, '' of none.

  A row with a run that lacks the metric has DASH.
  """
  for metric in metrics:
    seeds = [comparison.values(runs, metric) for runs in rows]
    pooled = noise([values for values in seeds if values])
    counts = [len(runs) for runs in rows]
    cells = zip(seeds, counts, strict=True)
    yield [_cell(x, pooled) if len(x) == count else DASH for x, count in cells]


def _cell(values: Sequence[float], pooled: Noise | None) -> str:
  text = f'{statistics.fmean(values):.2f}' if values else ''
  if values and pooled is not None:
    text += f' ± {margin(pooled, len(values)):.2f}'
  return text + (f' (sd {statistics.stdev(values):.2f})' if len(values) > 1 else '')


def table_3(group: Group) -> list[str]:
  """Returns Table 3 with the paper's columns beside ours, and the rows not run."""
  shown = [row for row in paper.TABLE_3 if row in group.table_3]
  runs = [group.table_3[row] for row in shown]
  others = [one for one in shown_metrics(group.members) if one not in JUDGED]
  scores, rows = columns(runs, [*JUDGED, *others]), []
  for row, results, *own in zip(shown, runs, *scores, strict=True):
    printed, ours = paper.TABLE_3[row], cells(results[0].config)
    both: dict[str, str] = {}
    for metric, value, cell in zip(JUDGED, printed.values, own, strict=False):
      both[f'{metric.column} (paper)'] = f'{value:.{metric.decimals}f}'
      both[metric.column] = cell
    names = (metric.column for metric in others)
    rows.append(
      {
        'row': row,
        'cells (paper)': _text(printed.cells),
        'cells': _text({cell: ours[cell] for cell in printed.cells}),
        'seeds': str(len(results)),
        **both,
        **dict(zip(names, own[len(JUDGED) :], strict=True)),
        'parameters (paper)': f'{printed.millions} M' if printed.millions else '',
        'parameters': f'{results[0].result.parameters / 1e6:.2f} M',
      }
    )
  missing = [row for row in paper.TABLE_3 if row not in shown]
  not_run = [paragraph(f'Not run: {", ".join(missing)}.')] if missing else []
  return [heading(3, 'Table 3'), table_of(rows), *not_run]


def _text(values: comparison.Cells) -> str:
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
    return [top, paragraph(text + comparison.smallest_difference(group))]
  header, lines = ['row'], []
  for metric in JUDGED:
    header += [f'{metric.column} (paper)', metric.column]
    header += ['p', 'verdict'] if metric.of_text else ['verdict']
  for row in paper.TABLE_3:
    if row == 'base' or row not in ours:
      continue
    line, signs = [row], comparison.paper_signs(row)
    printed = comparison.paper_texts(row)
    for metric, text, one, sign in zip(JUDGED, printed, ours[row], signs, strict=True):
      p = ['' if one.p is None else f'{one.p:.3f}'] if metric.of_text else []
      line += [text, f'{one}', *p, one.verdict(sign)]
    lines.append(line)
  note = f'{NOTE} {comparison.smallest_difference(group)}'
  return [top, table(header, lines), paragraph(note)]


def claims(ours: Differences) -> list[str]:
  """Returns a table of the paper's claims with their verdicts."""
  judged = comparison.judge(ours)
  names = ', '.join(metric.column for metric in JUDGED)
  header = ['claim', 'section', f'the paper: {names}', 'verdict', f'ours: {names}']
  rows = [
    [x.claim.text, f'section {x.claim.section}', x.papers, x.verdict, x.ours]
    for x in judged
  ]
  note = (
    f'{comparison.count_verdicts(judged)} Each difference is a row minus base; '
    f'brackets mark what is undecided. {RULES}'
  )
  return [heading(3, "The paper's claims"), table(header, rows), paragraph(note)]


# Table 2


def table_2(group: Group) -> str:
  """Returns Table 2 with the paper's columns beside ours."""
  french = group.members[0].data['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: runs for row, runs in group.table_2.items()}

  runs = [ours.get(name, []) for name in paper.TABLE_2]
  of_text = [one for one in shown_metrics(group.members) if one.of_text]
  metrics = sorted(of_text, key=lambda metric: metric not in JUDGED)
  scores, rows = columns(runs, metrics), []
  systems = paper.TABLE_2.items()
  for (name, system), results, *own in zip(systems, runs, *scores, strict=True):
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    rows.append(
      {
        'model': name,
        'seeds': str(len(results) or ''),
        'BLEU (paper)': '' if bleu is None else f'{bleu:g}',
        **{m.column: cell for m, cell in zip(metrics, own, strict=True)},
        'FLOPs (paper)': '' if printed is None else f'{printed:.1e}',
        'FLOPs, counted': _mean_flops(results),
      }
    )
  return table_of(rows)


def _mean_flops(runs: Sequence[ScoredRun]) -> str:
  """Returns FLOPs of training's matrix products, backward pass included."""
  each = lambda run: flops.flops_per_target_token(run.config['model'])
  counted = [each(run) * run.result.target_tokens_seen for run in runs]
  return f'{statistics.fmean(counted):.1e}' if counted else ''
