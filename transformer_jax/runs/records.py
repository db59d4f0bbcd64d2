"""What metrics.jsonl holds: records of steps, of checkpoints and of measurements."""

import json
import pathlib

from transformer_jax.machine.errors import UserError

# Types of those values of a record that are computed with.
RECORD = dict.fromkeys(('step', 'target_tokens', 'steps', 'skipped'), (int,))
RECORD |= {'loss': (float, int), 'seconds': (float, int)}
# null stands for NaN.
RECORD |= dict.fromkeys(('dev_perplexity', 'dev_bleu'), (float, int, type(None)))
RECORD |= dict.fromkeys(('device', 'commit'), (str,))


def read_records(metrics: pathlib.Path) -> list[dict]:
  """The records of a metrics.jsonl, one a line; none if the file is not there.

  An incomplete line is left out: it is being written now, or its writer was killed.

  Raises:
    UserError: a line is no record of a step; the message names it.
  """
  if not metrics.is_file():
    return []
  found = []
  for number, line in enumerate(metrics.read_bytes().splitlines(), 1):
    if line.endswith(b'}'):
      try:
        record = json.loads(line)
      except (ValueError, RecursionError) as error:
        raise UserError(f'{metrics}, line {number}: {error}') from error
      if not _is_record(record):
        raise UserError(f'{metrics}, line {number}: no record of a step')
      found.append(record)
  return found


def _is_record(record: object) -> bool:
  """Whether a value is a record: it has a step, and its fields have their types."""
  if not isinstance(record, dict) or 'step' not in record:
    return False
  return all(type(record[key]) in RECORD[key] for key in RECORD.keys() & record.keys())


def best_of(records: list[dict], by: str) -> int | None:
  """The step with the best dev 'perplexity' or 'bleu'; None if none was measured.

  With '', no step is the best.
  """
  if not by:
    return None
  key, sign = f'dev_{by}', {'perplexity': 1, 'bleu': -1}[by]
  found = [(sign * r[key], r['step']) for r in records if r.get(key) is not None]
  return min(found)[1] if found else None
