"""Multi30k's image captions (29,000 pairs), with a small model of 4 layers.

  python -m scripts.train --config=configs/multi30k.py:en-de --workdir=runs/multi30k \\
    --raw_dir=DIR_WITH_train.en_train.de_val.en_...

`multi30k:en-de,lowercase` reads the lower-cased, normalised, tokenised files
(train.lc.norm.tok.en). It has the settings of Revisit-MMT's text-only Transformer-Tiny,
which has 41.02 tokenised BLEU on test_2016_flickr. A batch has about 7,000 tokens
(there, 4,096 positions on each of two GPUs), the highest rate is 0.005, the checkpoints
of ten epochs are averaged, and the beam is 5. Training ends after 8,000 updates, or ten
epochs without a better dev perplexity.

The model has 2.6 M parameters. With --config.dtype=bfloat16 it takes 1.2 to 2.1 hours
on two CPU cores. On test_2016_flickr en-de lower-cased has 40.5, 40.8 and 40.7
tokenised BLEU (three seeds), en-de cased 40.4 sacreBLEU (docs/multi30k.md). en-fr and
de-en work the same way, but have not been trained.
"""

import ml_collections

from configs import base


def get_config(arg: str = 'en-de') -> ml_collections.ConfigDict:
  """Returns the config; `arg` is PAIR or PAIR,lowercase (en-de, en-fr, de-en)."""
  pair, *options = arg.split(',')
  if options not in ([], ['lowercase']):
    raise ValueError(f"multi30k:{arg}: PAIR or PAIR,lowercase, such as 'en-de'")
  config = base.get_config(pair)
  config.row = None
  config.data.name = f'multi30k.{pair}' + ('.lowercase' if options else '')
  config.data.reader = 'files'
  config.data.files.update(dev=('val',), test=('test_2016_flickr',))
  config.data.character_coverage, config.data.byte_fallback = 1.0, False
  if options:
    config.data.suffix, config.data.lowercase = '.lc.norm.tok', True
    config.data.tokenized = True
  config.model.update(
    N=4, d_model=128, d_ff=256, h=4, d_k=32, d_v=32, P_drop=0.3, vocab_size=10000
  )
  config.tokens_per_batch = 7000
  config.max_shapes = 12
  config.train_steps = 8000
  config.patience = 10  # epochs without a better dev perplexity end it
  config.warmup_steps = 2000
  config.rate_factor = 2.53  # a peak of 0.005, where Equation 3 has 0.00198
  config.checkpoint_every_steps = 62 if options else 64  # an epoch of en-de
  config.keep_checkpoints = 130  # all of them: 31 MB each
  config.average_last = 10
  config.beam = 5
  config.log_every_steps = config.checkpoint_every_steps
  return config
