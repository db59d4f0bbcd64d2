"""The result of an evaluation: result.json, written and read by one type."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs import config_checks, fields
from transformer_jax.runs.run import Run
from transformer_jax.scoring.score import Score

VERSION = 1  # of the file's format
BLEUS = ('sacrebleu', 'paper_bleu')
# The scores that each task's results have.
OF_TASK = {'translation': BLEUS, 'parsing': ('parsing', 'valid', 'repairs')}
SCORES = tuple(name for names in OF_TASK.values() for name in names)

# What is read of a result's config, of its config.data and its config.model.
CONFIG = {
  'data': dict,
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
DATA = {
  'reader': str,
  'name': str,
  'source_language': str,
  'target_language': str,
  'files': dict[str, list[str] | str],
  'tokenized': bool,
}
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
  parsing: dict | None  # see parsing/evalb.py
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
  training_commit: str | None  # '; ' between several: it went on with other code
  device: str  # that decoded
  versions: dict[str, str]
  commit: str | None  # that evaluated; None outside a checkout
  corpus: str  # its identity, see data/card.py
  config: dict  # the run's config.json

  @property
  def lowercase(self) -> bool:
    """Whether BLEU ignored case."""
    return self.sacrebleu is not None and 'case:lc' in self.sacrebleu.signature

  def scores(self) -> Iterator[tuple[str, Score]]:
    """The scores of its task with their names."""
    for name in BLEUS:
      if (bleu := getattr(self, name)) is not None:
        yield name, bleu
    if self.parsing is not None:
      yield 'F1', Score(**self.parsing['f1'])

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
      # Older results have no fields for parsing, nor for the commit that trained.
      found = dict.fromkeys((*OF_TASK['parsing'], 'training_commit')) | found
      found['config'] = config_checks.completed(config_checks.nested(config))
    if wrong := ', '.join(_wrong(found)):
      raise UserError(
        f'{path}: no whole result, missing or of another type: {wrong}; evaluate the '
        'run again'
      )
    return fields.from_json(cls, found)

  def to_json(self) -> str:
    """The file's text."""
    return files.as_json(dataclasses.asdict(self), indent=1) + '\n'

  def write(self, path: pathlib.Path) -> None:
    """Writes the file at once, so that a kill leaves none that is not whole."""
    files.write(path, self.to_json())


def _wrong(found: object) -> Iterator[str]:
  """Dotted names of what is missing in a result or is of another type."""
  if not isinstance(found, dict):
    yield 'the object'
    return
  yield from fields.faults(found, Result)
  if isinstance(task := found.get('task'), str):
    if task not in OF_TASK:
      yield 'task'
    else:
      yield from (name for name in OF_TASK[task] if found.get(name, 0) is None)
  for name, kinds in (
    ('config', CONFIG),
    ('config.data', DATA),
    ('config.model', MODEL),
  ):
    if (inner := _inner(found, *name.split('.'))) is not None:
      yield from fields.key_faults(inner, kinds, f'{name}.')


def _inner(owner: object, *keys: str) -> dict | None:
  """The object below some keys, if one is there."""
  for key in keys:
    owner = owner[key] if isinstance(owner, dict) and key in owner else None
  return owner if isinstance(owner, dict) else None
