"""The paper's numbers: typed a second time, and against its own arithmetic."""

import re

from transformer_jax.model import flops
from transformer_jax.report import paper

# BLEU EN-DE, EN-FR, FLOPs EN-DE, EN-FR of each system
TABLE_2 = """
  23.75 - - - | - 39.2 - 1.0e20 | 24.6 39.92 2.3e19 1.4e20 | 25.16 40.46 9.6e18 1.5e20
  26.03 40.56 2.0e19 1.2e20 | - 40.4 - 8.0e20 | 26.30 41.16 1.8e20 1.1e21
  26.36 41.29 7.7e19 1.2e21 | 27.3 38.1 3.3e18 3.3e18 | 28.4 41.8 2.3e19 2.3e19
"""
# PPL, BLEU, millions of parameters
TABLE_3 = """
  base 4.92 25.8 65 | A1 5.29 24.9 - | A2 5.00 25.5 - | A3 4.91 25.8 -
  A4 5.01 25.4 - | B1 5.16 25.1 58 | B2 5.01 25.4 60 | C1 6.11 23.7 36
  C2 5.19 25.3 50 | C3 4.88 25.5 80 | C4 5.75 24.5 28 | C5 4.66 26.0 168
  C6 5.12 25.4 53 | C7 4.75 26.2 90 | D1 5.77 24.6 - | D2 4.95 25.5 -
  D3 4.67 25.3 - | D4 5.47 25.7 - | E 4.92 25.7 - | big 4.33 26.4 213
"""
# What a row changes
CELLS = """
  base N=6 d_model=512 d_ff=2048 h=8 d_k=64 d_v=64 P_drop=0.1 \
    epsilon_ls=0.1 train_steps=100000
  A1 h=1 d_k=512 d_v=512 | A2 h=4 d_k=128 d_v=128 | A3 h=16 d_k=32 d_v=32
  A4 h=32 d_k=16 d_v=16 | B1 d_k=16 | B2 d_k=32 | C1 N=2 | C2 N=4 | C3 N=8
  C4 d_model=256 d_k=32 d_v=32 | C5 d_model=1024 d_k=128 d_v=128 | C6 d_ff=1024
  C7 d_ff=4096 | D1 P_drop=0.0 | D2 P_drop=0.2 | D3 epsilon_ls=0.0 | D4 epsilon_ls=0.2
  E positions=learned
  big N=6 d_model=1024 d_ff=4096 h=16 P_drop=0.3 train_steps=300000
"""
TABLE_4 = (88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3)


def rows_of(table: str) -> list[list[str]]:
  return [entry.split() for entry in re.split(r'[|\n]', table.strip())]


def numbers(cells: list[str]) -> tuple[float | None, ...]:
  return tuple(None if x == '-' else float(x) for x in cells)


def test_tables_2_to_4():
  assert [*map(numbers, rows_of(TABLE_2))] == [*map(tuple, paper.TABLE_2.values())]
  typed = {row: numbers(cells) for row, *cells in rows_of(TABLE_3)}
  assert typed == {name: tuple(row[1:4]) for name, row in paper.TABLE_3.items()}
  cells = {row: dict(x.split('=') for x in pairs) for row, *pairs in rows_of(CELLS)}
  shown = lambda row: {cell: str(value) for cell, value in row.cells.items()}
  assert cells == {name: shown(row) for name, row in paper.TABLE_3.items()}
  assert tuple(row.f1 for row in paper.TABLE_4) == TABLE_4


def test_one_vocabulary_explains_ten_rows():
  """Not 37,000, nor any that explains big too."""
  printed = {row: of.millions for row, of in paper.TABLE_3.items() if of.millions}

  def fits(row: str, vocab_size: int) -> bool:
    cells = {**paper.BASE, **paper.TABLE_3[row].cells, 'vocab_size': vocab_size}
    model = cells | {'target_vocab_size': 0, 'positions': 'sinusoid'}
    return round(flops.parameters(model) / 1e6) == printed[row]

  assert len(printed) == 11 and not any(fits(row, 37_000) for row in printed)
  assert {row for row in printed if not fits(row, 41_100)} == {'big'}
