"""Table 3: variations on the base model, English to German, newstest2013.

  python -m scripts.train --config=configs/table3.py:B2 --workdir=runs/table3.B2
  python -m scripts.evaluate --workdir=runs/table3.B2 --split=dev
  python -m scripts.sweep --rows=base,D1,C1 --mini --seeds=1,2,3 \\
    --workdir=runs/table3 --raw_dir=DIR_OF_MULTI30K

Rows A, D and E cost as much as base, rows B a little less. C1, C2, C4 and C6 cost less;
C3, C5, C7 and big cost more (docs/reproduce.md has the hours). Rows are scored on
newstest2013 and, as in section 6.2, with the last checkpoint alone.

`table3.py:ROW,mini` is the same table in miniature, on Multi30k's 29,000 captions. Its
cells are the printed ones divided by MINIATURE, so that each row stands to the
miniature's base as the paper's does to its own:

                 N  d_model  d_ff  h  d_k  d_v  steps    V       tokens  warmup
  the paper's    6  512      2048  8  64   64   100,000  37,000  25,000  4,000
  the miniature  3  128      512   8  16   16   3,125    6,000   3,500   1,000

Base has 2.15 M parameters, takes some 40 minutes on one CPU core and scores 36.6
sacreBLEU (docs/table3.md has all rows).

P_drop, epsilon_ls, positions, h and Equation 3 (factor 1) are the printed ones. Dev is
val and test_2016_flickr together: 2,014 captions, one of which is in train too.
`--config.seed` tells runs of a row apart.
"""

import ml_collections

from configs import base, multi30k

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
  'big': {'N': 6, 'd_model': 1024, 'd_ff': 4096, 'h': 16}
  | {'P_drop': 0.3, 'train_steps': 300_000},
}
# The miniature divides these cells, and leaves the others as printed. As h is kept,
# h x d_k is still d_model.
MINIATURE = {'N': 2, 'd_model': 4, 'd_ff': 4, 'd_k': 4, 'd_v': 4, 'train_steps': 32}


def fill(config: ml_collections.ConfigDict, cells: dict) -> ml_collections.ConfigDict:
  """Writes a row's cells into a locked config; an unknown cell is a KeyError."""
  for cell, value in cells.items():
    (config.model if cell in config.model else config)[cell] = value
  return config


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns base for en-de with one row filled in; `arg` is ROW, or ROW,mini."""
  row, *options = arg.split(',')
  if row not in ROWS or options not in ([], ['mini']):
    raise ValueError(
      f'table3.py:{arg}: give table3.py:ROW or ROW,mini; the rows are {", ".join(ROWS)}'
    )
  cells = ROWS[row]
  if options:
    config = fill(_miniature(), {k: _scaled(k, v) for k, v in cells.items()})
  else:
    config = fill(base.get_config('en-de'), cells)
  config.row = row
  config.average_last = 1  # section 6.2
  return config


def _scaled(cell: str, value: float | str) -> float | str:
  """Returns the miniature's value of a printed cell."""
  return value // MINIATURE[cell] if cell in MINIATURE else value


def _miniature() -> ml_collections.ConfigDict:
  """Returns the miniature's base row."""
  config, captions = base.get_config('en-de'), multi30k.get_config('en-de')
  for key in ('reader', 'files', 'character_coverage', 'byte_fallback'):
    config.data[key] = captions.data[key]
  config.data.name = f'{captions.data.name}.mini'
  config.data.files.dev = ('val', 'test_2016_flickr')
  for cell, divisor in MINIATURE.items():
    where = config.model if cell in config.model else config
    where[cell] //= divisor
  config.model.vocab_size = 6000
  config.tokens_per_batch = 3500
  config.max_shapes = 3  # every run compiles each of them
  config.warmup_steps = 1000
  config.checkpoint_every_steps = 125
  config.log_every_steps = 25
  return config
