"""Label-smoothed cross-entropy (section 5.4) in closed form: no one-hot is built.

The smoothed target puts 1 - epsilon on the true word and epsilon / (W - 1) on every
other one, as the paper's code did. Its cross-entropy with softmax(z) is

  log sum exp z - (1 - epsilon) z_true - epsilon / (W - 1) (sum z - z_true)
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int

from transformer_jax.data.vocabulary import PAD
from transformer_jax.model import ops

Array = jax.Array | np.ndarray


def cross_entropy(
  logits: Float32[Array, '*positions W'],
  labels: Int[Array, '*positions'],
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Sums over the positions whose label is not PAD, in nats.

  Args:
    logits: unnormalised.
    labels: ids, below W. One beyond would silently become NaN or a neighbour.
    epsilon: epsilon_ls.

  Returns:
    The smoothed cross-entropy, which is what is trained on and has the gradient, and
    the unsmoothed one, which perplexity is made of and has none.
  """
  normalizer, true, total = ops.cross_entropy_terms(logits, labels)
  off = epsilon / (logits.shape[-1] - 1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * total
  plain = jax.lax.stop_gradient(normalizer - true)
  over_real = lambda x: jnp.where(labels != PAD, x, 0).sum()
  return over_real(smoothed), over_real(plain)
