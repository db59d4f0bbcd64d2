"""A small model on a small mix of news, parliament, software and everyday sentences.

  python -m scripts.train --config=configs/newsmix.py:en-de --workdir=runs/newsmix \\
    --raw_dir=DIR_WITH_newsmix/_AND_newstest/

For experiments between Multi30k and WMT14: 248,643 pairs (en-de) or 235,152 (en-fr) in
newsmix/PAIR/train.LANGUAGE, scored on newstest2013 and newstest2014 in
newstest/PAIR/newstest2013.LANGUAGE ... 7.6 M parameters. It has not been trained to its
end: neither its hours nor its scores are known.
"""

import ml_collections

from configs import base


def get_config(pair: str = 'en-de') -> ml_collections.ConfigDict:
  """Returns the config; `pair` is en-de, en-fr, or the reverse."""
  config = base.get_config(pair)
  config.row = None
  config.data.name = f'newsmix.{pair}'
  config.data.reader = 'files'
  folder = 'en-fr' if 'fr' in pair else 'en-de'
  config.data.files.update(
    train=(f'newsmix/{folder}/train',),
    dev=(f'newstest/{folder}/newstest2013',),
    test=(f'newstest/{folder}/newstest2014',),
  )
  config.model.update(N=3, d_model=256, d_ff=1024, h=4, d_k=64, d_v=64, vocab_size=8000)
  config.tokens_per_batch = 8000
  config.train_steps = 12_000
  config.warmup_steps = 2000
  config.checkpoint_every_steps = 600
  return config
