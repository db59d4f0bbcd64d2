"""Table 3: variations on the base model, English to German, newstest2013.

  python -m scripts.train --config=configs/table3.py:B2 --workdir=runs/table3.B2
  python -m scripts.evaluate --workdir=runs/table3.B2 --split=dev

Each takes what base takes (C rows and big more or less); section 6.2 scores the last
checkpoint alone.
"""

import ml_collections

from configs import base

# Exactly the cells that the row fills in; what is blank there is base's.
ROWS = {
  'base': {},
  'A1': {'h': 1, 'd_k': 512, 'd_v': 512},
  'A2': {'h': 4, 'd_k': 128, 'd_v': 128},
  'A3': {'h': 16, 'd_k': 32, 'd_v': 32},
  'A4': {'h': 32, 'd_k': 16, 'd_v': 16},
  'B1': {'d_k': 16},
  'B2': {'d_k': 32},
  'C1': {'N': 2},
  'C2': {'N': 4},
  'C3': {'N': 8},
  'C4': {'d_model': 256, 'd_k': 32, 'd_v': 32},
  'C5': {'d_model': 1024, 'd_k': 128, 'd_v': 128},
  'C6': {'d_ff': 1024},
  'C7': {'d_ff': 4096},
  'D1': {'P_drop': 0.0},
  'D2': {'P_drop': 0.2},
  'D3': {'epsilon_ls': 0.0},
  'D4': {'epsilon_ls': 0.2},
  'E': {'positions': 'learned'},
  'big': {
    'N': 6,
    'd_model': 1024,
    'd_ff': 4096,
    'h': 16,
    'P_drop': 0.3,
    'train_steps': 300_000,
  },
}


def fill(config: ml_collections.ConfigDict, cells: dict) -> ml_collections.ConfigDict:
  """Writes a row's cells into a locked config; an unknown cell is a KeyError."""
  for cell, value in cells.items():
    (config.model if cell in config.model else config)[cell] = value
  return config


def get_config(row: str) -> ml_collections.ConfigDict:
  """Base for en-de with one row filled in."""
  if row not in ROWS:
    raise ValueError(f'table3:{row}: the rows are {", ".join(ROWS)}')
  config = fill(base.get_config('en-de'), ROWS[row])
  config.average_last = 1  # section 6.2
  return config
