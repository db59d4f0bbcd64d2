"""Reads results of evaluations, with the translations that were scored."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.data.corpus import CARD, NEWSTEST, Corpus, paper_set, set_name
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
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
  translations: list[str] | None  # one a sentence; None if they are missing

  @property
  def config(self) -> dict:
    return self.result.config

  @property
  def data(self) -> dict:
    """Returns the config's description of the corpus."""
    return self.result.config['data']

  @property
  def row(self) -> str | None:
    """Returns the row of Table 3 that the run is, if any."""
    return self.result.row

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def name_with_parent(self) -> str:
    """Returns the run's name, with the run that a fine-tuned one started from."""
    parent = self.config['init_from']
    if not parent['run']:
      return self.name
    name = pathlib.Path(parent['run']).name
    return f'{self.name} (from {name}, step {parent["step"]:,})'

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
  names = set.intersection(*({*one.result.scores} for one in runs))
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
    references: files of references, one a line, for where no corpus is prepared.
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
    path = self._references.get(run.result.references)
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
  left_out: list[str]  # what could not be read, and why


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
  named = [run._replace(name=_distinct_name(run.home, homes)) for run in runs]
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
      results.left_out.append(str(error))
  order = lambda run: (run.split, run.step, len(run.averaged), run.beam)
  results.evaluations.extend(sorted(evaluations, key=lambda run: order(run.result)))


def _distinct_name(home: pathlib.Path, homes: set[pathlib.Path]) -> str:
  """Returns the last folders of a path, as many as tell it from all other `homes`."""
  for n in range(1, len(home.parts)):
    if sum(other.parts[-n:] == home.parts[-n:] for other in homes) == 1:
      return str(pathlib.Path(*home.parts[-n:]))
  return str(home)
