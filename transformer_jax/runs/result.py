"""The result of an evaluation: result.json, written and read by one type."""

import dataclasses
import json
import math
import pathlib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs import config_checks
from transformer_jax.runs.run import Run
from transformer_jax.scoring.parses import Parsing
from transformer_jax.scoring.score import Score

VERSION = 1  # of the file's format
BLEUS = ('sacrebleu', 'paper_bleu')
# The scores that each task's results have.
OF_TASK = {'translation': BLEUS, 'parsing': ('parsing', 'valid', 'repairs')}
SCORES = tuple(name for names in OF_TASK.values() for name in names)
LARGEST = 2**63  # JSON's integers know no bound, ours do

# What is read of a result's config, and of its config.model.
CONFIG = {
  'reader': str,
  'corpus': str,
  'source_language': str,
  'target_language': str,
  'files': dict[str, list[str] | str],
  'tokenized': bool,
  'model': dict,
  'epsilon_ls': float,
  'train_steps': int,
  'seed': int,
  'average_last': int,
  'beam': int,
  'alpha': float,
}
SIZES = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'vocab_size')
SIZES += ('target_vocab_size',)
MODEL = {'positions': str, 'P_drop': float} | dict.fromkeys(SIZES, int)


@dataclasses.dataclass(frozen=True)
class Result:
  """What evaluating a run on a split found, and all that it depends on.

  A field is None where its task has no such score, or where the run is older than the
  field and did not record it.
  """

  version: int  # VERSION
  task: str  # one of OF_TASK
  row: str | None  # of Table 3, for which the config stands
  split: str  # 'dev' or 'test'
  text: str | None  # what was scored, such as 'detokenised'
  step: int  # the last that was averaged
  averaged: list[int]  # steps of the checkpoints
  beam: int
  alpha: float
  decode_dtype: str | None
  sacrebleu: Score | None
  paper_bleu: Score | None
  parsing: Parsing | None
  valid: float | None  # outputs that were trees before repair, in percent
  repairs: dict[str, int] | None  # see Repairs in data/trees.py
  dev_perplexity: float  # per piece
  sources_cut: int  # sentences that were too long for the model
  outputs_cut: int  # translations that met their length limit
  dev_pairs_cut: int | None  # pairs that were too long for the perplexity
  parameters: int
  target_tokens_seen: int  # in training, until `step`
  wall_seconds: float  # of training, until `step`
  training_device: str | None
  device: str  # that decoded
  versions: dict[str, str]
  commit: str | None  # None outside a checkout
  corpus: str  # its identity, see data/card.py
  config: dict  # the run's config.json

  @property
  def lowercase(self) -> bool:
    """Whether BLEU ignored case."""
    return self.sacrebleu is not None and 'case:lc' in self.sacrebleu.signature

  def translations(self, run: Run) -> pathlib.Path:
    """The file of a run in which the outputs stand that were scored."""
    return run.translations(
      self.split, self.step, len(self.averaged), self.beam, self.alpha, self.lowercase
    )

  @classmethod
  def read(cls, path: pathlib.Path) -> 'Result':
    """Reads a file that write() wrote.

    Raises:
      UserError: the file is missing, is damaged, or is no result of this version. The
        message names the file and what of it is missing or of another type.
    """
    try:
      found = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
      raise UserError(f'{path}: damaged or missing ({error})') from error
    if isinstance(found, dict) and found.get('version') != VERSION:
      version = found.get('version', 'of before version 1')
      raise UserError(
        f'{path}: written in another format ({version}, not {VERSION}): evaluate the '
        'run again'
      )
    if (config := _inner(found, 'config')) is not None:
      # Results of before there was parsing have no fields for it.
      found = dict.fromkeys(OF_TASK['parsing']) | found
      found['config'] = config_checks.completed(config)
    if wrong := ', '.join(_wrong(found)):
      raise UserError(
        f'{path}: no whole result, missing or of another type: {wrong}; evaluate the '
        'run again'
      )
    scores = {
      name: _made(kind, found[name])
      for name, kind in _INNER.items()
      if found[name] is not None
    }
    return cls(**{field: found[field] for field in _fields(cls)} | scores)

  def to_json(self) -> str:
    """The file's text."""
    return files.as_json(dataclasses.asdict(self), indent=1) + '\n'

  def write(self, path: pathlib.Path) -> None:
    """Writes the file at once, so that a kill leaves none that is not whole."""
    files.write(path, self.to_json())


# The fields of a result that are objects of their own.
_INNER: dict[str, type] = dict.fromkeys(BLEUS, Score) | {'parsing': Parsing}


def _fields(kind: type) -> dict[str, Any]:
  """Names and types of a dataclass's fields."""
  return typing.get_type_hints(kind)


def _made(kind: type, found: Any) -> Any:
  """A dataclass, and those in its fields, of what JSON has for them."""
  if not dataclasses.is_dataclass(kind):
    return found
  return kind(
    **{name: _made(inner, found[name]) for name, inner in _fields(kind).items()}
  )


def _wrong(found: object) -> Iterator[str]:
  """Dotted names of what is missing in a result or is of another type."""
  if not isinstance(found, dict):
    yield 'the object'
    return
  yield from _unlike(found, _fields(Result))
  for name, kind in _INNER.items():
    if (score := _inner(found, name)) is not None:
      yield from _unlike(score, _fields(kind), f'{name}.')
  if (f1 := _inner(found, 'parsing', 'f1')) is not None:
    yield from _unlike(f1, _fields(Score), 'parsing.f1.')
  if isinstance(task := found.get('task'), str):
    if task not in OF_TASK:
      yield 'task'
    else:
      yield from (name for name in OF_TASK[task] if found.get(name, 0) is None)
  for name, kinds in (('config', CONFIG), ('config.model', MODEL)):
    if (inner := _inner(found, *name.split('.'))) is not None:
      yield from _unlike(inner, kinds, f'{name}.')


def _inner(owner: object, *keys: str) -> dict | None:
  """The object below some keys, if one is there."""
  for key in keys:
    owner = owner[key] if isinstance(owner, dict) and key in owner else None
  return owner if isinstance(owner, dict) else None


def _unlike(
  owner: Mapping[str, object], kinds: Mapping[str, object], within: str = ''
) -> Iterator[str]:
  for key, kind in kinds.items():
    if key not in owner or not _is(owner[key], kind):
      yield within + key


def _is(value: object, kind: object) -> bool:
  """Whether a value of JSON is of the type that an annotation says."""
  if isinstance(kind, types.UnionType):
    return any(_is(value, one) for one in typing.get_args(kind))
  if kind is float:
    return _is(value, int) or (isinstance(value, float) and math.isfinite(value))
  if kind is int:
    # Python takes a bool for an integer.
    ours = isinstance(value, int) and not isinstance(value, bool)
    return ours and abs(value) < LARGEST
  if dataclasses.is_dataclass(kind):
    return isinstance(value, dict)
  plain = typing.get_origin(kind) or kind
  if not isinstance(value, plain):
    return False
  inside = typing.get_args(kind)
  values = value.values() if isinstance(value, dict) else value
  return not inside or all(_is(one, inside[-1]) for one in values)
