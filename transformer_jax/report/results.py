"""Results of evaluations, found and read, with what stands beside each of them."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.data import card, held_out
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run, read_records


class Scored(NamedTuple):
  """One translation result and what was read beside it."""

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
  def seed(self) -> int:
    return self.config['seed']

  @property
  def pair(self) -> str:
    """Source and target language: 'en-de'."""
    return f'{self.config["source_language"]}-{self.config["target_language"]}'

  @property
  def test_set(self) -> str:
    """The name of the text it was scored on, as its config tells it."""
    config, split = self.config, self.result.split
    if config['reader'] == 'embedded' or split not in config['files']:
      return f'{config["corpus"]} {split}'
    names = config['files'][split]
    names = [names] if isinstance(names, str) else names
    return '+'.join(name.rpartition('/')[2] for name in names)

  @property
  def text(self) -> pathlib.Path:
    """The file of the translations, which may not be there."""
    return _text(self.path, self.result)

  def held_out(self, data_dir: pathlib.Path) -> tuple[list[str], list[str]] | None:
    """Sources and references, if the corpus it was scored on is prepared there."""
    folder = data_dir / self.config['corpus']
    try:
      if card.read_card(folder)['corpus'] != self.result.corpus:
        return None
      return held_out.text(folder, self.result.split)
    except (OSError, ValueError):
      return None


def read(path: pathlib.Path) -> tuple[list[Scored], list[str]]:
  """Every result of a run's folder, or of one file, and why others are left out.

  A folder's results are those under translations/, or result.json if there are none.
  """
  files = [path]
  if path.is_dir():
    home, log = path.resolve(), path / 'metrics.jsonl'
    files = sorted((path / 'translations').glob('*.json')) or [path / 'result.json']
  elif path.parent.name == 'translations':
    folder = path.parent.parent
    home, log = folder.resolve(), folder / 'metrics.jsonl'
  else:
    home = path.absolute().with_suffix('')
    log = path.with_suffix('.metrics.jsonl')
  found, left_out, records = [], [], []
  try:
    records = read_records(log)
  except (OSError, ValueError) as error:
    left_out.append(f'{log}: damaged ({error}); its curves are not drawn')
  for file in files:
    try:
      result = Result.read(file)
    except UserError as error:
      left_out.append(str(error))
      continue
    if result.task != 'translation':
      left_out.append(f'{file}: its task is {result.task}, of which there is no table')
      continue
    text, lines = _text(file, result), None
    try:
      lines = _lines(text)
    except (OSError, ValueError) as error:
      left_out.append(f'{text}: damaged ({error}); taken for missing')
    found.append(Scored(home.name, result, file, home, lines, records))
  return sorted(found, key=_order), left_out


def with_distinct_names(found: Sequence[Scored]) -> list[Scored]:
  """Puts as many folders before equal names of runs as tell them apart."""
  homes = {scored.home for scored in found}
  names = {home: _name(home, homes) for home in homes}
  return [scored._replace(run=names[scored.home]) for scored in found]


def _name(home: pathlib.Path, homes: set[pathlib.Path]) -> str:
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
