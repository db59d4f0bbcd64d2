"""Label-smoothed cross-entropy (section 5.4) in closed form: no one-hot is built.

The smoothed target puts 1 - epsilon on the true word and epsilon / (W - 1) on every
other one, as the paper's code did. Its cross-entropy with softmax(z) is

  log sum exp z - (1 - epsilon) z_true - epsilon / (W - 1) (sum z - z_true)
"""

import jax
import numpy as np
from jaxtyping import Float32, Int

from transformer_jax.data.vocabulary import PAD
from transformer_jax.model import ops
from transformer_jax.model.transformer import Outputs

Array = jax.Array | np.ndarray


def cross_entropy(
  outputs: Outputs, labels: Int[Array, '*positions'], epsilon: float
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Sums over the positions whose label is not PAD, in nats.

  Args:
    outputs: what the logits are made of. A CPU makes a few rows of them at a time.
    labels: ids, below W. One beyond would silently become NaN or a neighbour.
    epsilon: epsilon_ls.

  Returns:
    The smoothed cross-entropy, which is what is trained on and has the gradient, and
    the unsmoothed one, which perplexity is made of and has none.
  """
  factors = outputs.x, outputs.table, outputs.bias
  return ops.smoothed_cross_entropy(*factors, labels, labels != PAD, epsilon)
