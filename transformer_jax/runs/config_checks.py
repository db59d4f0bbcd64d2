"""What the config of a run must say: its keys, its numbers, and how two differ."""

import pathlib
from collections.abc import Callable

from transformer_jax.machine.errors import UserError

# Without these keys no run can be translated with or scored.
NEEDED = {'task', 'corpus', 'source_language', 'target_language', 'tokenized', 'model'}
NEEDED |= {'beam', 'alpha', 'extra_length', 'decode_tokens', 'decode_dtype', 'dtype'}
NEEDED |= {'average_last', 'checkpoint_every_steps', 'slices', 'seed'}

# The numbers of a config by the range that each must be in: the range in words, a
# test for it, and the keys.
COUNTS = ('slices', 'tokens_per_batch', 'max_shapes', 'train_steps', 'warmup_steps')
COUNTS += ('checkpoint_every_steps', 'keep_checkpoints', 'average_last')
COUNTS += ('log_every_steps', 'beam', 'decode_tokens')
SIZES = 'N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'max_positions'
COUNTS += tuple(f'model.{size}' for size in SIZES)
RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
  '1 or more': (lambda x: x >= 1, COUNTS),
  '0 or more': (lambda x: x >= 0, ('seed', 'extra_length')),
  'more than 0': (lambda x: x > 0, ('rate_factor', 'adam_epsilon')),
  'from 0 to less than 1': (
    lambda x: 0 <= x < 1,
    ('model.P_drop', 'epsilon_ls', 'adam_b1', 'adam_b2'),
  ),
}


def check_keys(config: dict, path: pathlib.Path) -> None:
  """Raises UserError if the config that was read from `path` lacks a key."""
  if missing := ', '.join(sorted(NEEDED - config.keys())):
    raise UserError(
      f'{path} lacks {missing}: another version of this code wrote it. Take that '
      'version, or write in what configs/base.py has'
    )


def check_numbers(config: dict) -> None:
  """Raises UserError for a number that no run can have."""
  flat = config | {f'model.{key}': value for key, value in config['model'].items()}
  for words, (is_in_range, keys) in RANGES.items():
    for key in keys:
      if not is_in_range(flat[key]):
        raise UserError(f'{key}={flat[key]}: {words} (--config.{key})')
  keep, average = config['keep_checkpoints'], config['average_last']
  if keep < average:
    raise UserError(
      f'keep_checkpoints={keep} are too few to average the last {average} '
      '(--config.keep_checkpoints, --config.average_last)'
    )


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
