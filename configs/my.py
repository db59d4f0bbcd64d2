"""Your own text, in any two languages: DIR/train.de, DIR/train.en, a sentence per line.

  python -m scripts.train --config=configs/my.py:de-en,DIR --workdir=runs/mine
  python -m scripts.evaluate --workdir=runs/mine
  python -m scripts.translate --workdir=runs/mine < IN > OUT

dev and test are files of the same folder, or drawn from train: a thousand pairs each, a
tenth of train at most. Below a million pairs the model is SMALL, from a million on
base. docs/own_data.md has the rest.
"""

import math

import ml_collections

from configs import base
from transformer_jax.prepare import sources

SMALL = dict(
  N=3, d_model=256, d_ff=1024, h=4, d_k=64, d_v=64, P_drop=0.3, vocab_size=8000
)
FEW = 1_000_000  # pairs, below which the model is SMALL
VERY_FEW = 20_000  # pairs, below which batches are smaller, and patience ends training
EPOCHS = 100  # at most; tokens are estimated, since there is no vocabulary yet
# Pairs -> pieces: a text of fewer pairs may not have enough pieces for SMALL.
FEWER_PIECES = {20_000: 4000, 1000: 1000, 200: 400}


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` is SOURCE-TARGET,DIR."""
  data, pairs, tokens = sources.find_user_text(arg)
  config = base.get_config()
  config.row = None
  config.data.update(data, nfc=True)
  if pairs < FEW:
    config.model.update(SMALL)
    for fewer, pieces in FEWER_PIECES.items():
      if pairs < fewer:
        config.model.vocab_size = pieces
    config.tokens_per_batch = 8000
    config.max_shapes = 12
    if pairs < VERY_FEW:
      config.tokens_per_batch = 2000
      config.patience, config.best_by = 5, 'perplexity'  # evaluate --step=best
    updates = EPOCHS * tokens // config.tokens_per_batch
    config.train_steps = min(12_000, max(100, updates // 20 * 20))
    config.warmup_steps = min(2000, config.train_steps // 4)
    # The highest rate is that of a warm-up of 2,000 updates.
    config.rate_factor = math.sqrt(config.warmup_steps / 2000)
    config.checkpoint_every_steps = config.train_steps // 20
  return config
