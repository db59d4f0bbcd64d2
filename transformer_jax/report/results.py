"""Results as evaluation left them: found, checked, and what belongs to each."""

import json
import math
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from transformer_jax import corpora
from transformer_jax.run import Run, read_records

NUMBERS = ('step', 'beam', 'alpha', 'dev_perplexity', 'parameters')
NUMBERS += ('target_tokens_seen', 'wall_seconds')
TEXTS = ('task', 'split', 'device', 'corpus')
CONFIG = ('files', 'reader', 'corpus', 'source_language', 'target_language')
CONFIG += ('tokenized', 'epsilon_ls', 'train_steps', 'seed')
MODEL = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop', 'positions', 'vocab_size')
KINDS = ('sacrebleu', 'paper_bleu')


class Scored(NamedTuple):
  """One result.json; `run` is the folder's name, or the file's where there is none."""

  run: str
  result: dict
  path: pathlib.Path  # of the result
  metrics: pathlib.Path  # may be missing

  @property
  def config(self) -> dict:
    return self.result['config']

  @property
  def text(self) -> pathlib.Path:
    """The translations, where they are kept; they may be missing."""
    if self.path.name == 'result.json':
      return Run(self.path.parent).translations(self.result)
    return self.path.with_suffix('.txt')

  def translations(self) -> list[str] | None:
    """One line for each sentence; None if they are not there."""
    if not self.text.is_file():
      return None
    return self.text.read_bytes().decode().split('\n')[:-1]

  def held_out(self, data_dir: pathlib.Path) -> tuple[list[str], list[str]] | None:
    """Sources and references, if the corpus it was scored on is prepared there."""
    folder = data_dir / self.config['corpus']
    try:
      if corpora.read_card(folder)['corpus'] != self.result['corpus']:
        return None
      return corpora.held_out(folder, self.result['split'])
    except (OSError, ValueError):
      return None

  def records(self) -> list[dict]:
    """What was logged in training."""
    return read_records(self.metrics)


def read(name: str) -> tuple[list[Scored], list[str]]:
  """Every result of a run's folder, or of one file, and why others are left out.

  A folder's are those under translations/, or result.json where nothing is there.
  """
  path = pathlib.Path(name)
  if path.is_dir():
    run, metrics = path.resolve().name, path / 'metrics.jsonl'
    files = sorted((path / 'translations').glob('*.json')) or [path / 'result.json']
  else:
    run, metrics = path.stem, path.with_suffix('.metrics.jsonl')
    files = [path]
    if path.parent.name == 'translations':
      run, metrics = path.parents[1].resolve().name, path.parents[1] / 'metrics.jsonl'
  found, left_out = [], []
  for file in files:
    try:
      result = json.loads(file.read_text())
    except (OSError, ValueError) as error:
      left_out.append(f'{file}: damaged or missing ({error})')
      continue
    if wrong := ', '.join(_wrong(result)):
      left_out.append(f'{file}: no whole result, missing or of another type: {wrong}')
    else:
      found.append(Scored(run, result, file, metrics))
  return sorted(found, key=_order), left_out


def _order(scored: Scored) -> tuple:
  result = scored.result
  return result['split'], result['step'], len(result['averaged']), result['beam']


def _wrong(result: object) -> Iterator[str]:
  """Names of what is missing or of another type; numbers must be finite."""
  if not isinstance(result, dict):
    yield 'the object'
    return
  yield from (key for key in NUMBERS if not _is_number(result, key))
  yield from (key for key in TEXTS if not _is(result, key, str))
  if not _is(result, 'averaged', list):
    yield 'averaged'
  for kind in KINDS:
    if not _is(result, kind, dict):
      yield kind
    elif not _is_number(result[kind], 'score') or not _is(
      result[kind], 'signature', str
    ):
      yield f'{kind}.score or .signature'
  if not _is(result, 'config', dict):
    yield 'config'
    return
  config = result['config']
  yield from (f'config.{key}' for key in CONFIG if key not in config)
  model = config['model'] if _is(config, 'model', dict) else {}
  yield from (f'config.model.{key}' for key in MODEL if key not in model)


def _is(owner: dict, key: str, kind: type) -> bool:
  return key in owner and isinstance(owner[key], kind)


def _is_number(owner: dict, key: str) -> bool:
  number = _is(owner, key, int | float) and not isinstance(owner[key], bool)
  return number and math.isfinite(owner[key])
