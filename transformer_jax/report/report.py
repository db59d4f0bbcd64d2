"""Makes the whole report from paths: all sections, and a summary for a terminal."""

import pathlib
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tqdm import tqdm

from transformer_jax.config import cells
from transformer_jax.machine.errors import UserError
from transformer_jax.model import flops
from transformer_jax.report import comparison, figures, listing, paper, results
from transformer_jax.report.comparison import (
  DAGGER,
  Differences,
  Noise,
  half_interval,
  noise,
)
from transformer_jax.report.page import (
  DASH,
  Block,
  bullets,
  facts,
  heading,
  legible,
  paragraph,
  table,
  table_of,
)
from transformer_jax.report.results import Group, HeldOut, ScoredRun, shown_metrics
from transformer_jax.scoring.output import Output
from transformer_jax.scoring.translations import (
  JUDGED,
  PERPLEXITY,
  Metric,
  perplexity_text,
)

TITLE = 'Attention Is All You Need: runs'
WIDTH, INDENT = 96, 15  # of a terminal's lines

SPREAD = (
  "Scores: the mean of the seeds ± half its 95 % interval (Student's t, with the "
  'deviation between seeds pooled over all rows with several). sd: the deviation '
  'between the seeds of the row.'
)
RULES = 'docs/report.md has the rules of a verdict.'
NOTE = (
  "Differences are ± half their 95 % interval (Student's t, with the deviation between "
  "seeds pooled over the paper's rows with several). p is of a test over sentences, of "
  'the first seeds of row and base, as many as both have. No verdict depends on it. '
  f'The paper has one run for each row. {RULES}'
)
POWER = (
  'n of 100: of 100 rows that truly equal base, so many would be found equal with '
  'these seeds and this noise.'
)
QUOTATION_MARKS = (
  "BLEU replaces quotation marks in translations, as the authors' script does, but not "
  "in newstest2014's references; in the authors' file they were replaced, too. That "
  'costs some 0.6 (docs/bleu.md).'
)
Study = tuple[Group, Differences]
Facts = list[tuple[str, str]]


def make_report(
  paths: Sequence[pathlib.Path],
  outputs: Mapping[str, Output],
  texts: HeldOut,
  samples: int,
  curves: Sequence[pathlib.Path] = (),
  averaged: int = 1,
) -> tuple[str, list[Block]]:
  """Returns a summary for a terminal, and the blocks of the whole report.

  What is left out is named on stderr.

  Args:
    paths: of runs' folders and of results.
    outputs: of all tasks, by name. Those with a section of their own have no BLEU.
    texts: what the paired tests and the samples take.
    samples: sentences of each test set to show with their translations.
    curves: files like metrics.jsonl, which are drawn over the runs' curves.
    averaged: checkpoints of a result of Table 3, 1 in the paper.

  Raises:
    UserError: no path holds a run or a result, or what was scored is damaged.
  """
  evaluations, all_baselines, omissions = results.read(paths, outputs)
  for reason in omissions:
    print(f'left out: {legible(reason)}', file=sys.stderr)
  for path in texts.unused(evaluations):
    print(f'{path}: not the references of any of these results', file=sys.stderr)
  if not evaluations and not all_baselines:
    raise UserError('no run with a result.json: evaluate one first')
  summary = ''
  blocks: list[Block] = []
  if runs := [run for run in evaluations if not outputs[run.result.task].section]:
    summary, blocks = _report_runs(runs, omissions, texts, samples, curves, averaged)
  for name, output in outputs.items():
    runs = [run for run in evaluations if run.result.task == name]
    baselines = [baseline for of, baseline in all_baselines if of == name]
    if output.section and (runs or baselines):
      lines, more = output.section.write(runs, baselines)
      summary, blocks = summary + lines, blocks + more
  return summary, blocks


def _report_runs(
  runs: Sequence[ScoredRun],
  omissions: Sequence[str],
  texts: HeldOut,
  samples: int,
  over: Sequence[pathlib.Path],
  averaged: int,
) -> tuple[str, list[Block]]:
  """Returns summary and blocks of runs that translate; names `omissions`, too."""
  for run in runs:
    texts.references(run)  # refuses translations of another number
  groups, of_no_group = results.group(runs, averaged)
  with tqdm(desc='comparing', unit='row', disable=None) as bar:

    def compare(
      metric: Metric, systems: Sequence[ScoredRun], baselines: Sequence[ScoredRun]
    ) -> float | None:
      bar.update()
      return paired_p(metric, systems, baselines, texts)

    studies = [(group, comparison.differences(group, compare)) for group in groups]
  top = [fact for study in studies for fact in _facts(*study, len(studies) > 1)]
  blocks: list[Block] = []
  if top:
    blocks += [heading(2, 'What the runs say'), facts(top)]
  for n, study in enumerate(studies, 1):
    blocks += describe_group(*study, f'.{n}' if len(studies) > 1 else '')
  blocks += [*listing.every_result(runs), *listing.curves(runs, over)]
  blocks += listing.sample_translations(runs, texts, samples)
  if reasons := [*omissions, *of_no_group]:
    blocks += [heading(2, 'Left out'), bullets(reasons)]
  blocks += [heading(2, 'How it was scored'), bullets(listing.footnotes(runs))]
  top += [('Left out', why) for group in groups for why in group.omissions]
  top += [('Left out', why) for why in of_no_group]
  return _on_terminal(top, runs, studies), blocks


def describe_group(group: Group, ours: Differences, number: str) -> list[Block]:
  """Returns the blocks of a group; `number` ends the names of its pictures."""
  top = heading(2, title_of(group)), paragraph(about(group))
  blocks: list[Block] = [*top]
  if len(ours) > 1:
    blocks += claims(ours)
    blocks.append(heading(3, "Differences from base, ours and the paper's"))
    blocks += figures.rows_minus_base(group, ours, number)
  if group.table_3:
    blocks += rows_minus_base(group, ours)
    blocks += table_3(group)
  if group.table_2:
    blocks += [heading(3, f'Table 2 on {group.corpus}'), table_2(group)]
    if group.members[0].data['target_language'] == 'de':
      blocks.append(paragraph(QUOTATION_MARKS))
  if group.omissions:
    blocks += [paragraph('Left out:'), bullets(group.omissions)]
  return blocks


def paired_p(
  metric: Metric,
  systems: Sequence[ScoredRun],
  baselines: Sequence[ScoredRun],
  texts: HeldOut,
) -> float | None:
  """Returns p of no difference; None without translations or references."""
  data = systems[0].data
  references = texts.references(systems[0])
  outputs = [[run.translations or [] for run in runs] for runs in (systems, baselines)]
  if references is None or metric.of_text is None or not all(map(all, outputs)):
    return None
  how = data['target_language'], data['tokenized'], references
  return metric.of_text(*how).paired_p(outputs[0], outputs[1], references)


# Tables 2 and 3


def title_of(group: Group) -> str:
  """Returns Table 3's title: 'in miniature' without the paper's test set and base."""
  if not group.table_3:
    return group.corpus
  test_set = next(iter(group.table_3.values()))[0].test_set
  end = '' if group.averaged == 1 else f', {group.averaged} checkpoints averaged'
  if test_set == paper.TEST_SETS['dev'] and group.base == paper.BASE:
    return f'Table 3 on {group.corpus}{end}'
  return f'Table 3 in miniature on {group.corpus}, scored on {test_set}{end}'


def about(group: Group) -> str:
  """Describes corpus, devices, and what differs from the paper."""
  run = group.members[0]
  text = f'{run.pair}, {run.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.corpus} {run.result.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda run: run.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda run: run.result.decode_dtype)}. '
  other = ['corpus'] if run.data['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {paper.cells_text(sizes)})')
  if group.averaged > 1:
    text += f'Scored with {group.averaged} checkpoints averaged, the paper with one. '
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += "compare only the signs of its differences with the paper's. "
  return text + SPREAD


def _each(group: Group, read: Callable[[ScoredRun], str | None]) -> str:
  """Returns what `read` returns for all runs, or, if it differs, for which rows."""
  rows_of: dict[str, list[str]] = {}
  for run in group.members:
    rows_of.setdefault(read(run) or 'not recorded', []).append(str(run.row))
  if len(rows_of) == 1:
    return next(iter(rows_of))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows_of.items())


def score_cells(
  of_rows: Sequence[Sequence[ScoredRun]], metrics: Iterable[Metric]
) -> list[dict[str, str]]:
  """Returns each row's cells by column: '25.31 ± 0.30 (sd 0.12)' of seeds, '' of none.

  A metric that one of the row's runs lacks is a dash.
  """
  cells: list[dict[str, str]] = [{} for _ in of_rows]
  for metric in metrics:
    seeds = [comparison.values(runs, metric) for runs in of_rows]
    pooled = noise([values for values in seeds if values])
    for row, values, runs in zip(cells, seeds, of_rows, strict=True):
      is_whole = len(values) == len(runs)
      cell = _cell(values, pooled, metric, runs) if is_whole else DASH
      row[metric.column] = cell
  return cells


def _cell(
  values: Sequence[float],
  pooled: Noise | None,
  metric: Metric,
  runs: Sequence[ScoredRun],
) -> str:
  if not values:
    return ''
  mean = statistics.fmean(values)
  if metric == PERPLEXITY and mean > runs[0].pieces:
    return perplexity_text(mean, runs[0].pieces, 2)
  text = f'{mean:.2f}'
  if pooled is not None:
    text += f' ± {comparison.number(half_interval(pooled, len(values)))}'
  return text + (f' (sd {statistics.stdev(values):.2f})' if len(values) > 1 else '')


def table_3(group: Group) -> list[str]:
  """Returns Table 3 with the paper's columns beside ours, and the rows not run."""
  runs = [group.table_3[row] for row in group.rows]
  others = [metric for metric in shown_metrics(group.members) if metric not in JUDGED]
  scores, lines = score_cells(runs, [*JUDGED, *others]), []
  for row, seeds, score in zip(group.rows, runs, scores, strict=True):
    printed, ours = paper.TABLE_3.get(row), cells(seeds[0].config)
    names = printed.cells if printed else paper.changed_cells(ours, group.base)
    both: dict[str, str] = {}
    for n, metric in enumerate(JUDGED):
      value = f'{printed.values[n]:.{metric.decimals}f}' if printed else ''
      both |= {f'{metric.column} (paper)': value, metric.column: score[metric.column]}
    millions = printed and printed.millions
    lines.append(
      {
        'row': row,
        'cells (paper)': paper.cells_text(printed.cells) if printed else '',
        'cells': paper.cells_text({cell: ours[cell] for cell in names}),
        'seeds': str(len(seeds)),
        **both,
        **{metric.column: score[metric.column] for metric in others},
        'parameters (paper)': f'{millions} M' if millions else '',
        'parameters': f'{seeds[0].result.parameters / 1e6:.2f} M',
      }
    )
  missing = [row for row in paper.TABLE_3 if row not in group.rows]
  not_run = [paragraph(f'Not run: {", ".join(missing)}.')] if missing else []
  return [heading(3, 'Table 3'), table_of(lines), *not_run]


def rows_minus_base(group: Group, ours: Differences) -> list[str]:
  """Returns a table of each row minus base, beside the paper's."""
  top = heading(3, 'Each row minus base')
  if not ours:
    return [top, paragraph('There are no runs of base: nothing to compare.')]
  if len(ours) < 2:
    text = 'There are no runs of any other row: nothing to compare. '
    return [top, paragraph(text + comparison.smallest_difference(group))]
  lines = []
  for row in group.rows:
    if row == 'base':
      continue
    verdicts = [
      f'{x.verdict} ({x.power_text})' if x.power_text else x.verdict for x in ours[row]
    ]
    known = row in paper.TABLE_3
    printed = comparison.paper_texts(row) if known else [''] * len(JUDGED)
    p = ours[row][-1].p
    of_metrics = [*zip(JUDGED, verdicts, ours[row], printed, strict=True)]
    lines.append(
      {
        'row': row,
        # Verdicts come first, so that a phone shows all of them without scrolling.
        **{f'{metric.column} verdict': verdict for metric, verdict, *_ in of_metrics},
        **{metric.column: str(difference) for metric, _, difference, _ in of_metrics},
        'p': '' if p is None else p_text(p),
        **{f'{metric.column} (paper)': theirs for metric, *_, theirs in of_metrics},
      }
    )
  note = f'{NOTE} {comparison.smallest_difference(group)}'
  differences = [x for row in group.rows if row != 'base' for x in ours[row]]
  if any(x.power_text for x in differences):
    note += f' {POWER}'
  if any(x.mark for x in differences):
    note += f' {DAGGER}: decoded in another dtype than base.'
  return [top, table_of(lines), paragraph(note)]


def claims(ours: Differences) -> list[str]:
  """Returns a table of the paper's claims with their verdicts."""
  judgements = comparison.judge(ours)
  names = ', '.join(metric.column for metric in JUDGED)
  header = ['claim', 'verdict', f'ours: {names}', f'the paper: {names}', 'section']
  lines = [
    [x.claim.text, x.verdict, x.ours, x.papers, f'section {x.claim.section}']
    for x in judgements
  ]
  note = (
    f'{comparison.count_verdicts(judgements)} Each difference is a row minus base; '
    f'brackets mark what is undecided. {RULES}'
  )
  return [heading(3, "The paper's claims"), table(header, lines), paragraph(note)]


# Table 2


def table_2(group: Group) -> str:
  """Returns Table 2 with the paper's columns beside ours."""
  french = group.members[0].data['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: runs for row, runs in group.table_2.items()}
  runs = [ours.get(name, []) for name in paper.TABLE_2]
  metrics = [metric for metric in shown_metrics(group.members) if metric.of_text]
  metrics.sort(key=lambda metric: metric not in JUDGED)
  systems, lines = paper.TABLE_2.items(), []
  for (name, system), seeds, score in zip(
    systems, runs, score_cells(runs, metrics), strict=True
  ):
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    lines.append(
      {
        'model': name,
        'seeds': str(len(seeds) or ''),
        'BLEU (paper)': '' if bleu is None else f'{bleu:g}',
        **score,
        'FLOPs (paper)': '' if printed is None else f'{printed:.1e}',
        'FLOPs, counted': _mean_flops(seeds),
      }
    )
  return table_of(lines)


def p_text(p: float) -> str:
  """Returns p with three decimals."""
  return '< 0.001' if p < 0.0005 else f'{p:.3f}'


def _mean_flops(runs: Sequence[ScoredRun]) -> str:
  """Returns FLOPs of training's matrix products, backward pass included."""
  per_token = lambda run: flops.flops_per_target_token(run.config['model'])
  totals = [per_token(run) * run.result.target_tokens_seen for run in runs]
  return f'{statistics.fmean(totals):.1e}' if totals else ''


# The summary


def _facts(
  group: Group, ours: Differences, is_named: bool
) -> Iterator[tuple[str, str]]:
  """Yields facts on a group's Table 3: base, claims, rows not run.

  They begin with the corpus if the group `is_named`.
  """
  where = f'{group.corpus}: ' if is_named else ''
  if 'base' in group.table_3:
    of_rows = zip(
      group.table_3, score_cells([*group.table_3.values()], JUDGED), strict=True
    )
    base = dict(of_rows)['base']
    scores = ', '.join(f'{metric.title} {base[metric.column]}' for metric in JUDGED)
    seeds = len(group.table_3['base'])
    text = f'{where}Base, {seeds} seed{"s" if seeds > 1 else ""}'
    if group.averaged > 1:
      text += f', {group.averaged} checkpoints averaged'
    text += f': {scores}. '
    yield 'Table 3', text + comparison.smallest_difference(group)
  if len(ours) > 1:
    count = comparison.count_verdicts(comparison.judge(ours))
    names = ', '.join(metric.column for metric in JUDGED)
    yield (
      'Claims',
      f'{where}{count} {names} are differences from base, in brackets if undecided.',
    )
  missing = [row for row in paper.TABLE_3 if row not in group.table_3]
  if missing and group.table_3:
    yield 'Missing rows', where + ', '.join(missing)


def _on_terminal(
  top: Facts, runs: Sequence[ScoredRun], studies: Sequence[Study]
) -> str:
  """Returns the facts, one table's claims, the other runs' scores, and footnotes."""
  lines = [line for fact in top for line in _wrap(*fact)]
  marks, rest = listing.number_types(runs), listing.representatives(runs)
  if len(studies) == 1 and len(studies[0][1]) > 1:
    ours = studies[0][1]
    for claim, verdict, effects, papers in comparison.judge(ours):
      text = f'{claim.text} {effects or "Not run."} (paper: {papers})'
      lines += _wrap(f'  {verdict}', text)
      for row in filter(ours.get, paper.rows_of(claim)):
        both = zip(JUDGED, ours[row], strict=True)
        chances = [f'{x.power_text} in {m.column}' for m, x in both if x.power_text]
        if chances:
          lines += _wrap('', f'{POWER} {row}: {", ".join(chances)}.')
    homes = {run.home for run in studies[0][0].members}
    rest = [run for run in rest if run.home not in homes]
  types = (listing.score_type(run, runs) for run in rest)
  lines += (_short_score(run, marks[x]) for run, x in zip(rest, types, strict=True))
  for note in listing.footnotes(runs):
    lines += _wrap('', note)
  return '\n'.join(lines) + '\n'


def _wrap(name: str, text: str) -> list[str]:
  """Returns lines of WIDTH; breaks signatures between their fields only."""
  lines = textwrap.wrap(
    legible(text).replace('|', '| '),
    WIDTH,
    initial_indent=f'{name:{INDENT - 1}} ',
    subsequent_indent=' ' * INDENT,
    break_on_hyphens=False,
  )
  return [line.replace('| ', '|') for line in lines]


def _short_score(run: ScoredRun, mark: str) -> str:
  result, ((metric, score), *others) = run.result, listing.scores_of(run)
  scores = f'{listing.score_text(score):>19} {metric.column}'
  scores += ''.join(f', {score.score:5.2f} {metric.column}' for metric, score in others)
  return (
    f'{scores}{mark}, step {result.step:>7,}, average {len(result.averaged):>2}, '
    f'beam {result.beam}, alpha {result.alpha}: {legible(run.title)}'
  )
