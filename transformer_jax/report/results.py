"""Runs and results of evaluations, found and read, with what stands beside them."""

import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from transformer_jax.data import card
from transformer_jax.data.corpus import folder_of, set_name
from transformer_jax.data.task import Task
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.metrics import read_records
from transformer_jax.runs.result import CONFIG, MODEL, Result
from transformer_jax.runs.run import Run


class Scored(NamedTuple):
  """One result and what was read beside it."""

  run: str  # the folder's name, or the file's where there is none
  result: Result
  path: pathlib.Path  # of the result
  home: pathlib.Path  # the run's folder, or the file without its ending
  translations: list[str] | None  # one a sentence; None if they are not there
  records: list[dict]  # what was logged in training

  @property
  def config(self) -> dict:
    return self.result.config

  @property
  def bleu(self) -> float:
    """The paper's BLEU in percent."""
    return self.result.paper_bleu.score

  @property
  def sacrebleu(self) -> float:
    return self.result.sacrebleu.score

  @property
  def perplexity(self) -> float:
    """Of dev, per piece."""
    return self.result.dev_perplexity

  @property
  def signatures(self) -> tuple[str, str]:
    """How sacreBLEU and the paper's BLEU were computed."""
    return self.result.sacrebleu.signature, self.result.paper_bleu.signature

  @property
  def row(self) -> str | None:
    """Of Table 3."""
    return self.result.row

  @property
  def corpus(self) -> str:
    """Its identity."""
    return self.result.corpus

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def run_and_origin(self) -> str:
    """The run, and which other run's model a fine-tuned one started from."""
    origin = self.config['init_from']
    if not origin['run']:
      return self.run
    name = pathlib.Path(origin['run']).name
    return f'{self.run} (from {name}, step {origin["step"]:,})'

  @property
  def pair(self) -> str:
    """Source and target language: 'en-de'."""
    data = self.config['data']
    return f'{data["source_language"]}-{data["target_language"]}'

  @property
  def test_set(self) -> str:
    """The name of the text it was scored on, as its config tells it."""
    config, split = self.config, self.result.split
    if config['data']['reader'] == 'embedded' or split not in config['data']['files']:
      return f'{config["data"]["name"]} {split}'
    names = config['data']['files'][split]
    names = [names] if isinstance(names, str) else names
    return '+'.join(set_name(name) for name in names)

  @property
  def text(self) -> pathlib.Path:
    """The file of the translations, which may not be there."""
    return _text(self.path, self.result)

  def held_out(self, data_dir: pathlib.Path) -> tuple[list[str], list[str]] | None:
    """Sources and references, if the corpus it was scored on is prepared there."""
    folder = folder_of(self.config['data']['name'], data_dir)
    if not (folder / card.CARD).is_file():
      return None
    try:
      if card.read_card(folder).identity != self.result.corpus:
        return None
      return card.read_text(folder, self.result.split)
    except (OSError, UserError, ValueError) as error:
      print(f'{self.run} is shown without samples: {error}', file=sys.stderr)
      return None


class Unscored(NamedTuple):
  """A run that has not been evaluated."""

  run: str
  home: pathlib.Path
  config: dict
  corpus: str  # its identity
  records: list[dict]

  @property
  def row(self) -> str | None:
    """Of Table 3."""
    return self.config['row']

  def __str__(self) -> str:
    made = max((record['step'] for record in self.records), default=0)
    steps = f'{made:,} of {self.config["train_steps"]:,}'
    return f'not evaluated: run {self.run} (step {steps})'


class Found(NamedTuple):
  scored: list[Scored]
  unscored: list[Unscored]
  left_out: list[str]  # what could not be read, and why
  sectioned: list[Scored]  # results of tasks with a section of their own
  baselines: list[tuple[str, Any]]  # the task's name, and what its section read

  def with_distinct_names(self) -> 'Found':
    """Prefixes equal run names with as many parent folders as make them distinct."""
    homes = {one.home for one in (*self.scored, *self.unscored, *self.sectioned)}
    names = {home: distinct_name(home, homes) for home in homes}
    scored = [one._replace(run=names[one.home]) for one in self.scored]
    unscored = [one._replace(run=names[one.home]) for one in self.unscored]
    sectioned = [one._replace(run=names[one.home]) for one in self.sectioned]
    return self._replace(scored=scored, unscored=unscored, sectioned=sectioned)


def none_found() -> Found:
  return Found([], [], [], [], [])


def read(path: pathlib.Path, tasks: Mapping[str, Task]) -> Found:
  """Every result of a run's folder, or of one file, which may be a task's baseline.

  A folder's results are those under translations/, or result.json if there are none.
  A run without a result is read for its curves.
  """
  files = [path]
  if path.is_dir():
    home, log = path.resolve(), path / 'metrics.jsonl'
    files = sorted((path / 'translations').glob('*.json')) or [path / 'result.json']
  elif path.parent.name == 'translations' or path.name == 'result.json':
    folder = path.parent if path.name == 'result.json' else path.parent.parent
    home, log = folder.resolve(), folder / 'metrics.jsonl'
  else:
    home = path.absolute().with_suffix('')
    log = path.with_suffix('.metrics.jsonl')
  found = none_found()
  records = []
  try:
    records = read_records(log)
  except (OSError, UserError, ValueError) as error:
    found.left_out.append(f'{log}: damaged ({error}); its curves are not drawn')
  if files == [path / 'result.json'] and not files[0].exists():
    try:
      found.unscored.append(_unscored(home, records))
    except (OSError, UserError, ValueError) as error:
      found.left_out.append(f'{path}: no run that can be read ({error})')
    return found
  for file in files:
    try:
      if baselines := [*_baselines(file, tasks)]:
        found.baselines.extend(baselines)
        continue
      result = Result.read(file)
    except UserError as error:
      found.left_out.append(str(error))
      continue
    text, lines = _text(file, result), None
    try:
      lines = _lines(text)
    except (OSError, UserError, ValueError) as error:
      found.left_out.append(f'{text}: damaged ({error}); taken for missing')
    one = Scored(home.name, result, file, home, lines, records)
    (found.sectioned if tasks[result.task].section else found.scored).append(one)
  for some in (found.scored, found.sectioned):
    some.sort(key=_order)
  return found


def _baselines(
  path: pathlib.Path, tasks: Mapping[str, Task]
) -> Iterator[tuple[str, Any]]:
  for name, task in tasks.items():
    if task.section and (baseline := task.section.read_baseline(path)):
      yield name, baseline


def _unscored(home: pathlib.Path, records: list[dict]) -> Unscored:
  """A folder without a result; raises OSError or UserError if it is no run either."""
  config = Run(home).config().to_dict()
  if missing := CONFIG.keys() - config or MODEL.keys() - config['model']:
    raise UserError(f'config.json lacks {", ".join(sorted(missing))}')
  corpus = card.read_card(home).identity
  return Unscored(home.name, home, config, corpus, records)


def distinct_name(home: pathlib.Path, homes: set[pathlib.Path]) -> str:
  """The shortest end of a path, in folders, that no other of `homes` ends in."""
  for n in range(1, len(home.parts)):
    if sum(other.parts[-n:] == home.parts[-n:] for other in homes) == 1:
      return str(pathlib.Path(*home.parts[-n:]))
  return str(home)


def _text(path: pathlib.Path, result: Result) -> pathlib.Path:
  if path.name == 'result.json':
    return result.translations(Run(path.parent))
  return path.with_suffix('.txt')


def _lines(path: pathlib.Path) -> list[str] | None:
  return path.read_bytes().decode().split('\n')[:-1] if path.is_file() else None


def _order(scored: Scored) -> tuple:
  result = scored.result
  return result.split, result.step, len(result.averaged), result.beam
