"""Groups results that one table may compare: equal conditions, and one base."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.config import KEYS, Tag, flat, tagged
from transformer_jax.data.corpus import NEWSTEST
from transformer_jax.report import paper
from transformer_jax.report.results import Evaluation

Cells = dict[str, float | str]  # of Table 3, by the names of its columns

CELLS = tuple(name.rpartition('.')[2] for name in tagged(Tag.CELL))
# Keys that cannot change a score; the identity of the corpus stands for those of CORPUS
# alone.
NO_INFLUENCE = frozenset(
  name for name, key in KEYS.items() if key.tags in ({Tag.CORPUS}, {Tag.BOOKKEEPING})
)
# Keys in which runs of one table may differ: its subject, and how a result was decoded.
# unmet() checks the latter for each table.
VARIED = frozenset({*tagged(Tag.CELL), *tagged(Tag.VARIES)})


class Conditions(NamedTuple):
  """What comparable runs share."""

  corpus: str  # its identity
  signatures: tuple[str, str]  # of the scorers
  settings: str  # all of the config but VARIED and NO_INFLUENCE, as JSON


class Group(NamedTuple):
  """Runs that can be compared; each row holds one result for each of its seeds."""

  base: Cells
  table_3: dict[str, list[Evaluation]]
  table_2: dict[str, list[Evaluation]]
  left_out: list[str]

  @property
  def members(self) -> list[Evaluation]:
    """The results of both tables."""
    tables = self.table_3, self.table_2
    return [one for table in tables for row in table.values() for one in row]

  @property
  def corpus(self) -> str:
    """Returns the name of the corpus."""
    return self.members[0].data['name']


def conditions(run: Evaluation) -> Conditions:
  """Returns what must be equal of two results that are compared."""
  config = flat(run.config)
  settings = {key: config[key] for key in config.keys() - VARIED - NO_INFLUENCE}
  text = json.dumps(settings, sort_keys=True)
  return Conditions(run.corpus, run.signatures, text)


def differing_settings(runs: Sequence[Evaluation]) -> dict[str, dict[str, list[str]]]:
  """Returns each key in which the runs' configs differ, with the runs of each value."""
  configs = {run.name_with_parent: flat(run.config) for run in runs}
  settings: dict[str, dict[str, list[str]]] = {}
  for key in dict.fromkeys(key for config in configs.values() for key in config):
    values = settings.setdefault(key, {})
    for name, config in configs.items():
      values.setdefault(f'{config.get(key)}', []).append(name)
  return {key: values for key, values in settings.items() if len(values) > 1}


def cells(config: dict) -> Cells:
  """Returns a config's values of Table 3's columns."""
  return {
    cell: config['model'][cell] if cell in config['model'] else config[cell]
    for cell in CELLS
  }


def label(row: str, values: Cells) -> str:
  """Returns a row's name and the first cell that it fills in: 'C4: d_model 32'."""
  if row in ('base', 'big'):
    return row
  cell = next(iter(paper.TABLE_3[row].cells))
  return f'{row}: {cell} {_text(values[cell])}'


def cells_of_row(row: str, base: Cells, french: bool) -> Cells:
  """Returns a row's cells for this base, which may be smaller than the paper's.

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


def wrong_cells(run: Evaluation, base: Cells) -> str:
  """Returns the cells in which a run differs from its row; '' if it does in none."""
  french = run.data['target_language'] == 'fr'
  ours = cells(run.config)
  expected = cells_of_row(run.row, base, french)
  return ', '.join(
    f'{cell} is {ours[cell]}, not {_text(expected[cell])}'
    for cell in CELLS
    if ours[cell] != expected[cell]
    and (isinstance(ours[cell], str) or not math.isclose(ours[cell], expected[cell]))
  )


def _text(value: float | str) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def find_base(members: Sequence[Evaluation]) -> Cells | None:
  """Returns the base that fits the most rows: those with a run without wrong_cells().

  Candidates are the paper's base and the cells of the runs of row base; of equals it is
  the first. If none fits any row, it is the paper's base on WMT14, and None elsewhere.
  """
  runs = [cells(run.config) for run in members if run.row == 'base']
  fits = lambda base: len({s.row for s in members if not wrong_cells(s, base)})
  base = max([paper.BASE, *runs], key=fits)
  return base if fits(base) or members[0].data['reader'] == 'wmt14' else None


def group(results: Sequence[Evaluation]) -> tuple[list[Group], list[str]]:
  """Returns groups of comparable runs, and reasons why other runs are in none.

  Runs of no row are in neither.

  Args:
    results: of runs with distinct names.
  """
  alike: dict[Conditions, list[Evaluation]] = {}
  groups, left_out = [], []
  for run in results:
    if run.row in paper.TABLE_3:
      alike.setdefault(conditions(run), []).append(run)
    elif run.row is not None:
      left_out.append(f'{run.name}: Table 3 has no row {run.row}')
  for members in alike.values():
    base = find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(run.name for run in members))
      left_out.append(
        f'{names}: no base to compare with: no run of row base has the same content of '
        f'{members[0].data["name"]}, the same scorer and settings'
      )
      continue
    own = _group(base, members)
    if own.table_2 or own.table_3:
      groups.append(own)
    else:
      left_out += own.left_out
  return groups, left_out


def _group(base: Cells, members: Sequence[Evaluation]) -> Group:
  own = Group(base, {}, {}, [])
  # A run has several results; one that was prolonged also has results of fewer steps.
  by_run: dict[tuple[str, str, int], list[Evaluation]] = {}
  for run in members:
    if wrong := wrong_cells(run, base):
      reason = f'{run.name} is not row {run.row}, as its config says: {wrong}'
      own.left_out.extend({reason} - {*own.left_out})
    else:
      is_test = run.result.split == 'test' and run.row in paper.TABLE_2_NAMES
      key = run.name, run.row, 2 if is_test else 3
      by_run.setdefault(key, []).append(run)
  for (name, row, number), results in by_run.items():
    table = own.table_2 if number == 2 else own.table_3
    best = min(results, key=lambda run: len([*unmet(run, number)]))
    reasons = '; '.join(unmet(best, number))
    same_seed = [run.name for run in table.get(row, []) if run.seed == best.seed]
    if same_seed and not reasons:
      reasons = f'seed {best.seed} is in the table already, from {same_seed[0]}'
    if reasons:
      own.left_out.append(f'{name} (row {row}) is not in Table {number}: {reasons}')
    else:
      table.setdefault(row, []).append(best)
  return own


def unmet(run: Evaluation, table: int) -> Iterator[str]:
  """Yields what keeps a result out of Table 2 or 3.

  Table 2 takes newstest2014 with 5 (base) or 20 (big) checkpoints averaged, Table 3 dev
  with the last checkpoint alone.
  """
  result = run.result
  pairs, averaged = ['en-de'], 1
  if table == 2:
    pairs, averaged = [*paper.VOCABULARY], paper.TRAINING[run.row].averaged
  if run.pair not in pairs:
    yield f'{run.pair}, not {" or ".join(pairs)}'
  if table == 2 and run.test_set != paper.TEST_SETS['test']:
    yield f'scored on {run.test_set}, not {paper.TEST_SETS["test"]}'
  if table == 3 and result.split != 'dev':
    yield f'scored on {run.test_set}, which is {result.split}, not dev'
  sentences, lines = NEWSTEST.get(run.test_set), run.translations
  if sentences and lines is not None and len(lines) != sentences:
    yield f'{len(lines)} translations, {run.test_set} has {sentences} sentences'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != averaged:
    yield f'{len(result.averaged)} checkpoints averaged, not {averaged}'
  if result.step != run.config['train_steps']:
    yield f'step {result.step:,} of {run.config["train_steps"]:,}'
  if result.lowercase:
    yield 'scored in lower case'
