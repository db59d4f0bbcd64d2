"""The base model of Table 3, trained as section 5 says, on WMT14.

  python -m scripts.train --config=configs/base.py:en-de --workdir=runs/base.en-de

63.0 M parameters (V=37,000). The paper: 100,000 steps, 12 hours on 8 P100, 25.8 BLEU on
newstest2013, 27.3 (en-de) and 38.1 (en-fr) on newstest2014.

transformer_jax/config.py declares all keys, with the values of en-de.
"""

import ml_collections
from ml_collections import config_dict

from transformer_jax import config as configs

PAIRS = ('en-de', 'en-fr', 'de-en', 'fr-en')  # source-target


def get_config(pair: str = 'en-de') -> ml_collections.ConfigDict:
  """Returns the config of the base model, with every key. `pair` is one of PAIRS."""
  if pair not in PAIRS:
    raise ValueError(f'unknown pair of languages {pair!r}: {", ".join(PAIRS)}')
  config = ml_collections.ConfigDict(configs.base())
  config.row = config_dict.FieldReference(config.row, field_type=str)  # or None
  config.data.name = f'wmt14.{pair}'
  config.data.source_language, config.data.target_language = pair.split('-')
  config.model.vocab_size = 32000 if 'fr' in pair else 37000
  return config.lock()
