"""Runs of Table 3's rows -> groups that can be compared, and why others are in none."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.report import paper, requirements, rows
from transformer_jax.report.results import Scored


class Group(NamedTuple):
  """Runs that can be compared; each row holds one result for each of its seeds."""

  conditions: rows.Conditions
  base: rows.Cells
  table_3: dict[str, list[Scored]]
  table_2: dict[str, list[Scored]]
  left_out: list[str]

  @property
  def any(self) -> Scored:
    return next(s for t in (self.table_3, self.table_2) for r in t.values() for s in r)

  @property
  def corpus(self) -> str:
    """The name of the corpus."""
    return self.any.config['data']['name']


def group(found: Sequence[Scored]) -> tuple[list[Group], list[str]]:
  """Comparable runs, and why others are left out; runs of no row are in neither.

  Args:
    found: runs with distinct names.
  """
  alike: dict[rows.Conditions, list[Scored]] = {}
  groups, left_out = [], []
  for scored in found:
    if scored.result.row in paper.TABLE_3:
      alike.setdefault(rows.conditions(scored), []).append(scored)
    elif scored.result.row is not None:
      left_out.append(f'{scored.run}: Table 3 has no row {scored.result.row}')
  for conditions, members in alike.items():
    base = rows.find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(scored.run for scored in members))
      left_out.append(
        f'{names}: no base to compare with: no run of row base has the same content '
        f'of {members[0].config["data"]["name"]}, the same scorer and settings; or '
        'there are several whose cells differ'
      )
      continue
    made = _group(conditions, base, members)
    if made.table_2 or made.table_3:
      groups.append(made)
    else:
      left_out += made.left_out
  return groups, left_out


def _group(
  conditions: rows.Conditions, base: rows.Cells, members: Sequence[Scored]
) -> Group:
  made = Group(conditions, base, {}, {}, [])
  by_run: dict[tuple[str, str, str], list[Scored]] = {}
  for scored in members:  # a run that was prolonged also has results of fewer steps
    key = scored.run, scored.result.row, rows.misfit(scored, base)
    by_run.setdefault(key, []).append(scored)
  for (run, row, misfit), results in by_run.items():
    if misfit:
      made.left_out.append(f'{run} is not row {row}, as its config says: {misfit}')
      continue
    tables = [('Table 3', made.table_3, requirements.unmet_by_table_3, results)]
    tested = [s for s in results if s.result.split == 'test']
    if row in paper.TABLE_2_NAMES and tested:
      tables.append(('Table 2', made.table_2, requirements.unmet_by_table_2, tested))
      if len(tested) == len(results):
        del tables[0]
    for name, table, requirement, candidates in tables:
      unmet = [[*requirement(scored)] for scored in candidates]
      best = min(range(len(unmet)), key=lambda n: len(unmet[n]))
      if unmet[best]:
        why = '; '.join(unmet[best])
        made.left_out.append(f'{run} (row {row}) is not in {name}: {why}')
      else:
        made.left_out.extend(_add(table, row, candidates[best], name))
  return made


def _add(
  table: dict[str, list[Scored]], row: str, scored: Scored, name: str
) -> Iterator[str]:
  """Adds a result unless its seed is there; says so if that is another result."""
  there = table.setdefault(row, [])
  same = [other for other in there if other.seed == scored.seed]
  if not same:
    there.append(scored)
  elif same[0].result != scored.result:
    yield (
      f'{scored.run} (row {row}) is not in {name}: seed {scored.seed} is there '
      f'already, from {same[0].run}'
    )
