"""What the config of a run must say."""

import json
import math
import pathlib

import pytest

from configs import base
from transformer_jax.machine.errors import UserError
from transformer_jax.runs import config_checks


def config_with(**values: object) -> dict:
  config = base.get_config()
  config.update_from_flattened_dict(values)
  return json.loads(config.to_json_best_effort())


@pytest.mark.parametrize(
  ('key', 'value'),
  [(k, ends[0] - 1) for ends, keys in config_checks.WHOLE.items() for k in keys]
  + [(k, ends[1] + 1) for ends, keys in config_checks.WHOLE.items() for k in keys]
  + [('rate_factor', x) for x in (0.0, math.inf, math.nan, 1e38)]
  + [('adam_epsilon', x) for x in (0.0, math.inf, math.nan)]
  + [('alpha', x) for x in (math.inf, math.nan, -11.0)]
  + [(k, x) for k in ('epsilon_ls', 'model.P_drop') for x in (1.0, -0.1, math.nan)]
  + [(k, x) for k in ('adam_b1', 'adam_b2') for x in (1.0, -0.1, math.nan)]
  + [('data.cleaning.max_ratio', x) for x in (0.5, math.inf, math.nan)]
  + [('data.cleaning.min_alphanumeric', x) for x in (-0.1, 1.1, math.nan)]
  + [('data.character_coverage', x) for x in (0.5, 1.1, math.nan)]
  + [('dtype', 'half'), ('decode_dtype', ''), ('model.positions', 'rotary')]
  + [('data.files.train', ()), ('data.files.dev', (1,))],
)
def test_values_that_no_run_can_have(key: str, value: object):
  with pytest.raises(UserError) as caught:
    config_checks.check_numbers(config_with(**{key: value}))
  said = str(caught.value)
  assert said.startswith(f'{key}=') and said.endswith(f' (--config.{key})')


def test_every_number_of_a_config_has_its_range():
  """And so has every other value, but for what its reader checks."""
  checked = {key for _, _, keys in config_checks.VALUES for key in keys}
  there, nested = set(), [('', config_with())]
  for prefix, inner in nested:
    nested += [(f'{prefix}{k}.', x) for k, x in inner.items() if isinstance(x, dict)]
    there |= {f'{prefix}{k}' for k, x in inner.items() if not isinstance(x, dict)}
  assert there - checked == {'row'} and checked <= there


def test_more_beams_than_words_of_the_target():
  own = {'beam': 31, 'model.vocab_size': 50, 'model.target_vocab_size': 30}
  with pytest.raises(UserError, match=r'beam=31: no more than target_vocab_size=30 '):
    config_checks.check_numbers(config_with(**own))


def test_pairs_are_no_longer_than_learnt_positions():
  """In a new run; one that was trained nevertheless can be used."""
  own = {'data.max_length': 300, 'model.positions': 'learned'}
  config_checks.check_new(config_with(**{'data.max_length': 300}))
  config_checks.check_numbers(config_with(**own))
  with pytest.raises(UserError, match='data.max_length=300 .* max_positions=256'):
    config_checks.check_new(config_with(**own))
  config_checks.check_new(config_with(**own | {'model.max_positions': 300}))


def test_more_beams_than_words():
  with pytest.raises(UserError, match=r'beam=31: no more than vocab_size=30 '):
    config_checks.check_numbers(config_with(**{'beam': 31, 'model.vocab_size': 30}))


@pytest.mark.parametrize(
  ('key', 'value', 'said'),
  [
    ('beam', '4', 'beam=4: a whole number from 1'),
    ('beam', True, 'beam=True: a whole number'),
    ('alpha', None, 'alpha=None: from -10'),
    ('data', {'name': 5}, ' lacks data.'),
    ('model', [], ' lacks model.N, model.P_drop, '),
  ],
)
def test_values_of_another_type(key: str, value: object, said: str):
  """As in a config.json that was edited by hand."""
  path = pathlib.Path('run/config.json')
  with pytest.raises(UserError) as caught:
    config_checks.check_keys(config_with() | {key: value}, path)
  assert said in str(caught.value) and str(path) in str(caught.value)


def test_a_key_of_another_versions_model():
  config = config_with()
  config['model']['gates'] = 2
  with pytest.raises(UserError, match=r'^config.json has model.gates, which this ver'):
    config_checks.check_keys(config, pathlib.Path('config.json'))


def test_fewer_are_kept_than_averaged():
  with pytest.raises(UserError, match='=4 are too few to average the last 5'):
    config_checks.check_numbers(config_with(keep_checkpoints=4, average_last=5))
  config_checks.check_numbers(config_with(keep_checkpoints=4, average_last=4))


def test_keys_that_another_version_did_not_have():
  config, path = config_with(), pathlib.Path('run/config.json')
  config_checks.check_keys(config, path)
  for lacking in ('decode_dtype', 'beam'):
    del config[lacking]
  with pytest.raises(UserError, match='config.json lacks beam, decode_dtype: another'):
    config_checks.check_keys(config, path)
  with pytest.raises(UserError, match='is not the config of a run.*import_model'):
    config_checks.check_keys({'model_type': 'marian', 'd_model': 512}, path)


def test_differences():
  a = {'x': 1, 'model': {'N': 6, 'h': 8}, 'old': 0}
  b = {'x': 1, 'model': {'N': 2, 'd_k': 4, 'h': 8}}
  assert config_checks.differences(a, b) == {'model.N', 'model.d_k', 'old'}
