"""Reads results with what was scored, and says which of them a table may compare."""

import json
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.config import KEYS, Tag, cells, flat, keys_of, target_pieces
from transformer_jax.data.corpus import CARD, NEWSTEST, Corpus, paper_set, set_name
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import paper
from transformer_jax.report.paper import Cells
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.scoring import translations
from transformer_jax.scoring.bleu import read_lines
from transformer_jax.scoring.output import Output
from transformer_jax.scoring.translations import Metric, text_metrics


class ScoredRun(NamedTuple):
  """A result of a run, and what was read beside it."""

  name: str  # the folder's name, or the file's without a folder
  result: Result
  path: pathlib.Path  # of the result
  home: pathlib.Path  # the run's folder, or the file without its ending
  translations: list[str] | None  # one per sentence; None if they are missing

  @property
  def config(self) -> dict[str, Any]:
    return self.result.config

  @property
  def data(self) -> dict[str, Any]:
    """Returns the config's description of the corpus."""
    return self.result.config['data']

  @property
  def pieces(self) -> int:
    """Returns the number of pieces that the model chooses from."""
    return target_pieces(self.config['model'])

  @property
  def row(self) -> str | None:
    """Returns the row of Table 3 that the run is, if any."""
    return self.result.row

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def title(self) -> str:
    """Returns the run's name, and what a reader must know of its training.

    That is the run that a fine-tuned one started from, and updates that are missing.
    """
    parent, last = self.config['init_from'], self.config['train_steps']
    notes = []
    if parent['run']:
      name = pathlib.Path(parent['run']).name
      notes.append(f'from {name}, step {parent["step"]:,}')
    if self.result.step < last:
      most = 'at most ' if self.config['patience'] else ''
      notes.append(f'{self.result.step:,} of {most}{last:,} updates')
    return f'{self.name} ({"; ".join(notes)})' if notes else self.name

  @property
  def metrics(self) -> pathlib.Path:
    """Returns the file of what training measured; it may be missing."""
    path = self.home / 'metrics.jsonl'
    return path if path.is_file() else self.path.with_suffix('.metrics.jsonl')

  @property
  def pair(self) -> str:
    """Returns source and target language: 'en-de'."""
    return f'{self.data["source_language"]}-{self.data["target_language"]}'

  @property
  def test_set(self) -> str:
    """Returns the name of the text that was scored.

    The paper's sets are known by their references; other names are the config's.
    """
    split, references = self.result.split, self.result.references
    if references and references[:12] in NEWSTEST:
      return NEWSTEST[references[:12]]
    if self.data['reader'] == 'embedded' or split not in self.data['files']:
      return f'{self.data["name"]} {split}'
    stems = self.data['files'][split]
    other = ', other references' if references and any(map(paper_set, stems)) else ''
    return '+'.join(map(set_name, stems)) + other

  @property
  def text(self) -> pathlib.Path:
    """Returns the file of the translations, .txt or .txt.gz; it may be missing."""
    path = self.path.with_suffix('.txt')
    if self.path.name == 'result.json':
      path = self.result.translations(Run(self.path.parent))
    compressed = path.with_name(path.name + '.gz')
    return compressed if compressed.is_file() else path


def signatures(run: ScoredRun, runs: Iterable[ScoredRun]) -> tuple[str, ...]:
  """Returns the run's signatures of the metrics that all of `runs` have."""
  names = set.intersection(*({*other.result.scores} for other in runs))
  shared = [metric.name for metric in text_metrics() if metric.name in names]
  return tuple(run.result.scores[name].signature for name in shared)


def shown_metrics(runs: Iterable[ScoredRun]) -> list[Metric]:
  """Returns the metrics that at least one of the runs has."""
  values = [run.result.value for run in runs]
  has = lambda metric: any(value(metric) is not None for value in values)
  return [metric for metric in translations.METRICS if has(metric)]


class HeldOut:
  """Reads the text that results were scored on, if it is on this machine.

  Args:
    data_dir: the folder of prepared corpora.
    references: files of references, one per line, for corpora that are not prepared.
  """

  def __init__(self, data_dir: pathlib.Path, references: Iterable[pathlib.Path] = ()):
    self._data_dir = data_dir
    self._references = {
      files.sha256_of_lines(read_lines(path)): path for path in references
    }

  def unused(self, runs: Iterable[ScoredRun]) -> Iterator[pathlib.Path]:
    """Yields the files of references on which no run was scored."""
    scored = {run.result.references for run in runs}
    yield from (path for x, path in self._references.items() if x not in scored)

  def text(self, run: ScoredRun) -> tuple[list[str], list[str]] | None:
    """Returns sources and references; None if the corpus is not prepared.

    Raises:
      UserError: the prepared corpus is damaged, or the run's translations are.
    """
    folder = self._data_dir / run.data['name']
    corpus = Corpus.open(folder) if (folder / CARD).is_file() else None
    if corpus is None or corpus.card.identity != run.result.corpus:
      return None
    source, references = corpus.text(run.result.split)
    return source, _check_length(references, run)

  def references(self, run: ScoredRun) -> list[str] | None:
    """Returns the references: the prepared corpus's, or a file of the same lines."""
    if (text := self.text(run)) is not None:
      return text[1]
    path = self._references.get(run.result.references or '')
    return None if path is None else _check_length(read_lines(path), run)


def _check_length(references: list[str], run: ScoredRun) -> list[str]:
  """Returns the references; raises UserError without one translation for each."""
  lines = run.translations
  if lines is not None and len(lines) != len(references):
    raise UserError(
      f'{run.text}: {len(lines)} translations of {len(references)} sentences; '
      'evaluate the run again'
    )
  return references


class Results(NamedTuple):
  """What was read for a report."""

  evaluations: list[ScoredRun]
  baselines: list[tuple[str, Any]]  # a task, and what its section read: no run's score
  omissions: list[str]  # what could not be read, and why


def read(paths: Sequence[pathlib.Path], outputs: Mapping[str, Output]) -> Results:
  """Reads the results of runs' folders and of files, which may be baselines.

  A folder's results are those under translations/, or else result.json. Where runs have
  equal names, parent folders are put before them until the names differ.
  """
  results = Results([], [], [])
  for path in paths:
    _read_path(path, outputs, results)
  runs = results.evaluations
  homes = {run.home for run in runs}
  named = [run._replace(name=distinct_name(run.home, homes)) for run in runs]
  return results._replace(evaluations=named)


def _read_path(
  path: pathlib.Path, outputs: Mapping[str, Output], results: Results
) -> None:
  """Adds to `results` what a folder or a file holds."""
  paths, home = [path], path.absolute().with_suffix('')
  if path.is_dir():
    paths = sorted((path / 'translations').glob('*.json')) or [path / 'result.json']
    home = path.resolve()
  elif path.name == 'result.json':
    home = path.parent.resolve()
  elif path.parent.name == 'translations':
    home = path.parent.parent.resolve()
  evaluations = []
  sections = {name: one.section for name, one in outputs.items() if one.section}
  for file in paths:
    try:
      read = ((name, one.read_baseline(file)) for name, one in sections.items())
      if baselines := [both for both in read if both[1]]:
        results.baselines.extend(baselines)
        continue
      run = ScoredRun(home.name, Result.read(file), file, home, None)
      if run.text.is_file():
        run = run._replace(translations=read_lines(run.text))
      evaluations.append(run)
    except UserError as error:
      results.omissions.append(str(error))
  order = lambda run: (run.split, run.step, len(run.averaged), run.beam)
  results.evaluations.extend(sorted(evaluations, key=lambda run: order(run.result)))


def distinct_name(path: pathlib.Path, paths: set[pathlib.Path]) -> str:
  """Returns the last parts of a path, as many as tell it from all other `paths`."""
  for n in range(1, len(path.parts)):
    if sum(other.parts[-n:] == path.parts[-n:] for other in paths) == 1:
      return str(pathlib.Path(*path.parts[-n:]))
  return str(path)


# Which results one table may compare

# Keys that cannot change the score of a checkpoint. Those of CORPUS are compared by the
# corpus's identity.
NO_INFLUENCE = frozenset(
  name for name, key in KEYS.items() if key.tags in (Tag.CORPUS, Tag.BOOKKEEPING)
)
# Keys in which runs of one table may differ: its subject, and how a result was decoded.
# unmet_conditions() checks the latter for each table.
VARIED = frozenset({*keys_of(Tag.CELL), *keys_of(Tag.VARIES)})


class Group(NamedTuple):
  """Runs that can be compared. Each row holds one result per seed, sorted by seed."""

  base: Cells
  averaged: int  # checkpoints of a result of Table 3
  table_3: dict[str, list[ScoredRun]]
  table_2: dict[str, list[ScoredRun]]
  omissions: list[str]  # why runs are in neither

  @property
  def members(self) -> list[ScoredRun]:
    """Returns the results of both tables."""
    return sum([*self.table_3.values(), *self.table_2.values()], [])

  @property
  def corpus(self) -> str:
    """Returns the name of the corpus."""
    return self.members[0].data['name']

  @property
  def rows(self) -> list[str]:
    """Returns the rows of Table 3 that ran: the paper's in its order, then others."""
    others = [row for row in self.table_3 if row not in paper.TABLE_3]
    return [row for row in paper.TABLE_3 if row in self.table_3] + others


def conditions(run: ScoredRun, runs: Sequence[ScoredRun]) -> tuple[str, ...]:
  """Returns what results of one table share: corpus, scorers, other settings.

  Scorers are those that all of `runs` have.
  """
  config = flat(run.config)
  settings = {key: config[key] for key in config.keys() - VARIED - NO_INFLUENCE}
  return run.result.corpus, *signatures(run, runs), json.dumps(settings, sort_keys=True)


def wrong_cells(run: ScoredRun, base: Cells) -> str:
  """Returns the cells in which a run differs from its row; '' if there are none.

  In a row that the paper lacks no cell is wrong.
  """
  if run.row not in paper.TABLE_3:
    return ''
  expected = paper.cells_of_row(run.row, base, run.data['target_language'] == 'fr')
  here: dict[str, Any] = cells(run.config)
  return ', '.join(
    f'{cell} is {value}, not {paper.cell_text(expected[cell])}'
    for cell, value in here.items()
    if value != expected[cell]
    and (isinstance(value, str) or not math.isclose(value, float(expected[cell])))
  )


def find_base(members: Sequence[ScoredRun]) -> Cells | None:
  """Returns the base that fits the most rows: those with a run without wrong_cells().

  Candidates are the paper's base and the cells of the runs of row base; of equals it is
  the paper's, or else the last, as of a sweep that was prolonged. If none fits any row,
  it is the paper's base on WMT14, and None elsewhere.
  """
  runs = [cells(run.config) for run in members if run.row == 'base']
  known = [run for run in members if run.row in paper.TABLE_3]
  fits = lambda base: len({run.row for run in known if not wrong_cells(run, base)})
  base = max([paper.BASE, *reversed(runs)], key=fits)
  return base if fits(base) or members[0].data['reader'] == 'wmt14' else None


def group(
  results: Sequence[ScoredRun], averaged: int = 1
) -> tuple[list[Group], list[str]]:
  """Returns groups of comparable runs, and reasons why other runs are in none.

  Runs of no row are in neither. The runs have distinct names.

  Args:
    averaged: checkpoints of a result of Table 3, 1 in the paper.
  """
  alike: dict[tuple[str, ...], list[ScoredRun]] = {}
  groups, omissions = [], []
  for run in results:
    if run.row is not None:
      alike.setdefault(conditions(run, results), []).append(run)
  for members in alike.values():
    base = find_base(members)
    if base is None:
      names = ', '.join(dict.fromkeys(run.name for run in members))
      omissions.append(
        f'{names}: no base to compare with: no run of row base has the same content of '
        f'{members[0].data["name"]}, the same scorer and settings'
      )
      continue
    tables = _group(base, members, averaged)
    if tables.table_2 or tables.table_3:
      groups.append(tables)
    else:
      omissions += tables.omissions
  return groups, omissions


def _group(base: Cells, members: Sequence[ScoredRun], averaged: int) -> Group:
  tables = Group(base, averaged, {}, {}, [])
  # A run has several results; one that was prolonged also has results of fewer steps.
  by_run: dict[tuple[str, Any, int], list[ScoredRun]] = {}
  for run in members:
    if wrong := wrong_cells(run, base):
      reason = f'{run.name} is not row {run.row}, although its config says so: {wrong}'
      tables.omissions.extend({reason} - {*tables.omissions})
    else:
      is_test = run.result.split == 'test' and run.row in paper.TABLE_2_NAMES
      key = run.name, run.row, 2 if is_test else 3
      by_run.setdefault(key, []).append(run)
  for (name, row, number), results in by_run.items():
    table = tables.table_2 if number == 2 else tables.table_3
    unmet = lambda run, number=number: [*unmet_conditions(run, number, averaged)]
    best = min(results, key=lambda run: len(unmet(run)))
    reasons = '; '.join(unmet(best))
    others = table.get(row, [])
    same_seed = [run.name for run in others if run.seed == best.seed]
    changed = paper.changed_cells(cells(best.config), base)
    if reasons:
      pass
    elif row not in paper.TABLE_3 and not changed:
      reasons = 'the paper has no such row, and its cells are those of base'
    elif others and cells(others[0].config) != cells(best.config):
      reasons = (
        f'its cells are not those of {others[0].name}: {paper.cells_text(changed)}'
      )
    elif same_seed:
      reasons = f'seed {best.seed} is in the table already, from {same_seed[0]}'
    if reasons:
      tables.omissions.append(f'{name} (row {row}) is not in Table {number}: {reasons}')
    else:
      table.setdefault(row, []).append(best)
  for runs in [*tables.table_2.values(), *tables.table_3.values()]:
    runs.sort(key=lambda run: run.seed)
  return tables


def unmet_conditions(run: ScoredRun, table: int, averaged: int = 1) -> Iterator[str]:
  """Yields what keeps a result out of Table 2 or 3.

  Table 2 takes newstest2014 with 5 (base) or 20 (big) checkpoints averaged, Table 3 dev
  with `averaged` of them: the paper's has the last alone.
  """
  result = run.result
  pairs = ['en-de']
  if table == 2:
    pairs, averaged = ['en-de', 'en-fr'], paper.TRAINING[str(run.row)].averaged
  if run.pair not in pairs:
    yield f'{run.pair}, not {" or ".join(pairs)}'
  if table == 2 and run.test_set != paper.TEST_SETS['test']:
    yield f'scored on {run.test_set}, not {paper.TEST_SETS["test"]}'
  if table == 3 and result.split != 'dev':
    yield f'scored on {run.test_set}, which is {result.split}, not dev'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != averaged:
    remedy = ' (see --average)' if table == 3 else ''
    yield f'{len(result.averaged)} checkpoints averaged, not {averaged}{remedy}'
  if result.step != run.config['train_steps']:
    yield f'{result.step:,} of {run.config["train_steps"]:,} updates'
