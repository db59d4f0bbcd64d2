"""Reads metrics.jsonl: its records, the best step, and whether patience has ended."""

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


def patience_has_ended(records: Iterable[Record], config: Mapping[str, Any]) -> bool:
  """Returns True if `patience` dev scores in a row had no new best, so training ends.

  Scores are of the measure that best_by names, or else perplexity, at checkpoints. A
  step that was measured again, after a stop between two measurements, counts once.
  """
  by, every = config['best_by'] or 'perplexity', config['checkpoint_every_steps']
  # The former last step of a prolonged run may be off the interval.
  is_due = lambda step: step == config['train_steps'] or not step % every
  dev = {r['step']: r for r in records if f'dev_{by}' in r and is_due(r['step'])}
  best = best_step(dev.values(), by)
  worse = sum(best is None or step > best for step in dev)
  return 0 < config['patience'] <= worse
