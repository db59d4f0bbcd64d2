"""Table 3: variations on the base model, English to German, newstest2013.

  python -m scripts.train --config=configs/table3.py:B2 --workdir=runs/table3.B2
  python -m scripts.evaluate --workdir=runs/table3.B2 --split=dev
  python -m scripts.sweep --rows=base,A1,D1 --mini --seeds=1,2,3 \\
    --workdir=runs/table3 --raw_dir=DIR_OF_MULTI30K

Rows A, D and E cost as much as base, and rows B a little less. C1, C2, C4 and C6 cost
less. C3, C5, C7 and big cost more (docs/reproduce.md has hours). Rows are scored on
newstest2013 and, as in section 6.2, with the last checkpoint alone.

`table3.py:ROW,mini` is the same table in miniature, on Multi30k's 29,000 captions. Its
cells are the printed ones divided by MINIATURE. So each row differs from the
miniature's base by the same factors as in the paper:

                 N  d_model  d_ff  h  d_k  d_v  steps    V       tokens  warmup
  the paper's    6  512      2048  8  64   64   100,000  37,000  25,000  4,000
  the miniature  3  128      512   8  16   16   3,125    6,000   3,500   1,000

Base has 2.15 M parameters, takes some 40 minutes on one CPU core and scores 36.6
sacreBLEU (docs/table3.md has all rows).

P_drop, epsilon_ls, positions, h and Equation 3 (factor 1) are as printed. Dev is val
and test_2016_flickr together: 2,014 captions, one of which is in train, too. Runs of a
row differ in `--config.seed`.

A row of your own is an entry in a file of yours, such as configs/my_rows.py:

  import functools
  from configs import table3
  ROWS = {'A5': {'h': 64, 'd_k': 8, 'd_v': 8}}
  get_config = functools.partial(table3.get_config, extra_rows=ROWS)

Give scripts.sweep --config=configs/my_rows.py:A5,mini beside --rows=base --mini. The
report has the row in the table, without a verdict.
"""

from collections.abc import Mapping
from types import MappingProxyType

import ml_collections

from configs import base, multi30k
from transformer_jax.report.paper import TABLE_3, Cells

# Exactly the cells that the row fills in; what is blank there is base's.
ROWS = {name: row.cells for name, row in TABLE_3.items()}
# The miniature divides these cells, and leaves the others as printed. As h is kept,
# h x d_k is still d_model.
MINIATURE = {'N': 2, 'd_model': 4, 'd_ff': 4, 'd_k': 4, 'd_v': 4, 'train_steps': 32}


def fill(config: ml_collections.ConfigDict, cells: dict) -> ml_collections.ConfigDict:
  """Writes a row's cells into a locked config; an unknown cell is a KeyError."""
  for cell, value in cells.items():
    (config.model if cell in config.model else config)[cell] = value
  return config


def get_config(
  arg: str = '', extra_rows: Mapping[str, Cells] = MappingProxyType({})
) -> ml_collections.ConfigDict:
  """Returns base for en-de with one row filled in; `arg` is ROW, or ROW,mini.

  `extra_rows` has the cells of rows that the paper lacks.
  """
  row, *options = arg.split(',')
  rows = ROWS | {**extra_rows}
  if row not in rows or options not in ([], ['mini']):
    raise ValueError(
      f'table3.py:{arg}: give table3.py:ROW or ROW,mini; the rows are {", ".join(rows)}'
    )
  cells = rows[row]
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
