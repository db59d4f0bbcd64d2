"""What the runs say in few lines: at the top of a report, and on a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from transformer_jax.report import claims, differences, overview, paper, tables
from transformer_jax.report.blocks import Facts, legible
from transformer_jax.report.differences import Differences
from transformer_jax.report.grouping import Group
from transformer_jax.report.results import Found, Scored

WIDTH, LINES, INDENT = 96, 22, 15  # of a terminal
KINDS = 3  # of scores, of which the best is told
Study = tuple[Group, Differences]


def facts(found: Found, studies: Sequence[Study], left_out: Sequence[str]) -> Facts:
  """Best scores; base, claims and missing rows of each Table 3; what is left out.

  `left_out` has the reasons, but for those of the studies.
  """
  items = []
  marks = overview.marks(found.scored)
  for scored in overview.best(found.scored)[:KINDS]:
    items.append(('Best score', _best(scored, marks[overview.kind(scored)])))
  for group, differ in studies:
    if group.table_3:
      items += _of_table_3(group, differ, several=len(studies) > 1)
  if found.unscored:
    names = ', '.join(one.run for one in found.unscored)
    items.append(('Not evaluated', names))
  reasons = [*(why for group, _ in studies for why in group.left_out), *left_out]
  if reasons:
    rest = f' (and {len(reasons) - 1} more in the report)' if len(reasons) > 1 else ''
    items.append(('Left out', reasons[0] + rest))
  return Facts(items)


def _best(scored: Scored, mark: str) -> str:
  result = scored.result
  sacre, papers = (
    f'{score.score:.2f} {name} [{score.interval[0]:.1f}, {score.interval[1]:.1f}]'
    for score, name in ((result.sacrebleu, 'sacreBLEU'), (result.paper_bleu, 'BLEU'))
  )
  return (
    f'{sacre}, {papers}{mark} on {scored.test_set} by {scored.run_and_origin}, step '
    f'{result.step:,}, average {len(result.averaged)}, beam {result.beam}, alpha '
    f'{result.alpha}'
  )


def _of_table_3(
  group: Group, differ: Differences, several: bool
) -> Iterator[tuple[str, str]]:
  where = f'{group.corpus}: ' if several else ''
  if 'base' in group.table_3:
    base = [*group.table_3].index('base')
    rows = group.table_3.values()
    ppl, bleu = (
      tables.column([[*map(read, row)] for row in rows])[base]
      for read in differences.READ
    )
    seeds = len(group.table_3['base'])
    text = f'{where}Base, {seeds} seed{"s" if seeds > 1 else ""}: perplexity {ppl}, '
    yield 'Table 3', f'{text}BLEU {bleu}. {differences.smallest(group)}'
  if len(differ) > 1:
    yield 'Claims', where + claims.counted(claims.judge(differ))
  if missing := [row for row in paper.TABLE_3 if row not in group.table_3]:
    yield 'Missing rows', where + ', '.join(missing)


def on_terminal(top: Facts, scored: Sequence[Scored], studies: Sequence[Study]) -> str:
  """At most LINES lines of WIDTH columns: the facts, claims or results, footnotes."""
  lines = [line for fact in top.items for line in _wrapped(*fact)]
  notes = overview.footnotes(scored)[-1].items if scored else []
  notes = [line for note in notes[:KINDS] for line in _wrapped('', note)]
  if len(studies) == 1 and len(studies[0][1]) > 1:
    details = [*_claims(studies[0][1])]
  else:
    details = [*_results(overview.representatives(scored))]
  room = max(1, LINES - len(lines) - len(notes))
  if len(details) > room:
    details[room - 1 :] = [f'... and {len(details) - room + 1} lines more']
  return '\n'.join([*lines, *details, *notes][:LINES]) + '\n'


def _wrapped(name: str, text: str) -> list[str]:
  """Few lines of WIDTH columns; signatures are parted between their fields alone."""
  lines = textwrap.wrap(
    legible(text).replace('|', '| '),
    WIDTH,
    initial_indent=f'{name:{INDENT - 1}} ',
    subsequent_indent=' ' * INDENT,
    break_on_hyphens=False,
    max_lines=5,
    placeholder=' ...',
  )
  return [line.replace('| ', '|') for line in lines]


def _claims(differ: Differences) -> Iterator[str]:
  for one in claims.judge(differ):
    yield from _wrapped(f'  {one.verdict}', claims.in_short(one, differ))


def _results(found: Sequence[Scored]) -> Iterator[str]:
  for scored in found:
    result = scored.result
    line = f'{scored.sacrebleu:6.2f} sacreBLEU, step {result.step:>7,}, average '
    line += f'{len(result.averaged):>2}, beam {result.beam}, alpha {result.alpha}: '
    yield (line + legible(scored.run_and_origin))[:WIDTH]
