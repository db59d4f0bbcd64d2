"""The config of most tests: a tiny model, and a corpus that counts in two languages."""

from typing import Any

from ml_collections import ConfigDict

from configs import base

TINY = {
  'data.name': 'toy',
  'data.reader': 'files',
  'data.files.dev': ('dev',),
  'data.files.test': ('test',),
  'data.cleaning.drop_untranslated': False,
  'data.cleaning.min_alphanumeric': 0.0,
  'data.vocabulary_pairs': 1000,
  'data.character_coverage': 1.0,
  'data.byte_fallback': False,
  'data.max_length': 64,
  'model.N': 1,
  'model.d_model': 16,
  'model.d_ff': 32,
  'model.h': 2,
  'model.d_k': 8,
  'model.d_v': 8,
  'model.vocab_size': 60,
}


def tiny(**changes: Any) -> ConfigDict:
  """Returns base with the values of TINY, and others by their dotted names."""
  config = base.get_config()
  config.update_from_flattened_dict(TINY | changes)
  return config
