"""Reads runs and results of evaluations, with translations and training's log."""

import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from transformer_jax.data import card
from transformer_jax.data.corpus import set_name
from transformer_jax.data.task import Task
from transformer_jax.data.text import read_bytes
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.metrics import read_records
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run


class Scored(NamedTuple):
  """One result and what was read beside it."""

  run: str  # the folder's name, or the file's without a folder
  result: Result
  path: pathlib.Path  # of the result
  home: pathlib.Path  # the run's folder, or the file without its ending
  translations: list[str] | None  # one a sentence; None if they are missing
  records: list[dict]  # what was logged in training

  @property
  def config(self) -> dict:
    return self.result.config

  @property
  def data(self) -> dict:
    """Returns the config's description of the corpus."""
    return self.result.config['data']

  @property
  def bleu(self) -> float:
    """Returns the paper's BLEU in percent."""
    return self.result.paper_bleu.score

  @property
  def signatures(self) -> tuple[str, str]:
    """Returns the signatures of sacreBLEU and of the paper's BLEU."""
    return self.result.sacrebleu.signature, self.result.paper_bleu.signature

  @property
  def row(self) -> str | None:
    """Returns the row of Table 3 that the run is, if any."""
    return self.result.row

  @property
  def corpus(self) -> str:
    """Returns the corpus's identity."""
    return self.result.corpus

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def run_with_parent(self) -> str:
    """Returns the run's name, with the run that a fine-tuned one started from."""
    parent = self.config['init_from']
    if not parent['run']:
      return self.run
    name = pathlib.Path(parent['run']).name
    return f'{self.run} (from {name}, step {parent["step"]:,})'

  @property
  def pair(self) -> str:
    """Returns source and target language: 'en-de'."""
    return f'{self.data["source_language"]}-{self.data["target_language"]}'

  @property
  def test_set(self) -> str:
    """Returns the name of the text that was scored, as the config has it."""
    split = self.result.split
    if self.data['reader'] == 'embedded' or split not in self.data['files']:
      return f'{self.data["name"]} {split}'
    return '+'.join(map(set_name, self.data['files'][split]))

  @property
  def text(self) -> pathlib.Path:
    """Returns the file of the translations, .txt or .txt.gz; it may be missing."""
    path = self.path.with_suffix('.txt')
    if self.path.name == 'result.json':
      path = self.result.translations(Run(self.path.parent))
    compressed = path.with_name(path.name + '.gz')
    return compressed if compressed.is_file() else path


class Unscored(NamedTuple):
  """A run that has not been evaluated."""

  run: str
  home: pathlib.Path
  config: dict
  corpus: str  # its identity
  records: list[dict]

  @property
  def row(self) -> str | None:
    """Returns the row of Table 3 that the run is, if any."""
    return self.config['row']

  def __str__(self) -> str:
    last = max((record['step'] for record in self.records), default=0)
    steps = f'{last:,} of {self.config["train_steps"]:,}'
    return f'not evaluated: run {self.run} (step {steps})'


class HeldOut:
  """Reads the text that results were scored on, if it is on this machine.

  Args:
    data_dir: the folder of prepared corpora.
    references: files of references, one a line, for where no corpus is prepared.
  """

  def __init__(self, data_dir: pathlib.Path, references: Iterable[pathlib.Path] = ()):
    self._data_dir = data_dir
    self._references = {files.sha256(path): path for path in references}
    self._told: set[str] = set()

  def text(self, scored: Scored) -> tuple[list[str], list[str]] | None:
    """Returns sources and references; None if the corpus is not prepared."""
    folder = self._data_dir / scored.data['name']
    if not (folder / card.CARD).is_file():
      return None
    try:
      if card.read_card(folder).identity != scored.corpus:
        return None
      return card.read_text(folder, scored.result.split)
    except (OSError, UserError) as error:
      if str(error) not in self._told:  # each result of the corpus comes here
        print(f'no samples; paired tests need --references: {error}', file=sys.stderr)
      self._told.add(str(error))
      return None

  def references(self, scored: Scored) -> list[str] | None:
    """Returns the references: the prepared corpus's, or a file of the same lines."""
    if (text := self.text(scored)) is not None:
      return text[1]
    if scored.result.references not in self._references:
      return None
    return read_lines(self._references[scored.result.references])


class Results(NamedTuple):
  """What was read for a report."""

  scored: list[Scored]
  unscored: list[Unscored]
  baselines: list[tuple[str, Any]]  # a task, and what its section read: no run's score
  left_out: list[str]  # what could not be read, and why

  def with_distinct_names(self) -> 'Results':
    """Prefixes equal run names with as many parent folders as make them distinct."""
    homes = {one.home for one in (*self.scored, *self.unscored)}
    names = {home: distinct_name(home, homes) for home in homes}
    return self._replace(
      scored=[one._replace(run=names[one.home]) for one in self.scored],
      unscored=[one._replace(run=names[one.home]) for one in self.unscored],
    )


def read(path: pathlib.Path, tasks: Mapping[str, Task]) -> Results:
  """Reads every result of a run's folder, or one file, which may be a baseline.

  A folder's results are those under translations/, or else result.json.
  A run without a result is read for its curves.
  """
  paths = [path]
  if path.is_dir():
    home, log = path.resolve(), path / 'metrics.jsonl'
    paths = sorted((path / 'translations').glob('*.json')) or [path / 'result.json']
  elif path.parent.name == 'translations' or path.name == 'result.json':
    folder = path.parent if path.name == 'result.json' else path.parent.parent
    home, log = folder.resolve(), folder / 'metrics.jsonl'
  else:
    home = path.absolute().with_suffix('')
    log = path.with_suffix('.metrics.jsonl')
  results, records = Results([], [], [], []), []
  try:
    records = read_records(log)
  except UserError as error:
    results.left_out.append(f'{error}; its curves are missing')
  if paths == [path / 'result.json'] and not paths[0].exists():
    try:
      results.unscored.append(_read_unscored(home, records))
    except UserError as error:
      results.left_out.append(f'{path}: no run that can be read ({error})')
    return results
  for file in paths:
    try:
      if baselines := [*_baselines(file, tasks)]:
        results.baselines.extend(baselines)
      else:
        one = Scored(home.name, Result.read(file), file, home, None, records)
        results.scored.append(_with_translations(one, results.left_out))
    except UserError as error:
      results.left_out.append(str(error))
  results.scored.sort(key=_order)
  return results


def _baselines(
  path: pathlib.Path, tasks: Mapping[str, Task]
) -> Iterator[tuple[str, Any]]:
  for name, task in tasks.items():
    if task.section and (baseline := task.section.read_baseline(path)):
      yield name, baseline


def _with_translations(scored: Scored, left_out: list[str]) -> Scored:
  try:
    lines = read_lines(scored.text) if scored.text.is_file() else None
  except (UnicodeDecodeError, UserError) as error:
    left_out.append(f'{scored.text}: damaged ({error}); taken for missing')
    return scored
  return scored._replace(translations=lines)


def read_lines(path: pathlib.Path) -> list[str]:
  """Returns the lines of a text, whose only separator is the line feed."""
  return read_bytes(path).decode().split('\n')[:-1]


def _read_unscored(home: pathlib.Path, records: list[dict]) -> Unscored:
  """Reads a run that has no result; raises UserError if the folder is no run."""
  config = Run(home).config().to_dict()
  corpus = card.read_card(home).identity
  return Unscored(home.name, home, config, corpus, records)


def distinct_name(home: pathlib.Path, homes: set[pathlib.Path]) -> str:
  """Returns the last folders of a path, as many as tell it from all other `homes`."""
  for n in range(1, len(home.parts)):
    if sum(other.parts[-n:] == home.parts[-n:] for other in homes) == 1:
      return str(pathlib.Path(*home.parts[-n:]))
  return str(home)


def _order(scored: Scored) -> tuple:
  result = scored.result
  return result.split, result.step, len(result.averaged), result.beam
