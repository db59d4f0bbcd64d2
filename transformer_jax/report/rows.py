"""Which row of Table 3 a run is: by the cells in which it differs from its base."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.results import KINDS, Scored

CELLS = tuple(paper.BASE)
SIZES = tuple(cell for cell in CELLS if cell not in ('epsilon_ls', 'train_steps'))
# What may differ between runs that stand in one table: the cells and seeds; how a
# result was decoded, which the tables' rules look at; what no result depends on.
FREE = {'epsilon_ls', 'train_steps', 'seed', 'average_last', 'beam', 'alpha'}
FREE |= {'checkpoint_every_steps', 'keep_checkpoints', 'log_every_steps'}
FREE |= {'decode_tokens', 'decode_dtype', 'row'}


class Ground(NamedTuple):
  """Runs that can be compared: one corpus, vocabulary, test set, scorer and recipe."""

  name: str  # of the corpus
  corpus: str  # its hash
  signatures: tuple[str, str]
  recipe: str  # JSON of all other settings


def cells(config: dict) -> dict[str, float | str]:
  return {cell: (config['model'] if cell in SIZES else config)[cell] for cell in CELLS}


def ground(scored: Scored) -> Ground:
  config = {k: v for k, v in scored.config.items() if k not in FREE}
  config['model'] = {k: v for k, v in config['model'].items() if k not in CELLS}
  signatures = tuple(scored.result[kind]['signature'] for kind in KINDS)
  recipe = json.dumps(config, sort_keys=True)
  return Ground(scored.config['corpus'], scored.result['corpus'], signatures, recipe)


def relation(base: dict, row: dict) -> frozenset[tuple[str, float | str]]:
  """What a row does to its base: a factor for a number, and the name it puts."""
  differ = (cell for cell in row if row[cell] != base[cell])
  return frozenset((cell, _factor(base[cell], row[cell])) for cell in differ)


def _factor(base: float | str, value: float | str) -> float | str:
  return value if isinstance(value, str) or not base else round(value / base, 6)


RELATIONS = {
  relation(paper.BASE, paper.BASE | row.cells): name
  for name, row in paper.TABLE_3.items()
}
# Section 6.1: for English to French, big drops as much as base.
BIG_FRENCH = paper.BASE | paper.TABLE_3['big'].cells | {'P_drop': paper.BASE['P_drop']}
FRENCH = RELATIONS | {relation(paper.BASE, BIG_FRENCH): 'big'}


def row_of(base: dict, row: dict, french: bool = False) -> str | None:
  """The row of Table 3 whose relation to its base is this one's to its."""
  made, known = relation(base, row), FRENCH if french else RELATIONS
  return known[made] if made in known else None


def base_of(members: Sequence[dict], french: bool = False) -> dict | None:
  """The cells that make most of these cells rows; None if that leaves it open.

  The paper's base is always a candidate: its rows are known without it.
  """
  different = [cells for n, cells in enumerate(members) if cells not in members[:n]]
  candidates = [paper.BASE, *(cells for cells in different if cells != paper.BASE)]
  recognised = [
    sum(row_of(base, other, french) is not None for other in different)
    for base in candidates
  ]
  best = max(recognised)
  if paper.BASE in different and recognised[0] == best:
    return paper.BASE
  if recognised[0] == best or (best > 1 and recognised.count(best) == 1):
    return candidates[recognised.index(best)]
  return None
