"""The declarations of all keys, and the checks of their values."""

import functools
import math
import re

import msgspec
import pytest

from configs import base
from transformer_jax import config as configs
from transformer_jax.config import BOOKKEEPING, CORPUS, MODEL, SEARCH, TRAINING
from transformer_jax.machine.errors import UserError


@pytest.mark.parametrize('name', configs.KEYS)
def test_a_key_declares_all_of_itself(name: str):
  """It has a tag, a meaning, a value in base, and a range if it is a number."""
  key = configs.KEYS[name]
  assert key.tags & (CORPUS | MODEL | TRAINING | SEARCH | BOOKKEEPING)
  assert key.meaning.endswith('.')
  msgspec.convert(key.base, key.type)
  if type(key.base) in (int, float):
    for beyond in (-(2**62), 2**62):
      with pytest.raises(msgspec.ValidationError):
        msgspec.convert(type(key.base)(beyond), key.type)


def edited(values: dict[str, object]) -> dict:
  """Returns base as a config.json, with other values at dotted names."""
  config = configs.as_json(base.get_config())
  for name, value in values.items():
    *outer, last = name.split('.')
    functools.reduce(dict.__getitem__, outer, config)[last] = value
  return config


LONG = {'data.max_length': 300, 'model.positions': 'learned'}
REFUSED = [
  *(
    ({key: value}, re.escape(f'{key}={value}: ') + f'.*--config.{key}')
    for key, value in (
      ('slices', 0),
      ('model.vocab_size', 2**16 + 1),  # files hold uint16
      ('train_steps', 2**31),
      *(('rate_factor', x) for x in (0.0, 1e38, math.nan, math.inf)),
      *((k, x) for k in ('epsilon_ls', 'model.P_drop', 'adam_b1') for x in (1.0, -0.1)),
      ('model.positions', 'rotary'),
      ('data.files.train', 'train'),
      # Values of another type, as in a config.json that was edited by hand
      ('beam', '4'),
    )
  ),
  ({'model': []}, r'model=\[\]: '),
  ({'data.files': {'train': ['train']}}, 'data.files.dev is missing: '),
  ({'data.cleaning.gates': 2}, 'data.cleaning.gates is unknown: '),
  ({'model.P_drop': 0.5 / 65536}, 'model.P_drop=7.* drops nothing, .* 0, or 8e-06 or'),
  # Values that do not go together
  ({'beam': 31, 'model.vocab_size': 30}, 'beam=31 is more than vocab_size=30 '),
  ({'beam': 5, 'model.target_vocab_size': 4}, 'beam=5 is more than target_vocab_size'),
  ({'keep_checkpoints': 4}, 'keep_checkpoints=4 is too few to average the last 5 '),
  (LONG, 'max_length=300 .* max_positions=256'),
]


@pytest.mark.parametrize(('values', 'message'), REFUSED)
def test_what_no_run_can_have(values: dict[str, object], message: str):
  with pytest.raises(UserError, match=f'^{message}'):
    configs.check(edited(values))


def test_what_runs_can_have():
  for values in (
    {'beam': 30, 'model.vocab_size': 30},
    {'keep_checkpoints': 5},
    {'data.max_length': 300},
    LONG | {'model.max_positions': 300},
  ):
    configs.check(edited(values))
