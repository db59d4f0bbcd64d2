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
  """Returns the records of a metrics.jsonl, one a line; none without the file.

  A last line that is no JSON is left out: it is being written, or its writer was
  killed.

  Raises:
    UserError: a line is no record; the message names it.
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
  measured = [(sign * r[key], r['step']) for r in records if r.get(key) is not None]
  return min(measured)[1] if measured else None


class Patience:
  """Counts measurements of dev perplexity in a row without a new best.

  Args:
    limit: as many end the training; 0: it goes on.
  """

  def __init__(self, limit: int):
    self.limit, self._best, self._worse = limit, math.inf, 0

  @classmethod
  def of(cls, records: Iterable[Record], config: Mapping[str, Any]) -> 'Patience':
    """Returns the patience that is left after the records of metrics.jsonl."""
    every, last = config['checkpoint_every_steps'], config['train_steps']
    patience = cls(config['patience'])
    for record in records:
      # The former last step of a prolonged run may be off the interval.
      is_due = record['step'] == last or not record['step'] % every
      if 'dev_perplexity' in record and is_due:
        perplexity = record['dev_perplexity']
        patience.add(math.nan if perplexity is None else perplexity)
    return patience

  def add(self, perplexity: float) -> None:
    """Takes the next measurement; NaN is worse than any number."""
    if perplexity < self._best:
      self._best, self._worse = perplexity, 0
    else:
      self._worse += 1

  @property
  def ended(self) -> bool:
    """Whether training ends now."""
    return 0 < self.limit <= self._worse
