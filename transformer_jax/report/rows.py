"""What makes runs comparable, and whether a run's cells are those of its row."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.results import Scored
from transformer_jax.runs import config_checks

Cells = dict[str, float | str]  # of Table 3, by the names of its columns

CELLS = tuple(paper.BASE)
# Settings that may differ between runs of one table, beside the cells: the row, the
# seed, how the result was decoded (which requirements.py looks at), and what has no
# influence on a result. A corpus counts by its identity, and so neither by its name nor
# by how it was cleaned.
FREE = {'row', 'epsilon_ls', 'train_steps', 'seed', 'average_last', 'beam', 'alpha'}
FREE |= {'checkpoint_every_steps', 'keep_checkpoints', 'log_every_steps'}
FREE |= {'decode_tokens', 'decode_dtype'}
FREE_OF_DATA = {'name', 'cleaning', 'raw_dir'}


class Conditions(NamedTuple):
  """What comparable runs share."""

  corpus: str  # its identity
  signatures: tuple[str, str]  # of the scorers
  settings: str  # all of the config but the cells and FREE, as JSON


def conditions(scored: Scored) -> Conditions:
  whole = config_checks.completed(scored.config)
  config = {k: v for k, v in whole.items() if k not in FREE}
  config['data'] = {k: v for k, v in config['data'].items() if k not in FREE_OF_DATA}
  config['model'] = {k: v for k, v in config['model'].items() if k not in CELLS}
  settings = json.dumps(config, sort_keys=True)
  return Conditions(scored.result.corpus, scored.signatures, settings)


def cells(config: dict) -> Cells:
  return {
    cell: config['model'][cell] if cell in config['model'] else config[cell]
    for cell in CELLS
  }


def label(row: str, values: Cells) -> str:
  """A row and the first of the cells that it fills in: 'C4: d_model 32'."""
  if row in ('base', 'big'):
    return row
  cell = next(iter(paper.TABLE_3[row].cells))
  return f'{row}: {cell} {_text(values[cell])}'


def cells_of_row(row: str, base: Cells, french: bool) -> Cells:
  """The cells that a row of Table 3 has for this base, which may be smaller.

  A number is scaled so that its ratio to the base's number is the same as in the paper.
  """
  expected = dict(base)
  for cell, printed in paper.TABLE_3[row].cells.items():
    if isinstance(printed, str):
      expected[cell] = printed
    else:
      expected[cell] = base[cell] * (printed / paper.BASE[cell])
  if row == 'big' and french:
    expected['P_drop'] = base['P_drop']  # section 6.1
  return expected


def misfit(scored: Scored, base: Cells) -> str:
  """In which cells a run is not its row beside this base; '' if it is."""
  french = scored.config['data']['target_language'] == 'fr'
  ours = cells(scored.config)
  expected = cells_of_row(scored.result.row, base, french)
  return ', '.join(
    f'{cell} is {ours[cell]}, not {_text(expected[cell])}'
    for cell in CELLS
    if not _same(ours[cell], expected[cell])
  )


def _same(ours: float | str, expected: float | str) -> bool:
  if isinstance(ours, str) or isinstance(expected, str):
    return ours == expected
  return math.isclose(ours, expected)


def _text(value: float | str) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def find_base(members: Sequence[Scored]) -> Cells | None:
  """The base that fits the most rows. It fits a row if misfit() is '' for a run of it.

  Candidates are the cells of the runs of row base, and the paper's base. The paper's
  base wins ties, and on the paper's corpus it counts as fitting at least one row. None
  if no base fits a row, or several others fit equally many.
  """
  candidates = [paper.BASE]
  for scored in members:
    if scored.result.row == 'base' and cells(scored.config) not in candidates:
      candidates.append(cells(scored.config))
  fits = [
    len({s.result.row for s in members if not misfit(s, base)}) for base in candidates
  ]
  if members[0].config['data']['reader'] == 'wmt14':
    fits[0] = max(fits[0], 1)
  most = max(fits)
  if not most or (fits[0] < most and fits.count(most) > 1):
    return None
  return candidates[fits.index(most)]
