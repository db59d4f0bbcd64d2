"""Equation 3 and Adam (section 5.3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import optax

Schedule = Callable[[jax.Array | int], jax.Array]


def learning_rate(config: ml_collections.ConfigDict) -> Schedule:
  """Returns Equation 3 times the config's rate_factor.

  The schedule takes optax's count of updates, from 0; the paper counts steps from 1.
  """
  scale = config.rate_factor * config.model.d_model**-0.5
  warmup_steps = config.warmup_steps

  def schedule(count: jax.Array | int) -> jax.Array:
    step = jnp.asarray(count, jnp.float32) + 1
    return scale * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return schedule


def adam(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
  """Returns Adam (section 5.3) with the rate of Equation 3.

  epsilon is added to the square root of the second moment, not inside the root.
  """
  rate = learning_rate(config)
  return optax.adam(rate, config.adam_b1, config.adam_b2, config.adam_epsilon)
