"""Makes the whole report from paths: all sections, and a summary for a terminal."""

import pathlib
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tqdm import tqdm

from transformer_jax.data.task import Task
from transformer_jax.machine.errors import UserError
from transformer_jax.report import (
  comparable,
  figures,
  paper,
  recipe,
  results,
  table2,
  table3,
)
from transformer_jax.report.comparable import Group
from transformer_jax.report.page import (
  Block,
  bullets,
  facts,
  heading,
  legible,
  paragraph,
  table,
)
from transformer_jax.report.results import HeldOut, Results, Scored
from transformer_jax.report.table3 import SACREBLEU, Differences
from transformer_jax.runs.config import flat
from transformer_jax.scoring import bleu

TITLE = 'Attention Is All You Need: runs'
MOST_KEYS = 5  # if configs differ in more keys, only the keys are named
WIDTH, INDENT = 96, 15  # of a terminal's lines
HEADER = ('run', 'sacreBLEU', 'BLEU', 'dev PPL', 'scored on', 'step', 'averaged')
HEADER += ('beam', 'alpha', 'parameters', 'target tokens', 'minutes')
SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')
Study = tuple[Group, Differences]
Facts = list[tuple[str, str]]


class Report(NamedTuple):
  """The report of runs, short and whole."""

  summary: str  # for a terminal
  blocks: list[Block]


def make_report(
  paths: Sequence[pathlib.Path],
  tasks: Mapping[str, Task],
  texts: HeldOut,
  samples: int,
  tflops: float | None,
) -> Report:
  """Returns the report of runs; names on stderr what is left out.

  Args:
    paths: of runs' folders and of results.
    tasks: all of them, by name. Those with a section of their own have no BLEU.
    texts: what the paired tests and the samples take.
    samples: sentences of each test set to show with their translations.
    tflops: TFLOP/s that one training device sustains; None takes the paper's figure.

  Raises:
    UserError: no path holds a run or a result.
  """
  evidence = Results([], [], [], [])
  for path in paths:
    for every, some in zip(evidence, results.read(path, tasks), strict=True):
      every += some
  for reason in evidence.left_out:
    print(f'left out: {legible(reason)}', file=sys.stderr)
  evidence = evidence.with_distinct_names()
  if not any((evidence.scored, evidence.unscored, evidence.baselines)):
    raise UserError('no run with a result.json: evaluate one first')
  others = [one for one in evidence.scored if tasks[one.result.task].section]
  runs = evidence._replace(scored=[one for one in evidence.scored if one not in others])
  summary, blocks = '', []
  if runs.scored or runs.unscored:
    summary, blocks = _report_runs(runs, texts, samples, tflops)
  for name, task in tasks.items():
    scored = [one for one in others if one.result.task == name]
    baselines = [baseline for task, baseline in evidence.baselines if task == name]
    if scored or baselines:
      lines, more = task.section.write(scored, baselines, texts, samples)
      summary, blocks = summary + lines, [*blocks, *more]
  blocks += figures.curves([*evidence.unscored, *evidence.scored])
  return Report(summary, blocks)


def _report_runs(
  evidence: Results, texts: HeldOut, samples: int, tflops: float | None
) -> Report:
  groups, ungrouped = comparable.group(evidence.scored)
  left_out = [*evidence.left_out, *ungrouped]
  left_out += _wrong_lengths(evidence.scored, texts)
  with tqdm(desc='comparing', unit='pair', disable=None) as bar:

    def compare(system: Scored, baseline: Scored) -> float | None:
      bar.update()
      return paired_p(system, baseline, texts)

    studies = [(group, table3.differences(group, compare)) for group in groups]
    pieces = recipe.recipe(evidence.scored, compare)
  top = _facts(evidence, studies, left_out)
  left_out += map(str, evidence.unscored)
  blocks: list[Block] = [heading(2, 'What the runs say'), facts(top)]
  for n, study in enumerate(studies, 1):
    blocks += describe_group(*study, tflops, f'.{n}' if len(studies) > 1 else '')
  if evidence.scored:
    blocks += every_result(evidence.scored)
  blocks += pieces
  blocks += sample_translations(evidence.scored, texts, samples)
  if left_out:
    blocks += [heading(2, 'Left out'), bullets(left_out)]
  if evidence.scored:
    notes = bullets(footnotes(evidence.scored))
    blocks += [heading(2, 'How it was scored'), notes]
  return Report(_on_terminal(top, evidence.scored, studies), blocks)


def describe_group(
  group: Group, ours: Differences, tflops: float | None, number: str
) -> list[Block]:
  """Returns everything about runs that can be compared.

  Args:
    number: ends its pictures' names, which differ from those of other groups.
  """
  blocks: list[Block] = [heading(2, table3.title(group))]
  blocks.append(paragraph(table3.about(group)))
  if len(ours) > 1:
    blocks.append(heading(3, "Differences from base, ours and the paper's"))
    blocks += figures.rows_minus_base(group, ours, number)
    blocks += table3.claims(ours)
  if group.table_3:
    blocks += table3.rows_minus_base(group, ours)
    blocks += [heading(3, 'Table 3'), table3.table_3(group)]
  if group.table_2:
    title = heading(3, f'Table 2 on {group.corpus}')
    blocks += [title, table2.table_2(group, tflops)]
  if group.left_out:
    blocks += [paragraph('Left out:'), bullets(group.left_out)]
  return blocks


def paired_p(system: Scored, baseline: Scored, texts: HeldOut) -> float | None:
  """Returns p of no difference in BLEU; None without translations or references."""
  references = texts.references(system)
  a, b = system.translations, baseline.translations
  if references is None or a is None or b is None:
    return None
  if not len(a) == len(b) == len(references):
    return None  # _wrong_lengths names them
  data, lowercase = system.data, system.result.lowercase
  metric = bleu.paper_bleu(data['target_language'], data['tokenized'], lowercase)
  return metric.compare(a, b, references).p


def _wrong_lengths(scored: Sequence[Scored], texts: HeldOut) -> Iterator[str]:
  """Yields a reason for each result that has not one translation a sentence."""
  for one in scored:
    references = texts.references(one)
    if references is not None and one.translations is not None:
      lines, sentences = len(one.translations), len(references)
      if lines != sentences:
        yield f'{one.text}: {lines} translations of {sentences} sentences'


# Every result


class Kind(NamedTuple):
  """What a score is of, and how it was computed: equal if scores can be compared."""

  test_set: str
  text: str | None  # such as 'detokenised'
  corpus: str
  pieces: int
  signatures: tuple[str, str]


def kind(scored: Scored) -> Kind:
  """Returns the kind of a result's scores."""
  pieces = scored.config['model']['vocab_size']
  result = scored.result
  return Kind(scored.test_set, result.text, result.corpus, pieces, scored.signatures)


def number_kinds(scored: Sequence[Scored]) -> dict[Kind, str]:
  """Returns the superscript number of each kind's footnote."""
  kinds = dict.fromkeys(map(kind, scored))
  return {one: f'{n}'.translate(SUPERSCRIPTS) for n, one in enumerate(kinds, 1)}


def footnotes(scored: Sequence[Scored]) -> list[str]:
  """Returns a footnote for each kind of score; spells each signature out once."""
  first: dict[tuple[str, str], str] = {}
  items = []
  for one, mark in number_kinds(scored).items():
    of = one.test_set if one.text is None else f'{one.test_set}, {one.text}'
    text = f'{mark} {of}, corpus {one.corpus[:12]}, {one.pieces:,} pieces. '
    if one.signatures in first:
      text += f'Scored as {first[one.signatures]}.'
    else:
      text += 'sacreBLEU: {}; BLEU: {}.'.format(*one.signatures)
    first.setdefault(one.signatures, mark)
    items.append(text)
  return items


def every_result(scored: Sequence[Scored]) -> list[str]:
  """Returns a table with one row a result."""
  marks = number_kinds(scored)
  rows = [_row(one, marks[kind(one)]) for one in scored]
  return [heading(2, 'Every result'), table(HEADER, rows)]


def _row(scored: Scored, mark: str) -> list[str]:
  result = scored.result
  return [
    scored.run_with_parent,
    f'{result.sacrebleu.score:.2f}{mark}',
    f'{scored.bleu:.2f}{mark}',
    f'{result.dev_perplexity:.3f}',
    scored.test_set,
    f'{result.step:,}',
    f'{len(result.averaged)}',
    f'{result.beam}',
    f'{result.alpha}',
    f'{result.parameters / 1e6:.1f} M',
    f'{result.target_tokens_seen / 1e6:.1f} M',
    f'{result.wall_seconds / 60:.1f}',
  ]


def representatives(scored: Sequence[Scored]) -> list[Scored]:
  """Returns a result for each run and kind: the newest step, as configured if any."""
  best: dict[tuple, tuple] = {}
  for one in scored:
    key = one.home, kind(one)
    rank = one.result.step, recipe.as_configured(one)
    if key not in best or rank >= best[key][0]:
      best[key] = rank, one
  return [one for _, one in best.values()]


def best_scores(scored: Sequence[Scored]) -> list[Scored]:
  """Returns the representative of each kind with the highest sacreBLEU."""
  alike: dict[Kind, list[Scored]] = {}
  for one in representatives(scored):
    alike.setdefault(kind(one), []).append(one)
  return [max(members, key=SACREBLEU) for members in alike.values()]


def sample_translations(
  scored: Sequence[Scored], texts: HeldOut, count: int
) -> list[str]:
  """Returns evenly spaced sentences of each test set whose corpus is prepared.

  Their translations are of each row's run of the lowest seed.
  """
  alike: dict[tuple, dict[str, Scored]] = {}
  for one in sorted(representatives(scored), key=lambda one: one.seed):
    text, lines = texts.text(one), one.translations
    if text is not None and lines is not None and len(lines) == len(text[0]):
      runs = alike.setdefault((one.test_set, one.corpus), {})
      runs.setdefault(one.row or one.run, one)
  blocks: list[str] = []
  for (test_set, _), runs in alike.items() if count else ():
    shown = [one for one in scored if one in runs.values()]
    sources, references = texts.text(shown[0])
    blocks.append(heading(2, f'Sample translations of {test_set}'))
    for i in range(0, len(sources), max(1, len(sources) // count))[:count]:
      lines = [(one.run, one.translations[i]) for one in shown]
      rows = [('reference', references[i]), *lines]
      blocks.append(table(('source', sources[i]), rows))
  return blocks


# The summary


def _facts(
  evidence: Results, studies: Sequence[Study], left_out: Sequence[str]
) -> Facts:
  """Returns best scores, base, claims and missing rows of Table 3, what is left out.

  `left_out` has the reasons, but for those of the studies.
  """
  items = []
  marks = number_kinds(evidence.scored)
  for scored in best_scores(evidence.scored):
    items.append(('Best score', _best(scored, marks[kind(scored)])))
  if not studies and (keys := describe_differences(evidence.scored)):
    few = len(keys) <= MOST_KEYS
    names = '; '.join(keys) if few else ', '.join(key.split(':')[0] for key in keys)
    items.append(('Configs differ', names))
  for group, ours in studies:
    if group.table_3:
      items += _table_3_facts(group, ours, f'{group.corpus}: ' * (len(studies) > 1))
  if evidence.unscored:
    names = ', '.join(one.run for one in evidence.unscored)
    items.append(('Not evaluated', names))
  reasons = [*(why for group, _ in studies for why in group.left_out), *left_out]
  if reasons:
    rest = f' (and {len(reasons) - 1} more in the report)' if len(reasons) > 1 else ''
    items.append(('Left out', reasons[0] + rest))
  return items


def describe_differences(results: Sequence[Scored]) -> list[str]:
  """Returns 'KEY: VALUE (RUNS), ...' for each key in which the runs' configs differ."""
  configs = {scored.run_with_parent: flat(scored.config) for scored in results}
  keys = dict.fromkeys(key for config in configs.values() for key in config)
  lines = []
  for key in (key for key in keys if key not in comparable.NO_INFLUENCE):
    runs: dict[str, list[str]] = {}
    for run, config in configs.items():
      runs.setdefault(f'{config.get(key)}', []).append(run)
    if len(runs) > 1:
      values = (f'{value} ({", ".join(names)})' for value, names in runs.items())
      lines.append(f'{key}: {", ".join(values)}')
  return lines


def _best(scored: Scored, mark: str) -> str:
  result = scored.result
  sacre, papers = (
    f'{score.score:.2f} {name} [{score.interval[0]:.1f}, {score.interval[1]:.1f}]'
    for score, name in ((result.sacrebleu, 'sacreBLEU'), (result.paper_bleu, 'BLEU'))
  )
  return (
    f'{sacre}, {papers}{mark} on {scored.test_set} by {scored.run_with_parent}, step '
    f'{result.step:,}, average {len(result.averaged)}, beam {result.beam}, alpha '
    f'{result.alpha}'
  )


def _table_3_facts(
  group: Group, ours: Differences, where: str
) -> Iterator[tuple[str, str]]:
  if 'base' in group.table_3:
    base = [*group.table_3].index('base')
    rows = group.table_3.values()
    ppl, bleu = (
      table3.column([[*map(read, row)] for row in rows])[base] for read in table3.READ
    )
    seeds = len(group.table_3['base'])
    text = f'{where}Base, {seeds} seed{"s" if seeds > 1 else ""}: perplexity {ppl}, '
    yield 'Table 3', f'{text}BLEU {bleu}. {table3.smallest_difference(group)}'
  if len(ours) > 1:
    yield 'Claims', where + table3.count_verdicts(table3.judge(ours), ours)
  if missing := [row for row in paper.TABLE_3 if row not in group.table_3]:
    yield 'Missing rows', where + ', '.join(missing)


def _on_terminal(top: Facts, scored: Sequence[Scored], studies: Sequence[Study]) -> str:
  """Returns the facts, then the claims or else each run's score, then footnotes."""
  lines = [line for fact in top for line in _wrapped(*fact)]
  if len(studies) == 1 and len(studies[0][1]) > 1:
    ours = studies[0][1]
    for one in table3.judge(ours):
      lines += _wrapped(f'  {one.verdict}', table3.summarize(one, ours))
  else:
    lines += map(_score, representatives(scored))
  for note in footnotes(scored):
    lines += _wrapped('', note)
  return '\n'.join(lines) + '\n'


def _wrapped(name: str, text: str) -> list[str]:
  """Returns lines of WIDTH; breaks signatures between their fields only."""
  lines = textwrap.wrap(
    legible(text).replace('|', '| '),
    WIDTH,
    initial_indent=f'{name:{INDENT - 1}} ',
    subsequent_indent=' ' * INDENT,
    break_on_hyphens=False,
  )
  return [line.replace('| ', '|') for line in lines]


def _score(scored: Scored) -> str:
  result = scored.result
  return (
    f'{result.sacrebleu.score:6.2f} sacreBLEU, step {result.step:>7,}, average '
    f'{len(result.averaged):>2}, beam {result.beam}, alpha {result.alpha}: '
    f'{legible(scored.run_with_parent)}'
  )
