"""Tables 2 and 3 beside the paper's, and its claims, as Markdown."""

import re
import statistics
from collections.abc import Callable, Sequence

from transformer_jax.model import flops
from transformer_jax.report import paper
from transformer_jax.report.comparison import (
  BLEU,
  LEVEL,
  METRICS,
  SACREBLEU,
  Cells,
  Differences,
  Group,
  cells,
  count_verdicts,
  differing_settings,
  effects,
  judge,
  paper_differences,
  smallest_difference,
)
from transformer_jax.report.page import facts, heading, paragraph, table
from transformer_jax.report.results import Evaluation
from transformer_jax.scoring.significance import half_interval, noise

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
  run = group.members[0]
  text = f'{run.pair}, {run.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.corpus} {run.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda run: run.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda run: run.result.decode_dtype)}. '
  if keys := differing_settings(group.members):
    text += f'Their configs differ in {", ".join(keys)}. '
  other = ['corpus'] if run.data['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {_text(sizes)})')
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += 'its columns can be compared in their directions alone. '
  return text + SPREAD


def _each(group: Group, read: Callable[[Evaluation], str | None]) -> str:
  """Returns what `read` returns for all runs, or, if it differs, for which rows."""
  rows: dict[str, list[str]] = {}
  for run in group.members:
    rows.setdefault(read(run) or 'not recorded', []).append(run.row)
  if len(rows) == 1:
    return next(iter(rows))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows.items())


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


def p_text(p: float | None) -> str:
  """Returns the cell of a p, empty without a test."""
  return '' if p is None else f'{p:.3f}'


def table_3(group: Group) -> str:
  """Returns Table 3 with the paper's columns beside ours."""
  header = ['row', 'cells (paper)', 'cells', 'seeds', 'PPL (paper)', 'PPL']
  header += ['BLEU (paper)', 'BLEU', 'sacreBLEU', 'parameters (paper)', 'parameters']
  runs = [group.table_3[r] if r in group.table_3 else [] for r in paper.TABLE_3]
  column_of = lambda read: column([[*map(read, results)] for results in runs])
  scores = map(column_of, (*METRICS, SACREBLEU))
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


def _cells(row: str, results: Sequence[Evaluation]) -> str:
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
    facts(
      (
        f'{one.verdict.capitalize()}: {one.claim.text.removesuffix(".")} '
        f'({one.claim.section})',
        effects(one, ours),
      )
      for one in judged
    ),
  ]


# Table 2


def table_2(group: Group, tflops: float | None) -> str:
  """Returns Table 2 with the paper's columns beside ours.

  Args:
    tflops: TFLOP/s that one device sustains; see flops_by_paper().
  """
  french = group.members[0].data['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: runs for row, runs in group.table_2.items()}
  header = ['model', 'seeds', 'BLEU (paper)', 'BLEU', 'sacreBLEU', 'FLOPs (paper)']
  header += ["FLOPs, paper's method", 'FLOPs, counted']
  runs = [ours[name] if name in ours else [] for name in paper.TABLE_2]
  column_of = lambda read: column([[*map(read, results)] for results in runs])
  scores = map(column_of, (BLEU, SACREBLEU))
  rows = []
  for (name, system), results, ours_bleu, sacre in zip(
    paper.TABLE_2.items(),
    runs,
    *scores,
    strict=True,
  ):
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    rows.append(
      [
        name,
        str(len(results) or ''),
        '' if bleu is None else f'{bleu:g}',
        ours_bleu,
        sacre,
        _mean_flops([printed]),
        _mean_flops([flops_by_paper(run, tflops) for run in results]),
        _mean_flops([flops_counted(run) for run in results]),
      ]
    )
  return table(header, rows)


def _mean_flops(runs: Sequence[float | None]) -> str:
  known = [x for x in runs if x is not None]
  if not known or len(known) < len(runs):
    return ''
  return f'{sum(known) / len(known):.1e}'


def flops_counted(run: Evaluation) -> float:
  """Returns FLOPs of training's matrix products, backward pass included."""
  each = flops.flops_per_target_token(run.config['model'])
  return each * run.result.target_tokens_seen


def flops_by_paper(run: Evaluation, tflops: float | None) -> float | None:
  """Returns training's FLOPs as time x devices x sustained capacity; None if unknown.

  Args:
    tflops: TFLOP/s that one device sustains; None takes the figure that the paper
      prints for this GPU, if it does.
  """
  trained_on = run.result.training_device
  if trained_on is None or '; ' in trained_on:  # not known, or several in turn
    return None
  device = re.fullmatch(r'(\d+) x (.+)', trained_on)
  if tflops is None:
    named = lambda kind: device and re.search(rf'\b{kind}\b', device[2])
    kinds = [*filter(named, paper.SUSTAINED_TFLOPS)]
    if not kinds:
      return None
    tflops = paper.SUSTAINED_TFLOPS[kinds[0]]
  devices = int(device[1]) if device else 1
  return paper.training_flops(run.result.wall_seconds, devices, tflops)
