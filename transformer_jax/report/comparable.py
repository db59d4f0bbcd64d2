"""Groups results that one table may compare: equal conditions, and one base."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer_jax.data.corpus import NEWSTEST
from transformer_jax.report import paper
from transformer_jax.report.results import Scored
from transformer_jax.runs.config import flat

Cells = dict[str, float | str]  # of Table 3, by the names of its columns

CELLS = tuple(paper.BASE)
# Settings without influence on a result. The corpus's identity is compared in place of
# its name and of how it was prepared, and init_from.sha256 in place of the parent's
# folder. Which checkpoints were averaged stands in the result. Its step keeps out a run
# that patience ended early.
NO_INFLUENCE = frozenset(
  {
    'data.name',
    'data.raw_dir',
    'data.files.train',
    'data.suffix',
    'data.train_pairs',
    'data.vocabulary_pairs',
    'data.character_coverage',
    'data.byte_fallback',
    'data.max_length',
    'data.seed',
    'data.cleaning.off',
    'data.cleaning.max_characters',
    'data.cleaning.max_ratio',
    'data.cleaning.min_alphanumeric',
    'data.cleaning.drop_untranslated',
    'checkpoint_every_steps',
    'keep_checkpoints',
    'best_by',
    'patience',
    'init_from.run',
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

  base: Cells
  table_3: dict[str, list[Scored]]
  table_2: dict[str, list[Scored]]
  left_out: list[str]

  @property
  def members(self) -> list[Scored]:
    """The results of both tables."""
    tables = self.table_3, self.table_2
    return [one for table in tables for row in table.values() for one in row]

  @property
  def corpus(self) -> str:
    """Returns the name of the corpus."""
    return self.members[0].data['name']


def conditions(scored: Scored) -> Conditions:
  """Returns what must be equal of two results that are compared."""
  config = flat(scored.config)
  settings = {key: config[key] for key in config.keys() - VARIED - NO_INFLUENCE}
  text = json.dumps(settings, sort_keys=True)
  return Conditions(scored.corpus, scored.signatures, text)


def differing_settings(group: Group) -> list[str]:
  """Returns the config's keys in which runs of a group differ."""
  configs = [flat(scored.config) for scored in group.members]
  return [
    key for key in configs[0] if any(one.get(key) != configs[0][key] for one in configs)
  ]


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


def wrong_cells(scored: Scored, base: Cells) -> str:
  """Returns the cells in which a run differs from its row; '' if it does in none."""
  french = scored.data['target_language'] == 'fr'
  ours = cells(scored.config)
  expected = cells_of_row(scored.row, base, french)
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
  """Returns the base that fits the most rows: those with a run without wrong_cells().

  Candidates are the paper's base and the cells of the runs of row base; of equals it is
  the first. If none fits any row, it is the paper's base on WMT14, and None elsewhere.
  """
  runs = [cells(scored.config) for scored in members if scored.row == 'base']
  fits = lambda base: len({s.row for s in members if not wrong_cells(s, base)})
  base = max([paper.BASE, *runs], key=fits)
  return base if fits(base) or members[0].data['reader'] == 'wmt14' else None


def group(results: Sequence[Scored]) -> tuple[list[Group], list[str]]:
  """Returns groups of comparable runs, and reasons why other runs are in none.

  Runs of no row are in neither.

  Args:
    results: of runs with distinct names.
  """
  alike: dict[Conditions, list[Scored]] = {}
  groups, left_out = [], []
  for scored in results:
    if scored.row in paper.TABLE_3:
      alike.setdefault(conditions(scored), []).append(scored)
    elif scored.row is not None:
      left_out.append(f'{scored.run}: Table 3 has no row {scored.row}')
  for members in alike.values():
    base = find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(scored.run for scored in members))
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


def _group(base: Cells, members: Sequence[Scored]) -> Group:
  own = Group(base, {}, {}, [])
  # A run has several results; one that was prolonged also has results of fewer steps.
  by_run: dict[tuple[str, str, bool], list[Scored]] = {}
  for scored in members:
    if wrong := wrong_cells(scored, base):
      reason = f'{scored.run} is not row {scored.row}, as its config says: {wrong}'
      own.left_out.extend({reason} - {*own.left_out})
    else:
      is_test = scored.result.split == 'test' and scored.row in paper.TABLE_2_NAMES
      by_run.setdefault((scored.run, scored.row, is_test), []).append(scored)
  for (run, row, is_test), results in by_run.items():
    unmet_by_table = unmet_by_table_2 if is_test else unmet_by_table_3
    table = own.table_2 if is_test else own.table_3
    best = min(results, key=lambda scored: len([*unmet_by_table(scored)]))
    reasons = [*unmet_by_table(best)]
    same_seed = [one for one in table.get(row, []) if one.seed == best.seed]
    if same_seed and not reasons:
      if same_seed[0].result == best.result:
        continue
      reasons = [f'seed {best.seed} is in the table already, from {same_seed[0].run}']
    if reasons:
      name = 'Table 2' if is_test else 'Table 3'
      own.left_out.append(f'{run} (row {row}) is not in {name}: {"; ".join(reasons)}')
    else:
      table.setdefault(row, []).append(best)
  return own


def unmet_by_table_3(scored: Scored) -> Iterator[str]:
  """Yields what keeps a result out of Table 3: dev, the last checkpoint alone."""
  if scored.pair != 'en-de':
    yield f'{scored.pair}, not en-de'
  if scored.result.split != 'dev':
    yield f'scored on {scored.test_set}, which is {scored.result.split}, not dev'
  yield from _unmet(scored, 1)


def unmet_by_table_2(scored: Scored) -> Iterator[str]:
  """Yields what keeps one out of Table 2: newstest2014, 5 (base) or 20 averaged."""
  if scored.pair not in paper.VOCABULARY:
    yield f'{scored.pair}, not {" or ".join(paper.VOCABULARY)}'
  if scored.test_set != paper.TEST_SETS['test']:
    yield f'scored on {scored.test_set}, not {paper.TEST_SETS["test"]}'
  yield from _unmet(scored, paper.TRAINING[scored.row].averaged)


def _unmet(scored: Scored, average: int) -> Iterator[str]:
  """Yields what a result does not meet of the requirements of both tables."""
  result, lines = scored.result, scored.translations
  sentences = NEWSTEST.get(scored.test_set)
  if sentences and lines is not None and len(lines) != sentences:
    yield f'{len(lines)} translations, {scored.test_set} has {sentences} sentences'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != average:
    yield f'{len(result.averaged)} checkpoints averaged, not {average}'
  if result.step != scored.config['train_steps']:
    yield f'step {result.step:,} of {scored.config["train_steps"]:,}'
  if result.lowercase:
    yield 'scored in lower case'
