"""Reads metrics.jsonl: its records, the best step, and the end by patience."""

import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, Required, TypedDict

import msgspec

from transformer_jax.machine.errors import UserError


class Record(TypedDict, total=False):
  """A line of metrics.jsonl: of training steps, a dev measurement or a checkpoint."""

  step: Required[int]  # the newest that the line is about
  # Of training, since the record before
  epoch: float
  loss: float  # label-smoothed, nats per piece
  perplexity: float | None  # null, here and below, stands for NaN or infinity
  learning_rate: float | None
  gradient_norm: float | None
  target_tokens: int
  steps: int
  skipped: int  # steps without an update, for a gradient that was not finite
  seconds: float
  device: str
  commit: str
  # Of dev
  dev_perplexity: float | None
  dev_bleu: float | None
  bleu_seconds: float
  # Of a checkpoint that is whole
  saved: bool
  # Of a step that was skipped: the training pairs of its batch
  skipped_pairs: list[int]


def read_records(metrics: pathlib.Path) -> list[Record]:
  """Returns the records of a metrics.jsonl, one per line; [] without the file.

  A last line that is not JSON is left out: it is being written, or its writer was
  killed.

  Raises:
    UserError: a line is not a record; the message names it.
  """
  lines = metrics.read_bytes().splitlines() if metrics.is_file() else []
  records = []
  for number, line in enumerate(lines, 1):
    try:
      records.append(msgspec.json.decode(line, type=Record))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
      if number < len(lines) or isinstance(error, msgspec.ValidationError):
        raise UserError(
          f'{metrics}, line {number}: damaged ({error}); put back a copy, or remove '
          'the line'
        ) from error
  return records


def best_step(records: Iterable[Record], by: str) -> int | None:
  """Returns the step with the best dev 'perplexity' or 'bleu', or None.

  With '', no step is the best.
  """
  if not by:
    return None
  key, sign = f'dev_{by}', {'perplexity': 1, 'bleu': -1}[by]
  every: Iterable[Mapping[str, Any]] = records
  scores = ((r[key], r['step']) for r in every if r.get(key) is not None)
  measured = [(sign * score, step) for score, step in scores if not math.isnan(score)]
  return min(measured)[1] if measured else None


class Patience:
  """Counts dev scores in a row without a new best, of the measure that best_by names.

  Args:
    limit: as many end the training; 0: it goes on.
    by: 'perplexity' or 'bleu'.
  """

  def __init__(self, limit: int, by: str = 'perplexity'):
    self.limit, self.by = limit, by
    self._scores: list[Record] = []

  @classmethod
  def of(cls, records: Iterable[Record], config: Mapping[str, Any]) -> 'Patience':
    """Returns the patience after the records of metrics.jsonl."""
    every, last = config['checkpoint_every_steps'], config['train_steps']
    patience = cls(config['patience'], config['best_by'] or 'perplexity')
    for record in records:
      # The former last step of a prolonged run may be off the interval.
      if record['step'] == last or not record['step'] % every:
        patience.add(record)
    return patience

  def add(self, record: Record) -> None:
    """Takes the next record; without a score it changes nothing.

    A step that is measured again, after a stop between two measurements, counts once.
    """
    if f'dev_{self.by}' in record:
      again = self._scores and self._scores[-1]['step'] == record['step']
      self._scores[-1 if again else len(self._scores) :] = [record]

  @property
  def ended(self) -> bool:
    """Returns True if training ends now."""
    best = best_step(self._scores, self.by)
    worse = sum(best is None or r['step'] > best for r in self._scores)
    return 0 < self.limit <= worse
