"""Lists every result: scores, footnotes on how they compare, curves, samples."""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformer_jax.machine.errors import UserError
from transformer_jax.report import figures
from transformer_jax.report.page import DASH, Block, heading, table, table_of
from transformer_jax.report.results import (
  HeldOut,
  ScoredRun,
  distinct_name,
  shown_metrics,
  signatures,
)
from transformer_jax.runs.records import read_records
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.translations import (
  PERPLEXITY,
  Metric,
  perplexity_text,
  text_metrics,
)

SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')


class ScoreType(NamedTuple):
  """What was scored and how; scores of equal types can be compared."""

  test_set: str
  text: str | None  # such as 'detokenised'
  corpus: str
  pieces: int
  decode_dtype: str | None
  signatures: tuple[str, ...]  # of the metrics that all results have


def score_type(run: ScoredRun, runs: Sequence[ScoredRun]) -> ScoreType:
  """Returns the type of a result's scores among `runs`."""
  pieces = run.config['model']['vocab_size']
  what = run.test_set, run.result.text, run.result.corpus, pieces
  return ScoreType(*what, run.result.decode_dtype, signatures(run, runs))


def number_types(runs: Sequence[ScoredRun]) -> dict[ScoreType, str]:
  """Returns the superscript number of each type's footnote."""
  types = dict.fromkeys(score_type(run, runs) for run in runs)
  return {score: f'{n}'.translate(SUPERSCRIPTS) for n, score in enumerate(types, 1)}


def footnotes(runs: Sequence[ScoredRun]) -> list[str]:
  """Returns a footnote for each type of score; spells each signature out once."""
  first: dict[tuple[str, ...], str] = {}
  items = []
  for scores, mark in number_types(runs).items():
    alike = [run for run in runs if score_type(run, runs) == scores]
    what = ', '.join(filter(None, (scores.test_set, scores.text)))
    text = f'{mark} {what}, corpus {scores.corpus[:12]}, {scores.pieces:,} pieces'
    text += f', decoded in {scores.decode_dtype}. ' if scores.decode_dtype else '. '
    text += max(map(overlap, alike), key=len)
    if scores.signatures in first:
      text += f'Scored as {first[scores.signatures]}.'
    else:
      every = {m.title: x.signature for run in alike for m, x in scores_of(run)}
      text += '; '.join(f'{name}: {x}' for name, x in every.items()) + '.'
    first.setdefault(scores.signatures, mark)
    items.append(text)
  return items


def overlap(run: ScoredRun) -> str:
  """Returns how much of the scored text other splits have; '' if not recorded."""
  size = len(run.translations or [])
  share = lambda count: f' ({count / size:.1%})' if size else ''
  named: dict[str, list[str]] = {}
  for split, overlap in (run.result.overlap or {}).items():
    for name, count in overlap.counts().items():
      named.setdefault(name, []).append(f'{count:,}{share(count)} in {split}')
  names = {'source': 'source sentences', 'target': 'references', 'pair': 'pairs'}
  each = (f'{names[name]} {", ".join(counts)}' for name, counts in named.items())
  return f'Of its {"; of its ".join(each)}. ' if named else ''


def every_result(runs: Sequence[ScoredRun]) -> list[str]:
  """Returns a table with a row for each result."""
  marks = number_types(runs)
  metrics = [metric for metric in shown_metrics(runs) if metric.of_text]
  rows = [_row(run, marks[score_type(run, runs)], metrics) for run in runs]
  return [heading(2, 'Every result'), table_of(rows)]


def _row(run: ScoredRun, mark: str, metrics: Sequence[Metric]) -> dict[str, str]:
  result, scores = run.result, run.result.scores
  cell = lambda name: f'{score_text(scores[name])}{mark}' if name in scores else DASH
  return {
    'run': run.title,
    **{metric.column: cell(metric.name) for metric in metrics},
    f'dev {PERPLEXITY.column}': perplexity_text(result.dev_perplexity, run.pieces, 3),
    'scored on': run.test_set,
    'step': f'{result.step:,}',
    'averaged': f'{len(result.averaged)}',
    'beam': f'{result.beam}',
    'alpha': f'{result.alpha}',
    'parameters': f'{result.parameters / 1e6:.1f} M',
    'target tokens': f'{result.target_tokens_seen / 1e6:.1f} M',
    'minutes': f'{result.wall_seconds / 60:.1f}',
  }


def scores_of(run: ScoredRun) -> list[tuple[Metric, Score]]:
  """Returns the metrics of text that a result has."""
  scores = run.result.scores
  return [(x, scores[x.name]) for x in text_metrics() if x.name in scores]


def score_text(score: Score) -> str:
  """Returns '25.31 [24.0, 26.6]', with the 95 % interval over sentences."""
  low, high = score.interval
  return f'{score.score:.2f} [{low:.1f}, {high:.1f}]'


def curves(runs: Sequence[ScoredRun], over: Sequence[pathlib.Path]) -> list[Block]:
  """Returns a picture of what training measured, of runs that have metrics.jsonl.

  Args:
    over: files like metrics.jsonl, of training with any program.

  Raises:
    UserError: a file of `over` is missing or damaged, or measured nothing.
  """
  yours = []
  for path in over:
    if not path.is_file():
      raise UserError(f'{path}: no such file')
    records = read_records(path)
    yours.append((distinct_name(path, {*over}), records))
    measured = (r.get(key) for r in records for key in figures.MEASURED)
    if all(value is None for value in measured):
      keys = ', '.join(figures.MEASURED)
      raise UserError(
        f'{path}: no line such as {{"step": 100, "loss": 6.2}}, with one of {keys}'
      )
  trained = []
  for run in {run.home: run for run in runs}.values():
    try:
      if records := read_records(run.metrics):
        trained.append((run.row or run.name, records))
    except UserError as error:
      print(f'without a curve: {error}', file=sys.stderr)
  pictures = figures.curves(trained, yours)
  return [heading(2, 'Curves'), *pictures] if pictures else []


def representatives(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
  """Returns a result for each run and type of score.

  It is of the newest step, and decoded as the config says if any is.
  """

  def rank(run: ScoredRun) -> tuple[int, bool]:
    used = len(run.result.averaged), run.result.beam, run.result.alpha
    keys = 'average_last', 'beam', 'alpha'
    return run.result.step, used == tuple(run.config[key] for key in keys)

  best: dict[tuple[Any, ...], ScoredRun] = {}
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
  alike: dict[tuple[Any, ...], dict[str, ScoredRun]] = {}
  for run in sorted(representatives(runs), key=lambda run: run.seed):
    if run.translations is not None and texts.text(run) is not None:
      rows = alike.setdefault((run.test_set, run.result.corpus), {})
      rows.setdefault(run.row or run.name, run)
  blocks: list[str] = []
  for (test_set, _), rows in alike.items() if count else ():
    shown = [run for run in runs if run in rows.values()]
    sources, references = texts.text(shown[0]) or ([], [])
    blocks.append(heading(2, f'Sample translations of {test_set}'))
    for i in range(0, len(sources), max(1, len(sources) // count))[:count]:
      lines = [('reference', references[i])]
      outputs = [(run.title, run.translations or []) for run in shown]
      lines += [(title, said[i] or '(empty)') for title, said in outputs]
      blocks.append(table(('source', sources[i]), lines))
  return blocks
