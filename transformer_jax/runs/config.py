"""The keys of a run's config, what values they may have, and how two configs differ.

configs/base.py says what they mean; those under `data` are in data/corpus.py.
"""

import functools
import json
import operator
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import ml_collections
import msgspec
from msgspec import Meta

from transformer_jax.data.corpus import Count, Data, FromZero, Name, Schema
from transformer_jax.machine.errors import UserError

Few = Annotated[int, Meta(ge=1, le=2**10)]
FewOrNone = Annotated[int, Meta(ge=0, le=2**10)]
Width = Annotated[int, Meta(ge=1, le=2**16)]
Tokens = Annotated[int, Meta(ge=1, le=10**7)]
# A learning rate that overflows float32 would make all parameters infinite.
Positive = Annotated[float, Meta(gt=0, le=1000)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
Dropout = Annotated[float, Meta(ge=0, le=0.999)]  # divides by 1 - rate
DType = Literal['auto', 'float32', 'bfloat16']


class Model(Schema):
  """The keys of config.model."""

  N: Few
  d_model: Width
  d_ff: Width
  h: Few
  d_k: Width
  d_v: Width
  P_drop: Dropout
  P_drop_attention: Dropout
  positions: Literal['sinusoid', 'learned']
  max_positions: Width
  # Four ids stand for no text, and files hold uint16.
  vocab_size: Annotated[int, Meta(ge=5, le=2**16)]
  target_vocab_size: Annotated[int, Meta(ge=0, le=2**16)]


class InitFrom(Schema):
  """The keys of config.init_from."""

  run: str
  step: FromZero
  sha256: str
  vocabulary: str


class Config(Schema):
  """The keys of a config."""

  task: Name
  row: str | None
  data: Data
  tokens_per_batch: Tokens
  slices: Width
  max_shapes: Few
  model: Model
  epsilon_ls: BelowOne
  train_steps: Count
  warmup_steps: Count
  rate_factor: Positive
  adam_b1: BelowOne
  adam_b2: BelowOne
  adam_epsilon: Positive
  checkpoint_every_steps: Count
  keep_checkpoints: Count
  average_last: Count
  best_by: Literal['', 'perplexity', 'bleu']
  bleu_every_checkpoints: Count
  bleu_sentences: Count
  patience: FewOrNone
  init_from: InitFrom
  beam: Few
  alpha: Annotated[float, Meta(ge=-10, le=10)]
  extra_length: FewOrNone
  constrained: bool
  decode_tokens: Tokens
  decode_dtype: DType
  seed: FromZero
  dtype: DType
  log_every_steps: Count


def as_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns what config.json holds: plain dictionaries, and lists for tuples."""
  return json.loads(config.to_json_best_effort())


def check(config: Mapping[str, Any], flag: str = '--config.') -> None:
  """Raises UserError if a key is missing, unknown, or has a value that no run can have.

  `flag` begins the command-line flags that set a key, which the message names.
  """
  try:
    msgspec.convert(config, Config)
  except msgspec.ValidationError as error:
    raise UserError(_sentence(str(error), config, flag)) from error
  model = config['model']
  written = 'target_vocab_size' if model['target_vocab_size'] else 'vocab_size'
  if config['beam'] > model[written]:
    raise UserError(
      f'beam={config["beam"]}: no more than {written}={model[written]} ({flag}beam)'
    )
  if config['keep_checkpoints'] < config['average_last']:
    raise UserError(
      f'keep_checkpoints={config["keep_checkpoints"]} are too few to average the last '
      f'{config["average_last"]} (--config.keep_checkpoints, --config.average_last)'
    )
  longest, most = config['data']['max_length'], model['max_positions']
  if model['positions'] == 'learned' and longest > most:
    raise UserError(
      f'max_length={longest} is more than the model learns positions for, '
      f'max_positions={most} (--config.data.max_length, --config.model.max_positions)'
    )


def _sentence(error: str, config: Mapping[str, Any], flag: str) -> str:
  """Returns msgspec's error with the key, its value and the flag that sets it."""
  text, _, path = error.partition(' - at ')
  keys = re.search(r'`\$\.?([^`[]*)', path)
  key = keys[1] if keys else ''
  if 'field `' in text:
    where = f' in {key}' if key else ''
    return f'{text}{where}: configs/base.py has the keys that this version knows'
  value = functools.reduce(operator.getitem, key.split('.'), config)
  return f'{key}={value}: {text} ({flag}{key})'


def flat(config: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Returns the values of a nested dictionary under dotted names."""
  values = {}
  for key, value in config.items():
    inner = flat(value, f'{prefix}{key}.') if isinstance(value, Mapping) else None
    values |= {prefix + key: value} if inner is None else inner
  return values


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
  """Returns dotted names of the entries in which two nested dictionaries differ."""
  a, b = flat(a), flat(b)
  absent = object()
  return {
    key for key in a.keys() | b.keys() if a.get(key, absent) != b.get(key, absent)
  }
