"""Equation 3 and Adam, against the paper and NumPy (section 5.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from transformer_jax.training.step import adam, learning_rate

OTHERS = {'warmup_steps': 3, 'rate_factor': 0.5}
OTHERS |= {'adam_b1': 0.8, 'adam_b2': 0.95, 'adam_epsilon': 1e-3}


@pytest.mark.parametrize('changes', [{}, OTHERS])
def test_adam_is_the_papers(changes: dict[str, float]):
  """Five updates by the rate of Equation 3; and with other numbers than the paper's."""
  config = base.get_config()
  config.update(changes)
  b1, b2, epsilon = config.adam_b1, config.adam_b2, config.adam_epsilon
  warmup, factor = config.warmup_steps, config.rate_factor
  if not changes:
    assert (b1, b2, epsilon, warmup, factor) == (0.9, 0.98, 1e-9, 4000, 1.0)
    assert float(learning_rate(config)(3999)) == pytest.approx(6.987712e-4)
  transform = adam(config)
  rng = np.random.default_rng(0)
  gradients = rng.normal(size=(5, 7)) * np.logspace(-9, 1, 7)
  x = params = np.zeros(7)
  m, v, state = np.zeros(7), np.zeros(7), transform.init(jnp.zeros(7))
  update = jax.jit(transform.update)
  for step, g in enumerate(gradients, 1):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    rate = factor * 512**-0.5 * min(step**-0.5, step * warmup**-1.5)
    x = x - rate * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + epsilon)
    change, state = update(jnp.asarray(g, jnp.float32), state)
    params = params + np.asarray(change, np.float64)
  np.testing.assert_allclose(params, x, rtol=2e-5)
