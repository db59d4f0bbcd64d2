"""Results -> the tables they belong in, and why the others belong in none."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer_jax import paper
from transformer_jax.report import rows, rules
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


def place(found: Sequence[Scored], bases: Sequence[str]) -> tuple[list, list[str]]:
  """Comparable runs by ground, and what cannot be placed; `bases` are names of runs."""
  by_ground: dict[Ground, list[Scored]] = {}
  for scored in found:
    by_ground.setdefault(rows.ground(scored), []).append(scored)
  placed, left_out = [], []
  for ground, members in by_ground.items():
    named = [rows.cells(s.config) for s in members if s.run in bases]
    different = [rows.cells(s.config) for s in members]
    base = named[0] if named else rows.base_of(different, _french(members[0]))
    if base is not None:
      placed.append(_place(ground, base, members))
    elif any(cells != different[0] for cells in different):
      names = ', '.join(dict.fromkeys(s.run for s in members))
      left_out.append(
        f'{names}: which of them is the base is open; --base=RUN tells it'
      )
  with_rows = [p for p in placed if p.table_2 or p.table_3]
  without = [reason for p in placed if p not in with_rows for reason in p.left_out]
  return with_rows, left_out + without


def _place(ground: Ground, base: dict, members: Sequence[Scored]) -> Placed:
  placed = Placed(ground, base, {}, {}, [])
  runs: dict[str, list[Scored]] = {}
  for scored in members:
    runs.setdefault(scored.run, []).append(scored)
  for run, results in runs.items():
    row = rows.row_of(base, rows.cells(results[0].config), _french(results[0]))
    if row is None:
      cells = rows.cells(results[0].config)
      differ = ', '.join(cell for cell in cells if cells[cell] != base[cell])
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
