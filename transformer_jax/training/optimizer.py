"""Equation 3 and Adam (section 5.3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import optax


def learning_rate(
  d_model: int, warmup_steps: int, factor: float
) -> Callable[[jax.Array], jax.Array]:
  """Equation 3 times `factor`; optax counts updates from 0, the paper steps from 1."""

  def schedule(count: jax.Array) -> jax.Array:
    step = jnp.asarray(count, jnp.float32) + 1
    return factor * d_model**-0.5 * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return schedule


def optimizer(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
  """Adam of section 5.3."""
  rate = learning_rate(config.model.d_model, config.warmup_steps, config.rate_factor)
  return optax.adam(rate, config.adam_b1, config.adam_b2, config.adam_epsilon)
