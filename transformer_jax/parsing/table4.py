"""Table 4: the paper's parsers, and ours and their baselines on what they parsed."""

import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import tree_pictures, trees
from transformer_jax.parsing.baseline import Baseline
from transformer_jax.parsing.parses import Parsing
from transformer_jax.parsing.trees import Tree
from transformer_jax.report import paper
from transformer_jax.report.blocks import Block, Heading, Paragraph, Table
from transformer_jax.report.results import Scored

JOURNAL = 'wsj.23'  # as configs/parsing.py calls the paper's test set
HEADER = ('parser', 'training', 'scored on', 'F1', '95 %', 'recall', 'precision')
HEADER += ('complete', 'tags', 'valid before repair', 'about')
FEWEST = 20  # a label with fewer brackets in the treebank is not listed
SHOWN = range(5, 13)  # words of a sentence whose trees are drawn


class Row(NamedTuple):
  """A parser on a test set."""

  name: str
  training: str
  test_set: str
  parsing: Parsing
  valid: float | None
  about: str


def blocks(
  parsed: Sequence[Scored],
  baselines: Sequence[Baseline],
  data_dir: pathlib.Path,
  samples: int,
) -> list[Block]:
  """The table, and for each test set F1 by length and by label, and trees.

  Trees are those of the best run of the test set, if its text is at hand.
  """
  rows = [*map(_of_run, parsed), *map(_of_baseline, baselines)]
  found: list[Block] = [Heading(2, 'Table 4')]
  found.append(Table(HEADER, [*_papers(), *map(_cells, rows)]))
  found.append(Paragraph(_about(rows)))
  for alike in _by_treebank(rows):
    name = alike[0].test_set
    found += [Heading(3, f'F1 by words, {name}'), _by_length(alike)]
    if (by_label := _by_label(alike)).rows:
      found += [Heading(3, f'F1 by label, {name}'), by_label]
  for treebank in dict.fromkeys(scored.result.parsing['treebank'] for scored in parsed):
    alike = [s for s in parsed if s.result.parsing['treebank'] == treebank]
    best = max(alike, key=lambda scored: scored.result.parsing['f1']['score'])
    found += _samples(best, data_dir, samples)
  return found


def summary(parsed: Sequence[Scored], baselines: Sequence[Baseline]) -> str:
  """A line for each parser."""
  lines = []
  for row in [*map(_of_run, parsed), *map(_of_baseline, baselines)]:
    f1 = row.parsing.f1
    low, high = f1.interval
    lines.append(
      f'{f1.score:6.2f} F1 [{low:.1f}, {high:.1f}], {row.test_set}: {row.name}'
    )
  return ''.join(line + '\n' for line in lines)


def _samples(scored: Scored, data_dir: pathlib.Path, count: int) -> Iterator[Block]:
  """Evenly spaced short sentences, as the treebank and as the run has them."""
  held_out, lines = scored.held_out(data_dir), scored.translations
  if held_out is None or lines is None or len(lines) != len(held_out[0]) or not count:
    return
  name = _files(scored, scored.result.split)
  yield Heading(3, f'Trees of {name}, by {scored.run}')
  yield Paragraph('Constituents that only one of the trees has are bold and in colour.')
  sentences = [line.split(' ') for line in held_out[0]]
  short = [n for n, words in enumerate(sentences) if len(words) in SHOWN]
  for n in short[:: max(1, len(short) // count)][:count]:
    gold = Tree(sentences[n], held_out[1][n].split(' '))
    try:
      (ours,) = trees.parse([lines[n]], f'{scored.text}, sentence {n + 1}')
    except UserError as error:  # it is damaged, or not one tree
      print(f'not drawn: sentence {n + 1} of {scored.text} ({error})', file=sys.stderr)
      continue
    of = f'{name.replace("/", ".")}.{n + 1}'
    text = f'Two trees of: {held_out[0][n]}'
    yield tree_pictures.pair(f'trees.{of}', text, ours, gold)


def _of_run(scored: Scored) -> Row:
  result, model = scored.result, scored.config['model']
  return Row(
    scored.run,
    _files(scored, 'train'),
    _files(scored, result.split),
    Parsing.from_json(result.parsing),
    result.valid,
    f'N {model["N"]}, d_model {model["d_model"]}, {result.parameters / 1e6:.1f} M, '
    f'seed {scored.seed}, step {result.step:,}, averaged {len(result.averaged)}, '
    f'beam {result.beam}, alpha {result.alpha}',
  )


def _files(scored: Scored, split: str) -> str:
  names = scored.config['data']['files'][split]
  return ' + '.join([names] if isinstance(names, str) else names)


def _of_baseline(found: Baseline) -> Row:
  training = ' + '.join(found.train)
  name = f'{found.parser} of {training}'  # one parser may learn from several treebanks
  return Row(name, training, found.test, found.parsing, None, found.device)


def _papers() -> Iterator[list[str]]:
  blank = [''] * (len(HEADER) - 5)
  for parser in paper.TABLE_4:
    yield [parser.name, parser.training, JOURNAL, f'{parser.f1}', *blank, 'the paper']


def _cells(row: Row) -> list[str]:
  found = row.parsing
  low, high = found.f1.interval
  parts = found.recall, found.precision, found.complete_match, found.tagging
  return [
    *(row.name, row.training, row.test_set, f'{found.f1.score:.2f}'),
    f'{low:.2f}, {high:.2f}',
    *(f'{part:.2f}' for part in parts),
    '' if row.valid is None else f'{row.valid:.2f}',
    row.about,
  ]


def _about(rows: Sequence[Row]) -> str:
  text = 'F1 as EVALB counts it under COLLINS.prm, all lengths, on the tags of the '
  text += (
    'treebank; its interval is by bootstrap. After repair every output is a tree. '
  )
  if not any(row.test_set == JOURNAL for row in rows):
    text += "No run here was scored on the paper's test set, section 23 of the Wall "
    text += 'Street Journal: the rows of other text do not compare with its figures.'
  return text


def _by_treebank(rows: Sequence[Row]) -> Iterator[list[Row]]:
  """Rows of the same trees."""
  for treebank in dict.fromkeys(row.parsing.treebank for row in rows):
    yield [row for row in rows if row.parsing.treebank == treebank]


def _by_length(rows: Sequence[Row]) -> Table:
  counts = rows[0].parsing.lengths
  header = ['parser', *(f'{words} ({int(n):,})' for words, (n, _) in counts.items())]
  cells = lambda row: [
    f'{f1:.2f}' if n else '' for n, f1 in row.parsing.lengths.values()
  ]
  return Table(header, [[row.name, *cells(row)] for row in rows])


def _by_label(rows: Sequence[Row]) -> Table:
  """Labels by how often the treebank has them."""
  gold = {label: n for label, (_, n, _) in rows[0].parsing.labels.items()}
  chosen = sorted((one for one in gold if gold[one] >= FEWEST), key=lambda l: -gold[l])
  cells = [
    [label, f'{gold[label]:,}', *(_f1(row.parsing, label) for row in rows)]
    for label in chosen
  ]
  return Table(['label', 'brackets', *(row.name for row in rows)], cells)


def _f1(parsing: Parsing, label: str) -> str:
  matched, gold, test = parsing.labels[label]
  return f'{200 * matched / (gold + test):.2f}'
