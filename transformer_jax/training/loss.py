"""Label-smoothed cross-entropy (section 5.4).

The target distribution gives the true token probability 1 - epsilon, and every other
token epsilon / (W - 1), as the paper's code did. Its cross-entropy with softmax(z) is

  log sum exp z - (1 - epsilon) z_true - epsilon / (W - 1) (sum z - z_true)

where z are the logits of a position. So no target distribution is stored.
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
  """Returns two cross-entropies in nats, summed over positions with a label.

  Args:
    outputs: of the model; the logits are computed from them here.
    labels: ids below W of the true tokens; PAD at positions without a label. An id of W
      or more is not noticed: the loss becomes NaN or that of another token.
    epsilon: epsilon_ls.

  Returns:
    The smoothed cross-entropy, which training minimizes, and the plain one, from which
    perplexity is computed. The plain one has no gradient.
  """
  return ops.smoothed_cross_entropy(
    outputs.x, outputs.table, labels, labels != PAD, epsilon=epsilon
  )
