"""The paper's printed numbers (arXiv 1706.03762v7), each with its table or section."""

from collections.abc import Callable
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


GPUS, GPU = 8, 'P100'
TRAINING = {'base': Training(12, 5), 'big': Training(3.5 * 24, 20)}
VOCABULARY = {'en-de': 37_000, 'en-fr': 32_000}  # section 5.1
BEAM, ALPHA = 4, 0.6  # section 6.1
TEST_SETS = {'dev': 'newstest2013', 'test': 'newstest2014'}

# Footnote 5 of section 6.1: single precision, sustained.
SUSTAINED_TFLOPS = {'K80': 2.8, 'K40': 3.7, 'M40': 6.0, 'P100': 9.5}


def training_flops(
  seconds: float, gpus: int = GPUS, tflops: float = SUSTAINED_TFLOPS[GPU]
) -> float:
  """Returns Table 2's estimate (section 6.1): time x GPUs x sustained capacity."""
  return seconds * gpus * tflops * 1e12
