"""What the config of a run must say."""

import json
import pathlib

import pytest

from configs import base
from transformer_jax.runs import config_checks


def config_with(**values: float) -> dict:
  config = base.get_config()
  config.update_from_flattened_dict(values)
  return json.loads(config.to_json_best_effort())


@pytest.mark.parametrize(
  ('key', 'value'),
  [(key, 0) for key in config_checks.COUNTS]
  + [('beam', -1), ('model.h', -3), ('seed', -1), ('extra_length', -1)]
  + [('rate_factor', 0.0), ('adam_epsilon', 0.0), ('adam_b2', 1.0)]
  + [('model.P_drop', 1.0), ('model.P_drop', -0.1), ('epsilon_ls', 1.0)],
)
def test_numbers_that_no_run_can_have(key: str, value: float):
  with pytest.raises(ValueError, match=rf'^{key}={value}: .* \(--config\.{key}\)$'):
    config_checks.check_numbers(config_with(**{key: value}))


def test_fewer_are_kept_than_averaged():
  with pytest.raises(ValueError, match='=4 are too few to average the last 5'):
    config_checks.check_numbers(config_with(keep_checkpoints=4, average_last=5))
  config_checks.check_numbers(config_with(keep_checkpoints=4, average_last=4))


def test_keys_that_another_version_did_not_have():
  config, path = config_with(), pathlib.Path('run/config.json')
  config_checks.check_keys(config, path)
  for lacking in ('decode_dtype', 'beam'):
    del config[lacking]
  with pytest.raises(ValueError, match='config.json lacks beam, decode_dtype: another'):
    config_checks.check_keys(config, path)


def test_differences():
  a = {'x': 1, 'model': {'N': 6, 'h': 8}, 'old': 0}
  b = {'x': 1, 'model': {'N': 2, 'd_k': 4, 'h': 8}}
  assert config_checks.differences(a, b) == {'model.N', 'model.d_k', 'old'}
