"""Table 4: the paper's parsers, ours and their baselines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from transformer_jax.parsing.evalb import Parsing
from transformer_jax.parsing.pcfg import Baseline
from transformer_jax.report import paper
from transformer_jax.report.page import Block, heading, paragraph, table
from transformer_jax.report.results import ScoredRun

JOURNAL, GUM = 'wsj.23', 'gum/'  # as configs/parsing.py calls their files
HEADER = (
  *('parser', 'training', 'scored on', 'F1', '95 %', 'recall', 'precision'),
  *('complete', 'tags', 'trees before repair', 'about'),
)
MIN_BRACKETS = 20  # of a label in the treebank, to be listed


class Row(NamedTuple):
  """A parser on a test set."""

  name: str
  training: str
  test_set: str
  parsing: Parsing
  valid: float | None
  about: str


def section(
  parsed: Sequence[ScoredRun], baselines: Sequence[Baseline]
) -> tuple[str, list[Block]]:
  """Returns a line for each parser, for a terminal, and the section's blocks.

  They are the table, and for each test set F1 by length and by label.
  """
  rows = [*map(_run_row, parsed), *map(_baseline_row, baselines)]
  blocks: list[Block] = [heading(2, 'Table 4')]
  blocks.append(table(HEADER, [*_paper_rows(), *map(_cells, rows)]))
  blocks.append(paragraph(_about(rows)))
  for treebank in dict.fromkeys(row.parsing.treebank for row in rows):
    group = [row for row in rows if row.parsing.treebank == treebank]
    name = group[0].test_set
    blocks += [heading(3, f'F1 by words, {name}'), _by_length(group)]
    if labels := _labels(group):
      blocks += [heading(3, f'F1 by label, {name}'), _by_label(group, labels)]
  return ''.join(map(_summary, rows)), blocks


def _summary(row: Row) -> str:
  f1, (low, high) = row.parsing.f1.score, row.parsing.f1.interval
  agreement = ' (agreement with a parser)' if row.test_set.startswith(GUM) else ''
  return (
    f'{f1:6.2f} F1 [{low:.1f}, {high:.1f}], {row.test_set}{agreement}: {row.name}\n'
  )


def _run_row(run: ScoredRun) -> Row:
  result, model = run.result, run.config['model']
  return Row(
    run.title,
    _files(run, 'train'),
    _files(run, result.split),
    msgspec.convert(result.parsing, Parsing),
    result.valid,
    f'N {model["N"]}, d_model {model["d_model"]}, {result.parameters / 1e6:.1f} M, '
    f'seed {run.seed}, step {result.step:,}, averaged {len(result.averaged)}, '
    f'beam {result.beam}, alpha {result.alpha}',
  )


def _files(run: ScoredRun, split: str) -> str:
  return ' + '.join(run.data['files'][split])


def _baseline_row(baseline: Baseline) -> Row:
  training = ' + '.join(baseline.train)
  # One parser may learn from several treebanks.
  name = f'{baseline.parser} of {training}'
  return Row(name, training, baseline.test, baseline.parsing, None, baseline.device)


def _paper_rows() -> Iterator[list[str]]:
  blank = [''] * (len(HEADER) - 5)
  for parser in paper.TABLE_4:
    yield [parser.name, parser.training, JOURNAL, f'{parser.f1}', *blank, 'the paper']


def _cells(row: Row) -> list[str]:
  scores = row.parsing
  low, high = scores.f1.interval
  parts = scores.recall, scores.precision, scores.complete_match, scores.tagging
  return [
    *(row.name, row.training, row.test_set, f'{scores.f1.score:.2f}'),
    f'{low:.2f}, {high:.2f}',
    *(f'{part:.2f}' for part in parts),
    '' if row.valid is None else f'{row.valid:.2f}',
    row.about,
  ]


def _about(rows: Sequence[Row]) -> str:
  text = [
    'F1 as EVALB counts it under COLLINS.prm, all lengths, on the tags of the '
    'treebank; its interval is by bootstrap. An output that is not a tree is repaired '
    'first.'
  ]
  if any(row.test_set.startswith(GUM) for row in rows):
    text.append(
      "GUM's trees are the output of another parser from gold tags, which has 88.4 F1 "
      'on a small sample made by people: F1 on GUM is agreement with that parser.'
    )
  if not any(row.test_set == JOURNAL for row in rows):
    text.append(
      "No run here was scored on the paper's test set, section 23 of the Wall Street "
      'Journal: the rows of other text do not compare with its figures.'
    )
  return ' '.join(text)


def _by_length(rows: Sequence[Row]) -> str:
  counts = rows[0].parsing.lengths
  header = ['parser', *(f'{words} ({int(n):,})' for words, (n, _) in counts.items())]
  cells = lambda row: [
    f'{f1:.2f}' if n else '' for n, f1 in row.parsing.lengths.values()
  ]
  return table(header, [[row.name, *cells(row)] for row in rows])


def _labels(rows: Sequence[Row]) -> dict[str, int]:
  """Returns how often the treebank has each label, the commonest first."""
  gold = {label: n for label, (_, n, _) in rows[0].parsing.labels.items()}
  often = {label: n for label, n in gold.items() if n >= MIN_BRACKETS}
  return dict(sorted(often.items(), key=lambda item: -item[1]))


def _by_label(rows: Sequence[Row], labels: Mapping[str, int]) -> str:
  cells = [
    [label, f'{count:,}', *(_f1(row.parsing, label) for row in rows)]
    for label, count in labels.items()
  ]
  return table(['label', 'brackets', *(row.name for row in rows)], cells)


def _f1(parsing: Parsing, label: str) -> str:
  matched, gold, test = parsing.labels[label]
  return f'{200 * matched / (gold + test):.2f}'
