"""Table 3: the paper's rows with its numbers and claims, and rows of one's own."""

from collections.abc import Mapping
from typing import NamedTuple

Cells = Mapping[str, float | str]  # of Table 3, by the names of its columns


class Claim(NamedTuple):
  """What the paper's text concludes from rows of Table 3."""

  text: str
  section: str  # such as '6.2'


ONE_HEAD = Claim('One head is worse than eight.', '6.2')
MANY_HEADS = Claim('Too many heads are worse, too.', '6.2')
KEYS = Claim('Smaller attention keys hurt.', '6.2')
SIZE = Claim('Bigger models are better.', '6.2')
DROPOUT = Claim('Dropout helps against over-fitting.', '6.2')
POSITIONS = Claim('Learned positions give nearly identical results.', '6.2')
SMOOTHING = Claim('Label smoothing hurts perplexity, but improves BLEU.', '5.4')
CLAIMS = ONE_HEAD, MANY_HEADS, KEYS, SIZE, DROPOUT, POSITIONS, SMOOTHING

# The signs of a claimed difference from base, in perplexity and in BLEU.
WORSE, BETTER, EQUAL = (1, -1), (-1, 1), (0, 0)


class Row(NamedTuple):
  """A row of Table 3: the cells it fills in, the paper's numbers, and its claim."""

  cells: Cells
  perplexity: float  # per piece, newstest2013
  bleu: float  # newstest2013
  millions: int | None = None  # of parameters; None for an empty cell
  claim: Claim | None = None
  claimed: tuple[int, int] | None = None  # such as WORSE

  @property
  def values(self) -> tuple[float, float]:
    """Returns perplexity and BLEU."""
    return self.perplexity, self.bleu


# Section 6.2. The paper names groups of rows, (A) to (E); the numbers of rows are ours.
# Row E's cell says 'positional embedding instead of sinusoids'. D3 is the row without
# label smoothing.
TABLE_3 = {
  'base': Row(
    {'N': 6, 'd_model': 512, 'd_ff': 2048, 'h': 8, 'd_k': 64, 'd_v': 64}
    | {'P_drop': 0.1, 'epsilon_ls': 0.1, 'train_steps': 100_000},
    4.92,
    25.8,
    65,
  ),
  'A1': Row({'h': 1, 'd_k': 512, 'd_v': 512}, 5.29, 24.9, None, ONE_HEAD, WORSE),
  'A2': Row({'h': 4, 'd_k': 128, 'd_v': 128}, 5.00, 25.5),
  'A3': Row({'h': 16, 'd_k': 32, 'd_v': 32}, 4.91, 25.8),
  'A4': Row({'h': 32, 'd_k': 16, 'd_v': 16}, 5.01, 25.4, None, MANY_HEADS, WORSE),
  'B1': Row({'d_k': 16}, 5.16, 25.1, 58, KEYS, WORSE),
  'B2': Row({'d_k': 32}, 5.01, 25.4, 60, KEYS, WORSE),
  'C1': Row({'N': 2}, 6.11, 23.7, 36, SIZE, WORSE),
  'C2': Row({'N': 4}, 5.19, 25.3, 50, SIZE, WORSE),
  'C3': Row({'N': 8}, 4.88, 25.5, 80, SIZE, BETTER),
  'C4': Row({'d_model': 256, 'd_k': 32, 'd_v': 32}, 5.75, 24.5, 28, SIZE, WORSE),
  'C5': Row({'d_model': 1024, 'd_k': 128, 'd_v': 128}, 4.66, 26.0, 168, SIZE, BETTER),
  'C6': Row({'d_ff': 1024}, 5.12, 25.4, 53, SIZE, WORSE),
  'C7': Row({'d_ff': 4096}, 4.75, 26.2, 90, SIZE, BETTER),
  'D1': Row({'P_drop': 0.0}, 5.77, 24.6, None, DROPOUT, WORSE),
  'D2': Row({'P_drop': 0.2}, 4.95, 25.5),
  'D3': Row({'epsilon_ls': 0.0}, 4.67, 25.3, None, SMOOTHING, (-1, -1)),
  'D4': Row({'epsilon_ls': 0.2}, 5.47, 25.7),
  'E': Row({'positions': 'learned'}, 4.92, 25.7, None, POSITIONS, EQUAL),
  'big': Row(
    {'N': 6, 'd_model': 1024, 'd_ff': 4096, 'h': 16}
    | {'P_drop': 0.3, 'train_steps': 300_000},
    4.33,
    26.4,
    213,
  ),
}
# Base's cells with its positions, which row E replaces (section 3.5).
BASE: Cells = {**TABLE_3['base'].cells, 'positions': 'sinusoid'}


def rows_of(claim: Claim) -> list[str]:
  """Returns the rows of a claim, first those that it calls worse."""
  named = [name for name, row in TABLE_3.items() if row.claim == claim]
  return sorted(named, key=lambda name: TABLE_3[name].claimed == BETTER)


def cells_of_row(row: str, base: Cells, french: bool) -> Cells:
  """Returns a row's cells for this base, which may be smaller than the paper's.

  A number is scaled so that its ratio to the base's number is the same as in the paper.
  """
  expected = dict(base)
  for cell, printed in TABLE_3[row].cells.items():
    if isinstance(printed, str):
      expected[cell] = printed
    else:
      expected[cell] = float(base[cell]) * (printed / float(BASE[cell]))
  if row == 'big' and french:
    expected['P_drop'] = base['P_drop']  # section 6.1
  return expected


def changed_cells(values: Cells, base: Cells) -> Cells:
  """Returns the cells in which a row differs from base."""
  return {cell: value for cell, value in values.items() if value != base[cell]}


def label(row: str, values: Cells, base: Cells) -> str:
  """Returns a row's name and the first cell that it fills in: 'C4: d_model 32'."""
  if row in ('base', 'big'):
    return row
  own = TABLE_3[row].cells if row in TABLE_3 else changed_cells(values, base)
  cell = next(iter(own))
  return f'{row}: {cell} {text(values[cell])}'


def text(value: float | str) -> str:
  """Returns a cell's value as text."""
  return value if isinstance(value, str) else f'{value:g}'


def texts(values: Mapping[str, float | str]) -> str:
  """Returns cells as text, such as 'N 2, P_drop 0.1'."""
  return ', '.join(
    f'{cell} {value:,}' if isinstance(value, int) else f'{cell} {value}'
    for cell, value in values.items()
  )
