"""Results -> the tables they belong in, and why the others belong in none."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer_jax.report import paper, rows, rules
from transformer_jax.report.results import Scored
from transformer_jax.report.rows import Ground


class Placed(NamedTuple):
  """Comparable runs; each row holds one result for each of its seeds."""

  ground: Ground
  base: dict  # its cells
  table_3: dict[str, list[Scored]]
  table_2: dict[str, list[Scored]]
  left_out: list[str]

  @property
  def any(self) -> Scored:
    return next(s for t in (self.table_3, self.table_2) for r in t.values() for s in r)


def place(
  found: Sequence[Scored], bases: Sequence[pathlib.Path]
) -> tuple[list[Placed], list[str]]:
  """Comparable runs by ground, and what cannot be placed.

  Args:
    found: their runs' names are told apart.
    bases: runs that are base models, by as much of their paths as tells them.

  Raises:
    ValueError: one of `bases` is none of the runs.
  """
  for base in bases:
    if not any(_is_at(scored, base) for scored in found):
      names = ', '.join(dict.fromkeys(scored.run for scored in found))
      raise ValueError(f'--base={base}: no such run among {names}')
  by_ground: dict[Ground, list[Scored]] = {}
  for scored in found:
    by_ground.setdefault(rows.ground(scored), []).append(scored)
  placed, left_out = [], []
  for ground, members in by_ground.items():
    named = [s for s in members if any(_is_at(s, base) for base in bases)]
    different = [rows.cells(s.config) for s in members]
    if named:
      base = rows.cells(named[0].config)
    else:
      base = rows.base_of(different, _french(members[0]))
    if base is not None:
      placed.append(_place(ground, base, members))
    elif any(cells != different[0] for cells in different) or _seeds(members) > 1:
      names = ', '.join(dict.fromkeys(s.run for s in members))
      left_out.append(
        f'{names}: which of them is the base is open; --base=RUN tells it'
      )
  with_rows = [p for p in placed if p.table_2 or p.table_3]
  without = [reason for p in placed if p not in with_rows for reason in p.left_out]
  return with_rows, left_out + without


def _place(ground: Ground, base: dict, members: Sequence[Scored]) -> Placed:
  placed = Placed(ground, base, {}, {}, [])
  groups: dict[tuple, list[Scored]] = {}
  for scored in members:
    cells = rows.cells(scored.config)  # a prolonged run's are of two rows
    row = rows.row_of(base, cells, _french(scored))
    differ = () if row else (cell for cell in cells if cells[cell] != base[cell])
    groups.setdefault((scored.run, row, ', '.join(differ)), []).append(scored)
  for (run, row, differ), results in groups.items():
    if row is None:
      placed.left_out.append(f'{run}: no row of Table 3 differs from base so: {differ}')
      continue
    tables = [('Table 3', placed.table_3, rules.against_table_3, results)]
    tested = [s for s in results if s.result['split'] == 'test']
    if row in paper.TABLE_2_NAMES and tested:
      rule = lambda scored, row=row: rules.against_table_2(scored, row)
      tables.append(('Table 2', placed.table_2, rule, tested))
      if len(tested) == len(results):
        del tables[0]
    for name, table, rule, candidates in tables:
      reasons = {n: [*rule(scored)] for n, scored in enumerate(candidates)}
      best = min(reasons, key=lambda n: len(reasons[n]))
      if reasons[best]:
        why = '; '.join(reasons[best])
        placed.left_out.append(f'{run} (row {row}) is not in {name}: {why}')
      else:
        placed.left_out.extend(_add(table, row, candidates[best], name))
  return placed


def _is_at(scored: Scored, path: pathlib.Path) -> bool:
  """`path`: of the run or of the result, or the end of one; or the run's name."""
  ends = (given.parts[-len(path.parts) :] for given in (scored.home, scored.path))
  return scored.run == str(path) or path.parts in ends


def _seeds(members: Sequence[Scored]) -> int:
  return len({scored.config['seed'] for scored in members})


def _french(scored: Scored) -> bool:
  return scored.config['target_language'] == 'fr'


def _add(
  table: dict[str, list[Scored]], row: str, scored: Scored, name: str
) -> Iterator[str]:
  """One result for a seed; another run of the same seed is no second sample."""
  seed = scored.config['seed']
  same = [s for s in _of(table, row) if s.config['seed'] == seed]
  if not same:
    table.setdefault(row, []).append(scored)
  elif same[0].result != scored.result:
    yield (
      f'{scored.run} (row {row}) is not in {name}: seed {seed} is there already, '
      f'from {same[0].run}'
    )


def _of(table: dict[str, list[Scored]], row: str) -> Iterable[Scored]:
  return table[row] if row in table else ()
