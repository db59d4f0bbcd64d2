"""Which results stand in one table: equal conditions, cells of their row, one base."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.results import Scored
from transformer_jax.runs.config import flat

Cells = dict[str, float | str]  # of Table 3, by the names of its columns

CELLS = tuple(paper.BASE)
# Settings without influence on a result. A corpus counts by its identity, so neither by
# its name nor by how it was cleaned; checkpoints count where they were averaged, which
# stands in the result.
NO_INFLUENCE = frozenset(
  {
    'data.name',
    'data.raw_dir',
    'data.cleaning.off',
    'data.cleaning.max_characters',
    'data.cleaning.max_ratio',
    'data.cleaning.min_alphanumeric',
    'data.cleaning.drop_untranslated',
    'checkpoint_every_steps',
    'keep_checkpoints',
    'best_by',
    'bleu_every_checkpoints',
    'bleu_sentences',
    'log_every_steps',
    'decode_tokens',
  }
)
# Settings in which runs of one table may differ: its subject, and how a result was
# decoded, which each table checks (unmet_by_table_3).
VARIED = frozenset(
  {'row', 'seed', 'average_last', 'beam', 'alpha', 'decode_dtype'}
  | {'epsilon_ls', 'train_steps'}
  | {f'model.{cell}' for cell in CELLS}
)


class Conditions(NamedTuple):
  """What comparable runs share."""

  corpus: str  # its identity
  signatures: tuple[str, str]  # of the scorers
  settings: str  # all of the config but VARIED and NO_INFLUENCE, as JSON


class Group(NamedTuple):
  """Runs that can be compared; each row holds one result for each of its seeds."""

  conditions: Conditions
  base: Cells
  table_3: dict[str, list[Scored]]
  table_2: dict[str, list[Scored]]
  left_out: list[str]

  @property
  def members(self) -> list[Scored]:
    tables = self.table_3, self.table_2
    return [one for table in tables for row in table.values() for one in row]

  @property
  def corpus(self) -> str:
    """The name of the corpus."""
    return self.members[0].data['name']


def conditions(scored: Scored) -> Conditions:
  config = flat(scored.config)
  settings = {key: config[key] for key in config.keys() - VARIED - NO_INFLUENCE}
  text = json.dumps(settings, sort_keys=True)
  return Conditions(scored.result.corpus, scored.signatures, text)


def differing_settings(group: Group) -> list[str]:
  """The config's keys in which runs of a group differ, in the config's order."""
  configs = [flat(scored.config) for scored in group.members]
  return [
    key for key in configs[0] if any(one[key] != configs[0][key] for one in configs)
  ]


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


def wrong_cells(scored: Scored, base: Cells) -> str:
  """In which cells a run is not its row beside this base; '' if it is."""
  french = scored.data['target_language'] == 'fr'
  ours = cells(scored.config)
  expected = cells_of_row(scored.result.row, base, french)
  return ', '.join(
    f'{cell} is {ours[cell]}, not {_text(expected[cell])}'
    for cell in CELLS
    if not _equal(ours[cell], expected[cell])
  )


def _equal(ours: float | str, expected: float | str) -> bool:
  if isinstance(ours, str) or isinstance(expected, str):
    return ours == expected
  return math.isclose(ours, expected)


def _text(value: float | str) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def find_base(members: Sequence[Scored]) -> Cells | None:
  """The base that fits the most rows: those with a run that has no wrong_cells().

  Candidates are the cells of the runs of row base, and the paper's base. The paper's
  base wins ties, and on the paper's corpus it counts as fitting at least one row. None
  if no base fits a row, or several others fit equally many.
  """
  candidates = [paper.BASE]
  for scored in members:
    if scored.result.row == 'base' and cells(scored.config) not in candidates:
      candidates.append(cells(scored.config))
  fits = [
    len({s.result.row for s in members if not wrong_cells(s, base)})
    for base in candidates
  ]
  if members[0].data['reader'] == 'wmt14':
    fits[0] = max(fits[0], 1)
  most = max(fits)
  if not most or (fits[0] < most and fits.count(most) > 1):
    return None
  return candidates[fits.index(most)]


def group(results: Sequence[Scored]) -> tuple[list[Group], list[str]]:
  """Comparable runs, and why others are left out; runs of no row are in neither.

  Args:
    results: of runs with distinct names.
  """
  alike: dict[Conditions, list[Scored]] = {}
  groups, left_out = [], []
  for scored in results:
    if scored.result.row in paper.TABLE_3:
      alike.setdefault(conditions(scored), []).append(scored)
    elif scored.result.row is not None:
      left_out.append(f'{scored.run}: Table 3 has no row {scored.result.row}')
  for shared, members in alike.items():
    base = find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(scored.run for scored in members))
      left_out.append(
        f'{names}: no base to compare with: no run of row base has the same content of '
        f'{members[0].data["name"]}, the same scorer and settings; or there are '
        'several whose cells differ'
      )
      continue
    own = _group(shared, base, members)
    if own.table_2 or own.table_3:
      groups.append(own)
    else:
      left_out += own.left_out
  return groups, left_out


def _group(shared: Conditions, base: Cells, members: Sequence[Scored]) -> Group:
  own = Group(shared, base, {}, {}, [])
  by_run: dict[tuple[str, str, str], list[Scored]] = {}
  for scored in members:  # a run that was prolonged also has results of fewer steps
    key = scored.run, scored.result.row, wrong_cells(scored, base)
    by_run.setdefault(key, []).append(scored)
  for (run, row, wrong), results in by_run.items():
    if wrong:
      own.left_out.append(f'{run} is not row {row}, as its config says: {wrong}')
      continue
    tables = [('Table 3', own.table_3, unmet_by_table_3, results)]
    tested = [s for s in results if s.result.split == 'test']
    if row in paper.TABLE_2_NAMES and tested:
      tables.append(('Table 2', own.table_2, unmet_by_table_2, tested))
      if len(tested) == len(results):
        del tables[0]
    for name, table, requirement, candidates in tables:
      unmet = [[*requirement(scored)] for scored in candidates]
      best = min(range(len(unmet)), key=lambda n: len(unmet[n]))
      if unmet[best]:
        why = '; '.join(unmet[best])
        own.left_out.append(f'{run} (row {row}) is not in {name}: {why}')
      else:
        own.left_out.extend(_add(table, row, candidates[best], name))
  return own


def _add(
  table: dict[str, list[Scored]], row: str, scored: Scored, name: str
) -> Iterator[str]:
  """Adds a result unless its seed is listed; says so if that is another result."""
  listed = table.setdefault(row, [])
  same = [other for other in listed if other.seed == scored.seed]
  if not same:
    listed.append(scored)
  elif same[0].result != scored.result:
    yield (
      f'{scored.run} (row {row}) is not in {name}: seed {scored.seed} is there '
      f'already, from {same[0].run}'
    )


def unmet_by_table_3(scored: Scored) -> Iterator[str]:
  """What keeps a result from Table 3: dev, with the last checkpoint alone."""
  if scored.pair != 'en-de':
    yield f'{scored.pair}, not en-de'
  if scored.result.split != 'dev':
    yield f'scored on {scored.test_set}, which is {scored.result.split}, not dev'
  yield from _unmet(scored, 1)


def unmet_by_table_2(scored: Scored) -> Iterator[str]:
  """What keeps one from Table 2: newstest2014, with 5 (base) or 20 (big) averaged."""
  if scored.pair not in paper.VOCABULARY:
    yield f'{scored.pair}, not {" or ".join(paper.VOCABULARY)}'
  if scored.test_set != paper.TEST_SETS['test'][0]:
    yield f'scored on {scored.test_set}, not {paper.TEST_SETS["test"][0]}'
  yield from _unmet(scored, paper.TRAINING[scored.result.row].averaged)


def _unmet(scored: Scored, average: int) -> Iterator[str]:
  """What of either table's requirements a result does not meet."""
  result, lines = scored.result, scored.translations
  for name, sentences in paper.TEST_SETS.values():
    if scored.test_set == name and lines is not None and len(lines) != sentences:
      yield f'{len(lines)} translations, {name} has {sentences} sentences'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != average:
    yield f'{len(result.averaged)} checkpoints averaged, not {average}'
  if result.step != scored.config['train_steps']:
    yield f'step {result.step:,} of {scored.config["train_steps"]:,}'
  if result.lowercase:
    yield 'scored in lower case'
