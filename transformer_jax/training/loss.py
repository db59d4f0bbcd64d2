"""Label-smoothed cross-entropy (section 5.4) in closed form: no one-hot is built.

The smoothed target puts 1 - epsilon on the true word and epsilon / (W - 1) on every
other one, as the paper's code did. Its cross-entropy with softmax(z) is

  log sum exp z - (1 - epsilon) z_true - epsilon / (W - 1) (sum z - z_true)
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int

from transformer_jax.data.vocabulary import PAD
from transformer_jax.model import products

Array = jax.Array | np.ndarray


def cross_entropy(
  logits: Float32[Array, '*positions W'],
  labels: Int[Array, '*positions'],
  epsilon: float,
) -> tuple[Float32[Array, ''], Float32[Array, '']]:
  """Sums over the positions whose label is not PAD, in nats.

  Args:
    logits: unnormalised.
    labels: ids, below W.
    epsilon: epsilon_ls.

  Returns:
    The smoothed cross-entropy, which is what is trained on and has the gradient, and
    the unsmoothed one, which perplexity is made of and has none.
  """
  stored, axis = products.as_stored(logits)
  return _cross_entropy(stored, labels.ravel(), epsilon, axis)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _cross_entropy(logits, labels, epsilon, axis):
  """Of matrices whose `axis` is the words'."""
  return _forward(logits, labels, epsilon, axis)[0]


def _forward(logits, labels, epsilon, axis):
  # An id beyond the logits would silently become NaN or a neighbour: see Batches.
  real = labels != PAD
  normalizer = jax.nn.logsumexp(logits, axis)
  index = jnp.expand_dims(labels, axis)
  true = jnp.take_along_axis(logits, index, axis).ravel()
  negative_log_likelihood = normalizer - true
  off = epsilon / (logits.shape[axis] - 1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * logits.sum(axis)
  total = lambda x: jnp.where(real, x, 0).sum()
  sums = total(smoothed), total(negative_log_likelihood)
  return sums, (logits, labels, normalizer)


def _backward(epsilon, axis, residuals, cotangents):
  """softmax(z) - smoothed target, made in one pass over the logits."""
  logits, labels, normalizer = residuals
  off = epsilon / (logits.shape[axis] - 1)
  words = jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis)
  along = lambda x: jnp.expand_dims(x, axis)
  target = jnp.where(words == along(labels), 1 - epsilon, off)
  scale = along(jnp.where(labels != PAD, cotangents[0], 0))
  return (jnp.exp(logits - along(normalizer)) - target) * scale, None


_cross_entropy.defvjp(_forward, _backward)
