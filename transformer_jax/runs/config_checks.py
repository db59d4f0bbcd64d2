"""What the config of a run must say: its keys, its values, and how two differ."""

import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from transformer_jax.machine.errors import UserError

MODEL = {'N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'max_positions', 'vocab_size'}
MODEL |= {'P_drop', 'P_drop_attention', 'positions', 'target_vocab_size'}
MODEL |= {'activation', 'biases'}
MODEL |= {'norm_epsilon'}

# Without these keys no run can be translated with or scored.
NEEDED = {'task', 'data', 'model', 'data.name', 'data.tokenized'}
NEEDED |= {'data.source_language', 'data.target_language'}
NEEDED |= {'beam', 'alpha', 'extra_length', 'decode_tokens', 'decode_dtype', 'dtype'}
NEEDED |= {'average_last', 'checkpoint_every_steps', 'slices', 'seed'}
NEEDED |= {f'model.{key}' for key in MODEL}

LARGEST = 2**31 - 1  # steps and seeds are of 32 bits on the devices

# The whole numbers of a config, by the least and the most that each may be.
COUNTS = ('train_steps', 'warmup_steps', 'checkpoint_every_steps', 'log_every_steps')
COUNTS += ('keep_checkpoints', 'average_last', 'data.cleaning.max_characters')
COUNTS += ('bleu_every_checkpoints', 'bleu_sentences')
WIDTHS = tuple(f'model.{size}' for size in ('d_model', 'd_ff', 'd_k', 'd_v'))
WHOLE = {
  (1, LARGEST): COUNTS,
  (0, LARGEST): ('seed', 'data.seed', 'init_from.step'),
  (1, 2**32 - 1): ('data.train_pairs', 'data.vocabulary_pairs'),
  (1, 10**7): ('tokens_per_batch', 'decode_tokens'),
  (1, 2**16): ('slices', 'model.max_positions', *WIDTHS),
  (5, 2**16): ('model.vocab_size',),  # four ids stand for no text; files hold uint16
  (2, 2**13): ('data.max_length',),  # attention takes memory as its square
  (1, 2**10): ('max_shapes', 'beam', 'model.N', 'model.h'),
  (0, 2**10): ('extra_length', 'patience'),
  (0, 2**16): ('model.target_vocab_size',),
}


def _finite(value: object) -> bool:
  return type(value) in (int, float) and math.isfinite(value)


def _whole(least: int, most: int) -> Callable[[object], bool]:
  return lambda value: type(value) is int and least <= value <= most


def _one_of(*choices: str) -> tuple[str, Callable[[object], bool]]:
  return ' or '.join(map(repr, choices)), lambda value: value in choices


def _names(value: object) -> bool:
  one_each = isinstance(value, list | tuple) and bool(value)
  return isinstance(value, str) or (
    one_each and all(isinstance(name, str) for name in value)
  )


# What a value must be, in words and as a test, and the keys.
VALUES: list[tuple[str, Callable[[Any], bool], tuple[str, ...]]] = [
  *(
    (f'a whole number from {ends[0]:,} to {ends[1]:,}', _whole(*ends), keys)
    for ends, keys in WHOLE.items()
  ),
  (
    'more than 0, and 1,000 at most',  # a rate beyond float32 would make all infinite
    lambda x: _finite(x) and 0 < x <= 1000,
    ('rate_factor', 'adam_epsilon', 'model.norm_epsilon'),
  ),
  (
    'from 0 to less than 1',
    lambda x: _finite(x) and 0 <= x < 1,
    ('epsilon_ls', 'adam_b1', 'adam_b2'),
  ),
  (
    'from 0 to 0.999',  # what is kept is divided by the rest
    lambda x: _finite(x) and 0 <= x <= 0.999,
    ('model.P_drop', 'model.P_drop_attention'),
  ),
  ('from -10 to 10', lambda x: _finite(x) and -10 <= x <= 10, ('alpha',)),
  (
    '1 or more, and finite',
    lambda x: _finite(x) and x >= 1,
    ('data.cleaning.max_ratio',),
  ),
  (
    'from 0 to 1',
    lambda x: _finite(x) and 0 <= x <= 1,
    ('data.cleaning.min_alphanumeric',),
  ),
  (
    'from 0.98 to 1',  # as SentencePiece has it
    lambda x: _finite(x) and 0.98 <= x <= 1,
    ('data.character_coverage',),
  ),
  (*_one_of('auto', 'float32', 'bfloat16'), ('dtype', 'decode_dtype')),
  (*_one_of('sinusoid', 'learned'), ('model.positions',)),
  (*_one_of('relu', 'swish'), ('model.activation',)),
  (
    'True or False',
    lambda x: isinstance(x, bool),
    (
      'data.tokenized',
      'data.byte_fallback',
      'data.tags',
      'data.numbers',
      'data.whole_words',
      'data.cleaning.off',
      'data.cleaning.drop_untranslated',
      'model.biases',
    ),
  ),
  (
    'text',
    lambda x: isinstance(x, str),
    ('task', 'data.name', 'data.reader', 'data.source_language')
    + ('data.target_language', 'data.suffix', 'data.raw_dir')
    + ('init_from.run', 'init_from.sha256', 'init_from.vocabulary'),
  ),
  (*_one_of('', 'perplexity', 'bleu'), ('best_by',)),
  ('names', _names, ('data.files.train', 'data.files.dev', 'data.files.test')),
]


# Keys that were added after runs had been made, and what a run without the key does.
# LATER_IN_MODEL has those of config.model.
LATER = {
  'best_by': '',
  'bleu_every_checkpoints': 1,
  'bleu_sentences': 500,
  'patience': 0,
  'init_from': {'run': '', 'step': 0, 'sha256': '', 'vocabulary': ''},
}
LATER_IN_MODEL = {
  'target_vocab_size': 0,
  'activation': 'relu',
  'biases': False,
  'norm_epsilon': 1e-6,
  'P_drop_attention': 0.0,
}


# until results/ are migrated: the keys of config.data where configs were flat
FLAT = {'corpus': 'name', 'corpus_seed': 'seed'} | {
  key: key
  for key in ('reader', 'source_language', 'target_language', 'raw_dir', 'files')
  + ('suffix', 'tokenized', 'cleaning', 'tags', 'numbers', 'whole_words', 'max_length')
  + ('train_pairs', 'vocabulary_pairs', 'character_coverage', 'byte_fallback')
}


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
  """A config of before there was config.data, as one of today."""
  if 'corpus' not in config:  # until results/ are migrated
    return dict(config)
  later = {'raw_dir': '', 'tags': True, 'numbers': False, 'whole_words': False}
  data = {
    FLAT[key]: value for key, value in (later | dict(config)).items() if key in FLAT
  }
  return {key: config[key] for key in config if key not in FLAT} | {'data': data}


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
  """A run's config with the keys of LATER that it lacks."""
  config = LATER | dict(config)
  if 'model' in config and isinstance(config['model'], Mapping):
    config['model'] = LATER_IN_MODEL | config['model']
  return config


def check_keys(
  config: Mapping[str, Any], path: pathlib.Path, to_train: bool = False
) -> None:
  """Raises UserError if the config that was read from `path` is not whole.

  `to_train`: also what only training needs must be there.
  """
  needed = NEEDED | {key for *_, keys in VALUES for key in keys} if to_train else NEEDED
  if 'corpus' in config:
    raise UserError(f'{path} was written by an older version: train it again')
  if 'data' not in config:
    raise UserError(
      f'{path} is not the config of a run. (A model of Hugging Face becomes a run by '
      'scripts.import_model)'
    )
  if missing := ', '.join(sorted(needed - _flat(config).keys())):
    raise UserError(
      f'{path} lacks {missing}: another version of this code wrote it. Take that '
      'version, or write in what configs/base.py has'
    )
  if unknown := ', '.join(sorted(config['model'].keys() - MODEL)):
    raise UserError(f'{path} has model.{unknown}, which this version does not know')
  try:
    check_numbers(config)
  except UserError as error:
    raise UserError(f'{path}: {error}') from error


def check_numbers(config: Mapping[str, Any], flag: str = '--config.') -> None:
  """Raises UserError for a value that no run can have.

  `flag` begins the command-line flags that set a key, which the message names.
  """
  flat = _flat(config)
  for words, is_right, keys in VALUES:
    for key in keys:
      if key in flat and not is_right(flat[key]):
        raise UserError(f'{key}={flat[key]}: {words} ({flag}{key})')
  written = 'target_vocab_size' if flat['model.target_vocab_size'] else 'vocab_size'
  if flat['beam'] > (pieces := flat[f'model.{written}']):
    raise UserError(
      f'beam={flat["beam"]}: no more than {written}={pieces} ({flag}beam)'
    )
  if 'keep_checkpoints' in flat and flat['keep_checkpoints'] < flat['average_last']:
    raise UserError(
      f'keep_checkpoints={flat["keep_checkpoints"]} are too few to average the last '
      f'{flat["average_last"]} (--config.keep_checkpoints, --config.average_last)'
    )


def check_new(config: Mapping[str, Any]) -> None:
  """Raises UserError if a new run could not be trained to its end with this config."""
  longest, most = config['data']['max_length'], config['model']['max_positions']
  if config['model']['positions'] == 'learned' and longest > most:
    raise UserError(
      f'data.max_length={longest} is more than the model learns positions for, '
      f'max_positions={most} (--config.data.max_length, --config.model.max_positions)'
    )


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
  """All values of a config; those of its inner objects under dotted names."""
  flat = {}
  for key, value in config.items():
    inner = _flat(value) if isinstance(value, Mapping) else {}
    flat |= {key: value} | {f'{key}.{name}': one for name, one in inner.items()}
  return flat


def differences(a: dict, b: dict, prefix: str = '') -> set[str]:
  """Dotted names of the entries in which two nested dictionaries differ."""
  found = set()
  for key in a.keys() | b.keys():
    name = f'{prefix}{key}'
    if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
      found |= differences(a[key], b[key], f'{name}.')
    elif key not in a or key not in b or a[key] != b[key]:
      found.add(name)
  return found
