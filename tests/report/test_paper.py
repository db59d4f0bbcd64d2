"""The paper's numbers: typed a second time, and against its own arithmetic."""

import re

from transformer_jax.model import flops
from transformer_jax.report import paper

# Table 2: BLEU EN-DE, EN-FR, FLOPs EN-DE, EN-FR. Table 3: PPL, BLEU, millions.
TABLE_2 = """
  ByteNet                    | 23.75 | -     | -       | -
  Deep-Att + PosUnk          | -     | 39.2  | -       | 1.0e20
  GNMT + RL                  | 24.6  | 39.92 | 2.3e19  | 1.4e20
  ConvS2S                    | 25.16 | 40.46 | 9.6e18  | 1.5e20
  MoE                        | 26.03 | 40.56 | 2.0e19  | 1.2e20
  Deep-Att + PosUnk Ensemble | -     | 40.4  | -       | 8.0e20
  GNMT + RL Ensemble         | 26.30 | 41.16 | 1.8e20  | 1.1e21
  ConvS2S Ensemble           | 26.36 | 41.29 | 7.7e19  | 1.2e21
  Transformer (base)         | 27.3  | 38.1  | 3.3e18  | 3.3e18
  Transformer (big)          | 28.4  | 41.8  | 2.3e19  | 2.3e19
"""
TABLE_3 = """
  base 4.92 25.8 65 | A1 5.29 24.9 - | A2 5.00 25.5 - | A3 4.91 25.8 -
  A4 5.01 25.4 - | B1 5.16 25.1 58 | B2 5.01 25.4 60 | C1 6.11 23.7 36
  C2 5.19 25.3 50 | C3 4.88 25.5 80 | C4 5.75 24.5 28 | C5 4.66 26.0 168
  C6 5.12 25.4 53 | C7 4.75 26.2 90 | D1 5.77 24.6 - | D2 4.95 25.5 -
  D3 4.67 25.3 - | D4 5.47 25.7 - | E 4.92 25.7 - | big 4.33 26.4 213
"""
TABLE_4 = (88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3)


def number(text: str) -> float | None:
  return None if text == '-' else float(text)


def test_table_2():
  lines = [line.split('|') for line in TABLE_2.strip().splitlines()]
  typed = {
    name.strip(): tuple(number(x.strip()) for x in rest) for name, *rest in lines
  }
  assert typed == {name: tuple(row) for name, row in paper.TABLE_2.items()}


def test_table_3():
  typed = [entry.split() for entry in re.split(r'[|\n]', TABLE_3.strip())]
  assert [row for row, *_ in typed] == [*paper.TABLE_3]
  for row, *values in typed:
    assert paper.TABLE_3[row][1:4] == tuple(map(number, values)), row


def test_table_4():
  assert tuple(row.f1 for row in paper.TABLE_4) == TABLE_4
  ours = {row.training: row.f1 for row in paper.TABLE_4 if 'Transformer' in row.name}
  assert ours == {'WSJ only, discriminative': 91.3, 'semi-supervised': 92.7}


def test_one_vocabulary_explains_ten_rows():
  """Not 37,000, nor any that explains big too."""
  printed = {row: of.millions for row, of in paper.TABLE_3.items() if of.millions}

  def fits(row: str, vocab_size: int) -> bool:
    cells = {**paper.BASE, **paper.TABLE_3[row].cells, 'vocab_size': vocab_size}
    model = cells | {'target_vocab_size': 0, 'positions': 'sinusoid'}
    return round(flops.parameters(model) / 1e6) == printed[row]

  assert len(printed) == 11 and not any(fits(row, 37_000) for row in printed)
  assert {row for row in printed if not fits(row, 41_100)} == {'big'}
