"""Makes the whole report from paths: all sections, and a summary for a terminal."""

import pathlib
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tqdm import tqdm

from transformer_jax.machine.errors import UserError
from transformer_jax.report import comparison, figures, paper, results, tables
from transformer_jax.report.comparison import Differences, Group
from transformer_jax.report.page import (
  Block,
  bullets,
  facts,
  heading,
  legible,
  paragraph,
  table,
  table_of,
)
from transformer_jax.report.results import HeldOut, ScoredRun, shown_metrics, signatures
from transformer_jax.report.tables import DASH
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.output import Output
from transformer_jax.scoring.translations import (
  JUDGED,
  PERPLEXITY,
  Metric,
  text_metrics,
)

TITLE = 'Attention Is All You Need: runs'
WIDTH, INDENT = 96, 15  # of a terminal's lines

SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')
Study = tuple[Group, Differences]
Facts = list[tuple[str, str]]


def make_report(
  paths: Sequence[pathlib.Path],
  outputs: Mapping[str, Output],
  texts: HeldOut,
  samples: int,
) -> tuple[str, list[Block]]:
  """Returns a summary for a terminal, and the blocks of the whole report.

  What is left out is named on stderr.

  Args:
    paths: of runs' folders and of results.
    outputs: of all tasks, by name. Those with a section of their own have no BLEU.
    texts: what the paired tests and the samples take.
    samples: sentences of each test set to show with their translations.

  Raises:
    UserError: no path holds a run or a result, or what was scored is damaged.
  """
  evaluations, all_baselines, left_out = results.read(paths, outputs)
  for reason in left_out:
    print(f'left out: {legible(reason)}', file=sys.stderr)
  for path in texts.unused(evaluations):
    print(f'{path}: not the references of any of these results', file=sys.stderr)
  if not evaluations and not all_baselines:
    raise UserError('no run with a result.json: evaluate one first')
  summary, blocks = '', []
  if runs := [run for run in evaluations if not outputs[run.result.task].section]:
    summary, blocks = _report_runs(runs, left_out, texts, samples)
  for name, output in outputs.items():
    runs = [run for run in evaluations if run.result.task == name]
    baselines = [baseline for of, baseline in all_baselines if of == name]
    if output.section and (runs or baselines):
      lines, more = output.section.write(runs, baselines)
      summary, blocks = summary + lines, blocks + more
  return summary, blocks


def _report_runs(
  runs: Sequence[ScoredRun],
  unread: Sequence[str],
  texts: HeldOut,
  samples: int,
) -> tuple[str, list[Block]]:
  """Returns summary and blocks of runs that translate; `unread`: why others are not."""
  for run in runs:
    texts.references(run)  # refuses translations of another number
  groups, ungrouped = comparison.group(runs)
  left_out = [*unread, *ungrouped]
  with tqdm(desc='comparing', unit='row', disable=None) as bar:

    def compare(metric: Metric, *both: Sequence[ScoredRun]) -> float | None:
      bar.update()
      return paired_p(metric, *both, texts)

    studies = [(group, comparison.differences(group, compare)) for group in groups]
  top = _facts(studies, left_out)
  blocks = [heading(2, 'What the runs say'), facts(top)] if top else []
  for n, study in enumerate(studies, 1):
    blocks += describe_group(*study, f'.{n}' if len(studies) > 1 else '')
  blocks += every_result(runs)
  blocks += sample_translations(runs, texts, samples)
  if left_out:
    blocks += [heading(2, 'Left out'), bullets(left_out)]
  blocks += [heading(2, 'How it was scored'), bullets(footnotes(runs))]
  return _on_terminal(top, runs, studies), blocks


def describe_group(group: Group, ours: Differences, number: str) -> list[Block]:
  """Returns the blocks of a group; `number` ends the names of its pictures."""
  title, about = heading(2, tables.title(group)), paragraph(tables.about(group))
  blocks: list[Block] = [title, about]
  if len(ours) > 1:
    blocks += tables.claims(ours)
    blocks.append(heading(3, "Differences from base, ours and the paper's"))
    blocks += figures.rows_minus_base(group, ours, number)
  if group.table_3:
    blocks += tables.rows_minus_base(group, ours)
    blocks += tables.table_3(group)
  if group.table_2:
    title = heading(3, f'Table 2 on {group.corpus}')
    blocks += [title, tables.table_2(group)]
  if group.left_out:
    blocks += [paragraph('Left out:'), bullets(group.left_out)]
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
  outputs = [[run.translations for run in runs] for runs in (systems, baselines)]
  if references is None or any(None in runs for runs in outputs):
    return None
  how = data['target_language'], data['tokenized'], references
  return metric.of_text(*how).paired_p(*outputs, references)


# Every result


class ScoreType(NamedTuple):
  """What was scored and how; scores of equal types can be compared."""

  test_set: str
  text: str | None  # such as 'detokenised'
  corpus: str
  pieces: int
  signatures: tuple[str, ...]  # of the metrics that all results have


def score_type(run: ScoredRun, runs: Sequence[ScoredRun]) -> ScoreType:
  """Returns the type of a result's scores among `runs`."""
  pieces = run.config['model']['vocab_size']
  what = run.test_set, run.result.text, run.result.corpus, pieces
  return ScoreType(*what, signatures(run, runs))


def number_types(runs: Sequence[ScoredRun]) -> dict[ScoreType, str]:
  """Returns the superscript number of each type's footnote."""
  types = dict.fromkeys(score_type(run, runs) for run in runs)
  return {one: f'{n}'.translate(SUPERSCRIPTS) for n, one in enumerate(types, 1)}


def footnotes(runs: Sequence[ScoredRun]) -> list[str]:
  """Returns a footnote for each type of score; spells each signature out once."""
  first: dict[tuple[str, ...], str] = {}
  items = []
  for one, mark in number_types(runs).items():
    alike = [run for run in runs if score_type(run, runs) == one]
    of = one.test_set if one.text is None else f'{one.test_set}, {one.text}'
    text = f'{mark} {of}, corpus {one.corpus[:12]}, {one.pieces:,} pieces. '
    text += max(map(overlap, alike))
    if one.signatures in first:
      text += f'Scored as {first[one.signatures]}.'
    else:
      every = {m.title: x.signature for x in alike for m, x in _scores(x)}
      text += '; '.join(f'{name}: {x}' for name, x in every.items()) + '.'
    first.setdefault(one.signatures, mark)
    items.append(text)
  return items


def overlap(run: ScoredRun) -> str:
  """Returns how many of the scored sentences other splits have; '' if not recorded."""
  size = len(run.translations or [])
  share = lambda count: f' ({count / size:.1%})' if size else ''
  counts = (run.result.overlap or {}).items()
  each = ', '.join(f'{n:,}{share(n)} in {split}' for split, n in counts)
  return f'Of its source sentences {each}. ' if each else ''


def every_result(runs: Sequence[ScoredRun]) -> list[str]:
  """Returns a table with one row a result."""
  marks = number_types(runs)
  metrics = [metric for metric in shown_metrics(runs) if metric.of_text]
  rows = [_row(one, marks[score_type(one, runs)], metrics) for one in runs]
  return [heading(2, 'Every result'), table_of(rows)]


def _row(run: ScoredRun, mark: str, metrics: Sequence[Metric]) -> dict[str, str]:
  result, scores = run.result, run.result.scores
  cell = lambda name: f'{_score(scores[name])}{mark}' if name in scores else DASH
  return {
    'run': run.name_with_parent,
    **{metric.column: cell(metric.name) for metric in metrics},
    f'dev {PERPLEXITY.column}': f'{result.dev_perplexity:.3f}',
    'scored on': run.test_set,
    'step': f'{result.step:,}',
    'averaged': f'{len(result.averaged)}',
    'beam': f'{result.beam}',
    'alpha': f'{result.alpha}',
    'parameters': f'{result.parameters / 1e6:.1f} M',
    'target tokens': f'{result.target_tokens_seen / 1e6:.1f} M',
    'minutes': f'{result.wall_seconds / 60:.1f}',
  }


def _scores(run: ScoredRun) -> list[tuple[Metric, Score]]:
  """Returns the metrics of text that a result has."""
  scores = run.result.scores
  return [(one, scores[one.name]) for one in text_metrics() if one.name in scores]


def _score(score: Score) -> str:
  """Returns '25.31 [24.0, 26.6]', with the 95 % interval over sentences."""
  low, high = score.interval
  return f'{score.score:.2f} [{low:.1f}, {high:.1f}]'


def representatives(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
  """Returns a result for each run and type of score.

  It is of the newest step, and decoded as the config says if any is.
  """

  def rank(run: ScoredRun) -> tuple[int, bool]:
    used = len(run.result.averaged), run.result.beam, run.result.alpha
    keys = 'average_last', 'beam', 'alpha'
    return run.result.step, used == tuple(run.config[key] for key in keys)

  best: dict[tuple, ScoredRun] = {}
  for run in runs:
    key = run.home, score_type(run, runs)
    best[key] = max(run, best.get(key, run), key=rank)
  return [*best.values()]


def sample_translations(
  runs: Sequence[ScoredRun], texts: HeldOut, count: int
) -> list[str]:
  """Returns evenly spaced sentences of each test set whose corpus is prepared.

  Their translations are of each row's run of the lowest seed.
  """
  alike: dict[tuple, dict[str, ScoredRun]] = {}
  for run in sorted(representatives(runs), key=lambda run: run.seed):
    if run.translations is not None and texts.text(run) is not None:
      rows = alike.setdefault((run.test_set, run.result.corpus), {})
      rows.setdefault(run.row or run.name, run)
  blocks: list[str] = []
  for (test_set, _), rows in alike.items() if count else ():
    shown = [run for run in runs if run in rows.values()]
    sources, references = texts.text(shown[0])
    blocks.append(heading(2, f'Sample translations of {test_set}'))
    for i in range(0, len(sources), max(1, len(sources) // count))[:count]:
      lines = [('reference', references[i])]
      lines += [(run.name, run.translations[i]) for run in shown]
      blocks.append(table(('source', sources[i]), lines))
  return blocks


# The summary


def _facts(studies: Sequence[Study], left_out: Sequence[str]) -> Facts:
  """Returns facts on Table 3: base, claims, rows not run; and what is left out.

  `left_out` has the reasons, but for those of the studies.
  """
  items = []
  for group, ours in studies:
    if group.table_3:
      items += _table_3_facts(group, ours, f'{group.corpus}: ' * (len(studies) > 1))
  reasons = [*(why for group, _ in studies for why in group.left_out), *left_out]
  if reasons:
    rest = f' (and {len(reasons) - 1} more in the report)' if len(reasons) > 1 else ''
    items.append(('Left out', reasons[0] + rest))
  return items


def _table_3_facts(
  group: Group, ours: Differences, where: str
) -> Iterator[tuple[str, str]]:
  if 'base' in group.table_3:
    columns = tables.columns([*group.table_3.values()], JUDGED)
    base = [*group.table_3].index('base')
    both = zip(JUDGED, columns, strict=True)
    scores = ', '.join(f'{metric.title} {column[base]}' for metric, column in both)
    seeds = len(group.table_3['base'])
    text = f'{where}Base, {seeds} seed{"s" if seeds > 1 else ""}: {scores}. '
    yield 'Table 3', text + comparison.smallest_difference(group)
  if len(ours) > 1:
    count = comparison.count_verdicts(comparison.judge(ours))
    names = ', '.join(metric.column for metric in JUDGED)
    yield 'Claims', f'{where}{count} {names} minus base; undecided in brackets.'
  if missing := [row for row in paper.TABLE_3 if row not in group.table_3]:
    yield 'Missing rows', where + ', '.join(missing)


def _on_terminal(
  top: Facts, runs: Sequence[ScoredRun], studies: Sequence[Study]
) -> str:
  """Returns the facts, the claims, the scores of runs in no table, and footnotes."""
  lines = [line for fact in top for line in _wrap(*fact)]
  marks, rest = number_types(runs), representatives(runs)
  if len(studies) == 1 and len(studies[0][1]) > 1:
    for one in comparison.judge(studies[0][1]):
      text = f'{one.claim.text} {one.ours or "Not run."} (paper: {one.papers})'
      lines += _wrap(f'  {one.verdict}', text)
    homes = {run.home for run in studies[0][0].members}
    rest = [run for run in rest if run.home not in homes]
  lines += (_short_score(run, marks[score_type(run, runs)]) for run in rest)
  for note in footnotes(runs):
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
  result, ((metric, score), *others) = run.result, _scores(run)
  rest = ''.join(f', {other.score:5.2f} {one.column}' for one, other in others)
  return (
    f'{_score(score):>19} {metric.column}{rest}{mark}, step {result.step:>7,}, '
    f'average {len(result.averaged):>2}, beam {result.beam}, alpha {result.alpha}: '
    f'{legible(run.name_with_parent)}'
  )
