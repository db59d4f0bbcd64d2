"""The result of an evaluation: result.json, written and read by one type."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import msgspec

from transformer_jax import config
from transformer_jax.data.corpus import Overlap
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.translations import JUDGED, Metric

VERSION = 3  # of the file's format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """The scores of a run on a split, and all that they depend on.

  A field is None where its task has no such score, or where it was not recorded.
  """

  version: int  # VERSION
  task: str
  row: str | None  # of Table 3; None if the config is not one of them
  split: str  # 'dev' or 'test'
  text: str | None  # what was scored, such as 'detokenised'
  step: int  # the last that was averaged
  averaged: list[int]  # steps of the checkpoints
  beam: int
  alpha: float
  decode_dtype: str | None
  # Of translations, by the metrics' names
  scores: dict[str, Score] = dataclasses.field(default_factory=dict)
  parsing: dict[str, Any] | None = None  # of the task 'parsing', which knows its fields
  valid: float | None = None  # outputs that needed no repair, in percent
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
  search_seconds: float | None  # of all outputs, with compilation
  versions: dict[str, str]
  commit: str | None  # that evaluated; None outside a checkout
  corpus: str  # its identity, see data/corpus.py
  references: str | None  # sha256 of the references, one per line
  overlap: dict[str, Overlap] | None  # with each other split
  config: dict[str, Any]  # the run's, with all keys

  def value(self, metric: Metric) -> float | None:
    """Returns a metric's value; None if the result lacks it."""
    if metric.of_text:
      score = self.scores.get(metric.name)
      return None if score is None else score.score
    return getattr(self, metric.name)

  def search(self) -> dict[str, Any]:
    """Returns the keys of a config that describe the search, as the result has them."""
    names = 'beam', 'alpha', 'decode_dtype'
    search = {name: getattr(self, name) for name in names}
    return search | {'average_last': len(self.averaged)}

  def translations(self, run: Run) -> pathlib.Path:
    """Returns the file of a run that holds the scored outputs."""
    return run.translations(
      self.split, self.step, len(self.averaged), self.beam, self.alpha
    )

  @classmethod
  def read(cls, path: pathlib.Path) -> 'Result':
    """Reads a file that write() wrote.

    Raises:
      UserError: the file is missing, is damaged, or has another version's format. The
        message names the file and the field.
    """
    if not path.is_file():
      raise UserError(f'{path}: no such file; evaluate the run')
    content = files.read_json_object(path)
    if content.get('version') not in (2, VERSION):
      version = content.get('version', 'none')
      raise UserError(
        f'{path}: written in another format (version {version}, not {VERSION}): '
        'evaluate the run again'
      )
    try:
      result = msgspec.convert(_of_today(content), cls)
      result = dataclasses.replace(result, config=config.complete(result.config))
      config.check(result.config)
      if result.task == 'translation' and None in map(result.value, JUDGED):
        raise UserError('a translation without its scores')
    except (msgspec.ValidationError, UserError) as error:
      raise UserError(
        f'{path}: not a whole result ({error}); evaluate the run again'
      ) from error
    return result

  def write(self, path: pathlib.Path) -> None:
    """Writes the file whole or, after a kill, not at all."""
    files.write_json(path, msgspec.to_builtins(dataclasses.asdict(self)))


def _of_today(content: dict[str, Any]) -> dict[str, Any]:
  """Returns the content of a file of any version in the format of VERSION."""
  overlap = content.get('overlap')
  content = content | {'overlap': overlap and overlap_of_today(overlap)}
  if content['version'] == VERSION:
    return content
  # Version 2 had a field for each of two scores.
  flat = {name: content.pop(name, None) for name in ('sacrebleu', 'paper_bleu')}
  scores = {name: score for name, score in flat.items() if score is not None}
  return content | {'version': VERSION, 'scores': scores}


def overlap_of_today(overlap: Mapping[str, Any]) -> dict[str, Any]:
  """Returns an overlap that may be of sources alone, as former cards have it."""
  return {k: Overlap(n) if isinstance(n, int) else n for k, n in overlap.items()}
