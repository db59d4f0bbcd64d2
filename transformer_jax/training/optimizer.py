"""Equation 3 and Adam (section 5.3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

Schedule = Callable[[jax.Array | int], jax.Array]


def learning_rate(d_model: int, warmup_steps: int, factor: float) -> Schedule:
  """Equation 3 times `factor`.

  optax counts updates from 0, the paper counts steps from 1.
  """

  def schedule(count: jax.Array | int) -> jax.Array:
    step = jnp.asarray(count, jnp.float32) + 1
    return factor * d_model**-0.5 * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return schedule


def adam(
  rate: Schedule, beta_1: float, beta_2: float, epsilon: float
) -> optax.GradientTransformation:
  """Adam as section 5.3 has it: epsilon is added to the root, not within it."""
  return optax.adam(rate, beta_1, beta_2, epsilon)
