"""Results as evaluation left them: found, checked, and what belongs to each."""

import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.data import card, held_out
from transformer_jax.runs.run import Run, read_records

# What the tables read, and of which type it is; numbers must be finite.
NUMBER = int | float
LARGEST = 2**63  # integers of JSON know no bound
RESULT = dict.fromkeys(('step', 'beam', 'alpha', 'dev_perplexity'), NUMBER)
RESULT |= dict.fromkeys(('parameters', 'target_tokens_seen', 'wall_seconds'), NUMBER)
RESULT |= dict.fromkeys(('task', 'split', 'device', 'corpus'), str)
RESULT |= {'averaged': list, 'config': dict}
KINDS = ('sacrebleu', 'paper_bleu')
RESULT |= dict.fromkeys(KINDS, dict)
SCORE = {'score': NUMBER, 'signature': str}
CONFIG = {'files': dict, 'tokenized': bool, 'model': dict}
CONFIG |= dict.fromkeys(('reader', 'corpus', 'source_language', 'target_language'), str)
CONFIG |= dict.fromkeys(('epsilon_ls', 'train_steps', 'seed'), NUMBER)
CONFIG |= dict.fromkeys(('average_last', 'beam', 'alpha'), NUMBER)
SIZES = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop', 'vocab_size')
MODEL = {'positions': str} | dict.fromkeys(SIZES, NUMBER)


class Scored(NamedTuple):
  """One result.json and what was read beside it."""

  run: str  # the folder's name, or the file's where there is none
  result: dict
  path: pathlib.Path  # of the result
  home: pathlib.Path  # the run's folder, or the file without its ending
  translations: list[str] | None  # a line for each sentence; None: not there
  records: list[dict]  # what was logged in training

  @property
  def config(self) -> dict:
    return self.result['config']

  @property
  def text(self) -> pathlib.Path:
    """Where the translations stand, if they are kept."""
    return _text(self.path, self.result)

  @property
  def training_device(self) -> str | None:
    """What it was trained on; None where that was not written down."""
    key = 'training_device'
    return self.result[key] if key in self.result else None

  @property
  def decode_dtype(self) -> str | None:
    """In what it was multiplied in decoding; None where that was not written down."""
    key = 'decode_dtype'
    return self.result[key] if key in self.result else None

  def held_out(self, data_dir: pathlib.Path) -> tuple[list[str], list[str]] | None:
    """Sources and references, if the corpus it was scored on is prepared there."""
    folder = data_dir / self.config['corpus']
    try:
      if card.read_card(folder)['corpus'] != self.result['corpus']:
        return None
      return held_out.text(folder, self.result['split'])
    except (OSError, ValueError):
      return None


def read(name: str) -> tuple[list[Scored], list[str]]:
  """Every result of a run's folder, or of one file, and why others are left out.

  A folder's are those under translations/, or result.json where nothing is there.
  """
  path = pathlib.Path(name)
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
      result = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
      left_out.append(f'{file}: damaged or missing ({error})')
      continue
    if wrong := ', '.join(_wrong(result)):
      left_out.append(f'{file}: no whole result, missing or of another type: {wrong}')
      continue
    text, lines = _text(file, result), None
    try:
      lines = _lines(text)
    except (OSError, ValueError) as error:
      left_out.append(f'{text}: damaged ({error}); taken for missing')
    found.append(Scored(home.name, result, file, home, lines, records))
  return sorted(found, key=_order), left_out


def is_lowercase(result: dict) -> bool:
  """Whether case was ignored when it was scored."""
  return 'case:lc' in result['sacrebleu']['signature']


def told_apart(found: Sequence[Scored]) -> list[Scored]:
  """Runs of equal names get so many of their folders' before them as tells them."""
  homes = {scored.home for scored in found}
  names = {home: _name(home, homes) for home in homes}
  return [scored._replace(run=names[scored.home]) for scored in found]


def _name(home: pathlib.Path, homes: set[pathlib.Path]) -> str:
  for n in range(1, len(home.parts)):
    if sum(other.parts[-n:] == home.parts[-n:] for other in homes) == 1:
      return str(pathlib.Path(*home.parts[-n:]))
  return str(home)


def _text(path: pathlib.Path, result: dict) -> pathlib.Path:
  if path.name == 'result.json':
    return Run(path.parent).translations(result, is_lowercase(result))
  return path.with_suffix('.txt')


def _lines(path: pathlib.Path) -> list[str] | None:
  return path.read_bytes().decode().split('\n')[:-1] if path.is_file() else None


def _order(scored: Scored) -> tuple:
  result = scored.result
  return result['split'], result['step'], len(result['averaged']), result['beam']


def _wrong(result: object) -> Iterator[str]:
  """Names of what is missing or of another type."""
  if not isinstance(result, dict):
    yield 'the object'
    return
  yield from _unlike(result, RESULT)
  later = {'training_device': str | None, 'decode_dtype': str}  # than some results
  yield from _unlike(result, {k: v for k, v in later.items() if k in result})
  for kind in KINDS:
    yield from _unlike(_inner(result, kind), SCORE, f'{kind}.')
  config = _inner(result, 'config')
  yield from _unlike(config, CONFIG, 'config.')
  yield from _unlike(_inner(config, 'model'), MODEL, 'config.model.')
  files = _inner(config, 'files')
  yield from _unlike(files, dict.fromkeys(files, str | list), 'config.files.')
  for split, names in files.items():
    if isinstance(names, list) and not all(isinstance(name, str) for name in names):
      yield f'config.files.{split}'


def _inner(owner: dict, key: str) -> dict:
  return owner[key] if key in owner and isinstance(owner[key], dict) else {}


def _unlike(
  owner: dict, kinds: Mapping[str, object], within: str = ''
) -> Iterator[str]:
  for key, kind in kinds.items():
    if key not in owner or not _is(owner[key], kind):
      yield within + key


def _is(value: object, kind: object) -> bool:
  if isinstance(value, bool):  # which Python takes for an integer
    return kind is bool
  if kind is NUMBER and isinstance(value, int):
    return abs(value) < LARGEST
  return isinstance(value, kind) and (kind is not NUMBER or math.isfinite(value))
