"""The scores of a parser that is no run, which Table 4 shows beside runs."""

import dataclasses
import json
import pathlib

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing.parses import Parsing
from transformer_jax.runs import fields

KIND = 'baseline of parsing'


@dataclasses.dataclass(frozen=True)
class Baseline:
  """What a parser made of a treebank's sentences."""

  kind: str  # KIND
  parser: str
  train: list[str]  # files of trees
  test: str
  parsing: Parsing
  device: str
  commit: str | None  # None outside a checkout

  def write(self, path: pathlib.Path) -> None:
    files.write_json(path, dataclasses.asdict(self))


def read(path: pathlib.Path) -> Baseline | None:
  """What write() wrote; None if the file is something else, or damaged.

  Raises:
    UserError: parts of it are missing.
  """
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError, RecursionError):
    return None
  if not isinstance(found, dict) or 'kind' not in found or found['kind'] != KIND:
    return None
  if wrong := ', '.join(fields.faults(found, Baseline)):
    raise UserError(f'{path}: missing or of another type: {wrong}; make it again')
  return fields.from_json(Baseline, found)
