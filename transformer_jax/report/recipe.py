"""Measures averaging, beam, alpha (section 6.1) and label smoothing (section 5.4).

Each of these pieces is measured by results that differ in it alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.report import comparable, paper
from transformer_jax.report.page import heading, paragraph, table
from transformer_jax.report.results import Scored
from transformer_jax.report.table3 import Compare, combine, p_text
from transformer_jax.scoring.significance import spread


class Pieces(NamedTuple):
  """The pieces of the recipe that a result was made with."""

  averaged: int
  beam: int
  alpha: float
  epsilon_ls: float


AS_CONFIG = ('average_last', 'beam', 'alpha')  # the first three, as configs name them
SMOOTHED = paper.BASE['epsilon_ls']
NAMES = Pieces('checkpoints averaged', 'beam', 'alpha', 'epsilon_ls')
HEADER = ('piece', 'after steps', "config's value", 'other value', 'seeds')
HEADER += ('BLEU', "BLEU with the config's", 'difference', 'paired p')


def pieces(scored: Scored) -> Pieces:
  """Returns the pieces of a result."""
  result, epsilon = scored.result, scored.config['epsilon_ls']
  return Pieces(len(result.averaged), result.beam, result.alpha, epsilon)


def as_configured(scored: Scored) -> bool:
  """Tells whether a result was averaged and decoded as the run's config says."""
  return pieces(scored)[:3] == tuple(scored.config[key] for key in AS_CONFIG)


def recipe(results: Sequence[Scored], compare: Compare) -> list[str]:
  """Returns a table for each test set that has results which differ in one piece."""
  tables: dict[tuple[str, str], list[list[str]]] = {}
  for members in _groups(results):
    name = members[0].data['name'], members[0].test_set
    for change, pairs in _pairs(members).items():
      tables.setdefault(name, []).append(_row(*change, pairs, compare))
  if not tables:
    return []
  blocks = [heading(2, 'Pieces of the recipe')]
  for (corpus, test_set), lines in tables.items():
    blocks += [heading(3, f'{corpus}, {test_set}'), table(HEADER, lines)]
  note = (
    "Each result against that of the same seed with the config's value, after as many "
    'steps, or after the last step of each seed where these differ. '
    "BLEU is the paper-style one; paired p is sacreBLEU's bootstrap over the "
    'sentences, twice the mean of several seeds; ± is half the 95 % interval over '
    'seeds.'
  )
  return [*blocks, paragraph(note)]


def _groups(results: Sequence[Scored]) -> list[list[Scored]]:
  """Returns results that may be compared: of equal steps, or each of its run's last.

  Where patience ends runs, each seed has another last step.
  """
  run = lambda scored: (*_rest(scored), scored.seed, scored.config['epsilon_ls'])
  last: dict[tuple, int] = {}
  for scored in results:
    last[run(scored)] = max(scored.result.step, last.get(run(scored), 0))
  groups: dict[tuple, list[Scored]] = {}
  ends: dict[tuple, list[Scored]] = {}
  for scored in results:
    rest, step = _rest(scored), scored.result.step
    groups.setdefault((*rest, step), []).append(scored)
    if step == last[run(scored)]:
      ends.setdefault(rest, []).append(scored)
  several = [one for one in ends.values() if len({s.result.step for s in one}) > 1]
  return [*groups.values(), *several]


def _rest(scored: Scored) -> tuple:
  """Returns all that a result depends on except the pieces, the seed and the step."""
  cells = comparable.cells(scored.config) | {'epsilon_ls': None}
  return comparable.conditions(scored), *cells.items(), scored.result.split


Change = tuple[str, float, float]  # name of the piece, usual value, other value


def _pairs(members: Sequence[Scored]) -> dict[Change, list[tuple[Scored, Scored]]]:
  """Returns pairs of a result and the one without the change, one pair a seed."""
  usual: dict[tuple, Scored] = {}
  for scored in members:
    if as_configured(scored):
      usual.setdefault((scored.seed, scored.config['epsilon_ls']), scored)
  pairs: dict[tuple[Change, int], tuple[Scored, Scored]] = {}
  for scored in members:
    seed, epsilon = scored.seed, scored.config['epsilon_ls']
    own = usual.get((seed, epsilon))
    against = usual.get((seed, SMOOTHED)) if own is scored else own
    if against is not None:
      both = zip(NAMES, pieces(against), pieces(scored), strict=True)
      differ = [change for change in both if change[1] != change[2]]
      if len(differ) == 1:
        pairs.setdefault((differ[0], seed), (scored, against))
  by_change: dict[Change, list[tuple[Scored, Scored]]] = {}
  for change, seed in sorted(pairs, key=lambda k: (NAMES.index(k[0][0]), k)):
    by_change.setdefault(change, []).append(pairs[change, seed])
  return by_change


def _row(
  name: str,
  old: float,
  new: float,
  pairs: Sequence[tuple[Scored, Scored]],
  compare: Compare,
) -> list[str]:
  scores = [[scored.bleu for scored in pair] for pair in pairs]
  steps = ', '.join(f'{n:,}' for n in sorted({pair[0].result.step for pair in pairs}))
  mean = lambda n: sum(pair[n] for pair in scores) / len(scores)
  difference = spread([ours - usual for ours, usual in scores])
  margin = '' if difference.margin is None else f' ± {difference.margin:.2f}'
  p = combine(compare(*pair) for pair in pairs)
  return [
    name,
    steps,
    f'{old:g}',
    f'{new:g}',
    str(len(pairs)),
    f'{mean(0):.2f}',
    f'{mean(1):.2f}',
    f'{difference.mean:+.2f}{margin}',
    p_text(p),
  ]
