"""The paper's printed numbers and claims (arXiv 1706.03762v7), each with its section.

cells_of_row() has the cells of Table 3's rows for a base of another size.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Layer(NamedTuple):
  """A row of Table 1: the orders of growth, without O(...)."""

  per_layer: str
  sequential: str
  path_length: str
  cost: Callable[[float, float, float, float], float]  # per_layer of n, d, k and r


# Table 1, section 4: sequence length n, width d, kernel k, neighbourhood r.
TABLE_1 = {
  'Self-Attention': Layer('n^2 d', '1', '1', lambda n, d, k, r: n**2 * d),
  'Recurrent': Layer('n d^2', 'n', 'n', lambda n, d, k, r: n * d**2),
  'Convolutional': Layer('k n d^2', '1', 'log_k(n)', lambda n, d, k, r: k * n * d**2),
  'Self-Attention (restricted)': Layer(
    'r n d', '1', 'n / r', lambda n, d, k, r: r * n * d
  ),
}


class System(NamedTuple):
  """A row of Table 2: BLEU on newstest2014, training FLOPs; None for an empty cell."""

  bleu_de: float | None
  bleu_fr: float | None
  flops_de: float | None
  flops_fr: float | None


# Table 2, section 6.1. A Transformer's FLOPs are one cell for both languages.
TABLE_2 = {
  'ByteNet': System(23.75, None, None, None),
  'Deep-Att + PosUnk': System(None, 39.2, None, 1.0e20),
  'GNMT + RL': System(24.6, 39.92, 2.3e19, 1.4e20),
  'ConvS2S': System(25.16, 40.46, 9.6e18, 1.5e20),
  'MoE': System(26.03, 40.56, 2.0e19, 1.2e20),
  'Deep-Att + PosUnk Ensemble': System(None, 40.4, None, 8.0e20),
  'GNMT + RL Ensemble': System(26.30, 41.16, 1.8e20, 1.1e21),
  'ConvS2S Ensemble': System(26.36, 41.29, 7.7e19, 1.2e21),
  'Transformer (base)': System(27.3, 38.1, 3.3e18, 3.3e18),
  'Transformer (big)': System(28.4, 41.8, 2.3e19, 2.3e19),
}
TABLE_2_NAMES = {'base': 'Transformer (base)', 'big': 'Transformer (big)'}


# Table 3, section 6.2

Cells = Mapping[str, float | str]  # by the names of its columns


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
  """Returns a row's name and the first cell that it fills in: 'C4: d_model 256'."""
  if row in ('base', 'big'):
    return row
  cells = TABLE_3[row].cells if row in TABLE_3 else changed_cells(values, base)
  cell = next(iter(cells))
  return f'{row}: {cell} {cell_text(values[cell])}'


def cell_text(value: float | str) -> str:
  """Returns a cell's value as text."""
  return value if isinstance(value, str) else f'{value:g}'


def cells_text(values: Cells) -> str:
  """Returns cells as text, such as 'N 2, P_drop 0.1'."""
  return ', '.join(
    f'{cell} {value:,}' if isinstance(value, int) else f'{cell} {value}'
    for cell, value in values.items()
  )


class Parser(NamedTuple):
  """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

  name: str
  training: str
  f1: float


# Table 4, section 6.3.
TABLE_4 = (
  Parser('Vinyals & Kaiser et al. (2014)', 'WSJ only, discriminative', 88.3),
  Parser('Petrov et al. (2006)', 'WSJ only, discriminative', 90.4),
  Parser('Zhu et al. (2013)', 'WSJ only, discriminative', 90.4),
  Parser('Dyer et al. (2016)', 'WSJ only, discriminative', 91.7),
  Parser('Transformer (4 layers)', 'WSJ only, discriminative', 91.3),
  Parser('Zhu et al. (2013)', 'semi-supervised', 91.3),
  Parser('Huang & Harper (2009)', 'semi-supervised', 91.3),
  Parser('McClosky et al. (2006)', 'semi-supervised', 92.1),
  Parser('Vinyals & Kaiser et al. (2014)', 'semi-supervised', 92.1),
  Parser('Transformer (4 layers)', 'semi-supervised', 92.7),
  Parser('Luong et al. (2015)', 'multi-task', 93.0),
  Parser('Dyer et al. (2016)', 'generative', 93.3),
)


class Training(NamedTuple):
  """How a model was trained on one machine with 8 P100 (section 5.2)."""

  hours: float
  averaged: int  # checkpoints, section 6.1


TRAINING = {'base': Training(12, 5), 'big': Training(3.5 * 24, 20)}
BEAM, ALPHA = 4, 0.6  # section 6.1
TEST_SETS = {'dev': 'newstest2013', 'test': 'newstest2014'}
