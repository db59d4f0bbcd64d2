"""The declarations of all keys, and the checks of their values."""

import math

import msgspec
import pytest

from configs import base
from transformer_jax import config as configs
from transformer_jax.config import BOOKKEEPING, CORPUS, MODEL, SEARCH, TRAINING
from transformer_jax.machine.errors import UserError


def config_with(**values: object) -> dict:
  config = base.get_config()
  config.update_from_flattened_dict(values)
  return configs.as_json(config)


def edited(key: str, value: object) -> dict:
  """Returns the config as JSON with another value at a dotted key; '-' deletes it."""
  config = config_with()
  *outer, last = key.split('.')
  owner = config
  for name in outer:
    owner = owner[name]
  owner[last] = value
  if value == '-':
    del owner[last]
  return config


@pytest.mark.parametrize('name', configs.KEYS)
def test_a_key_declares_all_of_itself(name: str):
  """It has a tag, a meaning, a value in base, and a range if it is a number."""
  key = configs.KEYS[name]
  assert key.tags & {CORPUS, MODEL, TRAINING, SEARCH, BOOKKEEPING}
  assert key.meaning.endswith('.')
  msgspec.convert(key.base, key.type)
  if type(key.base) in (int, float):
    for beyond in (-(2**62), 2**62):
      with pytest.raises(msgspec.ValidationError):
        msgspec.convert(type(key.base)(beyond), key.type)


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    ('slices', 0),
    ('train_steps', 2**31),
    *((key, x) for key in ('rate_factor', 'adam_epsilon') for x in (0.0, 1e38)),
    *(('rate_factor', x) for x in (math.nan, math.inf)),
    ('alpha', -11.0),
    *((k, x) for k in ('epsilon_ls', 'model.P_drop', 'adam_b1') for x in (1.0, -0.1)),
    ('dtype', 'half'),
    ('model.positions', 'rotary'),
    ('data.files.train', []),
    ('data.files.train', 'train'),
    # Values of another type, as in a config.json that was edited by hand
    ('beam', '4'),
    ('data.tokenized', 'no'),
    ('model', []),
  ],
)
def test_values_that_no_run_can_have(key: str, value: object):
  with pytest.raises(UserError) as caught:
    configs.check(edited(key, value))
  text = str(caught.value)
  assert text.startswith(f'{key}=') and text.endswith(f' (--config.{key})')


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  [
    ('beam', '-', 'beam is missing: '),
    ('data.files.dev', '-', 'data.files.dev is missing: '),
    ('data.cleaning.gates', 2, 'data.cleaning.gates is unknown: '),
  ],
)
def test_keys_of_another_version(key: str, value: object, message: str):
  with pytest.raises(UserError, match=f'^{message}transformer_jax/config.py declares'):
    configs.check(edited(key, value))


@pytest.mark.parametrize(
  ('values', 'start'),
  [
    ({'beam': 31, 'model.vocab_size': 30}, 'beam=31: no more than vocab_size=30 '),
    (
      {'beam': 31, 'model.vocab_size': 50, 'model.target_vocab_size': 30},
      'beam=31: no more than target_vocab_size=30 ',
    ),
    (
      {'keep_checkpoints': 4, 'average_last': 5},
      'keep_checkpoints=4 are too few to average the last 5 ',
    ),
  ],
)
def test_values_that_do_not_go_together(values: dict, start: str):
  with pytest.raises(UserError) as caught:
    configs.check(config_with(**values))
  assert str(caught.value).startswith(start)
  first, value = next(iter(values.items()))
  configs.check(config_with(**values | {first: value - 1, 'average_last': 1}))


def test_pairs_are_no_longer_than_learnt_positions():
  own = {'data.max_length': 300, 'model.positions': 'learned'}
  configs.check(config_with(**{'data.max_length': 300}))
  with pytest.raises(UserError, match='max_length=300 .* max_positions=256'):
    configs.check(config_with(**own))
  configs.check(config_with(**own | {'model.max_positions': 300}))
