"""The big model of Table 3, on WMT14.

  python -m scripts.train --config=configs/big.py:en-de --workdir=runs/big.en-de

214.2 M parameters (V=37,000; the paper prints 213). The paper: 300,000 steps, 3.5 days
on 8 P100, 28.4 BLEU (en-de) and 41.8 (en-fr) on newstest2014.
"""

import ml_collections

from configs import base, table3


def get_config(pair: str = 'en-de') -> ml_collections.ConfigDict:
  """Returns the config: Table 3's last row, and section 6.1 for the rest."""
  config = table3.fill(base.get_config(pair), table3.ROWS['big'])
  config.row = 'big'
  if 'fr' in pair:
    config.model.P_drop = 0.1  # section 6.1
  config.average_last = 20
  config.checkpoint_every_steps = 600  # the paper's 10 minutes at 1.0 s a step
  return config
