"""Updates: sums over slices, dropout, gradients not finite, Adam and Equation 3."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import PyTree

from configs import base
from toy import steps as tiny
from toy.forms import dropout_key
from transformer_jax.data.vocabulary import PAD
from transformer_jax.model.transformer import Outputs
from transformer_jax.training import step


def test_an_update():
  """Sums, gradient and dropout are those of all sentences at once, numbered by slice.

  A loss or a gradient that is not finite changes nothing but the number of steps.
  """
  source, target = tiny.example()
  steps, seed, number = tiny.steps_on(1), 3, 5
  state, sums = steps(steps.initialize(number), source, target, seed)
  graph, params = tiny.model(0.3)
  flat = lambda side: jnp.asarray(side).reshape(-1, tiny.LENGTH)
  key = dropout_key(seed, number, np.arange(tiny.SLICES))

  def objective(p: PyTree) -> tuple[jax.Array, jax.Array]:
    outputs = nnx.merge(graph, p)(flat(source), flat(target), key)
    return step.cross_entropy(outputs, flat(target), 0.1)

  (smoothed, plain), gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))(
    params
  )
  tokens = (target != PAD).sum()
  assert (sums.tokens, sums.skipped) == (tokens, 0)
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-6)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-6)
  squares = sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))
  np.testing.assert_allclose(sums.gradient_norm, squares**0.5 / tokens, rtol=1e-5)
  state = jax.device_get(state)
  assert state.step == number + 1 and state.opt_state[0].count == 1
  averages, gradients = map(jax.tree.leaves, (state.opt_state[0].mu, gradient))
  for average, g in zip(averages, gradients, strict=True):
    np.testing.assert_allclose(average, 0.1 * g / tokens, rtol=1e-3, atol=1e-7)

  def changed(path: tuple, x: np.ndarray) -> np.ndarray:
    """The gradient by the scale of the last norm overflows, but not the loss."""
    names = jax.tree_util.keystr(path, simple=True, separator='.')
    factors = {'query': 0, 'embedding': 1e18}
    factors['decoder.0.feed_forward_norm.norm'] = 1e-20
    return x * next((v for name, v in factors.items() if name in names), 1)

  steep = jax.tree_util.tree_map_with_path(changed, params)
  for bad in jax.tree.map(lambda x: x * np.nan, params), steep:
    before = steps.initialize(number)._replace(params=bad)
    kept = jax.tree.map(np.array, before)
    after, sums = steps(steps.devices.replicate(before), source, target, seed)
    assert sums.skipped == 1 and not np.isfinite(sums.gradient_norm)
    assert np.isfinite(sums.loss) == (bad is steep)
    after = jax.device_get(after)
    assert after.step == number + 1
    jax.tree.map(np.testing.assert_array_equal, after[1:], kept[1:])


@pytest.mark.devices
@pytest.mark.parametrize(
  ('count', 'at_once'),
  [
    (8, 1),
    pytest.param(1, 8, marks=pytest.mark.slow),
    pytest.param(2, 2, marks=pytest.mark.slow),
  ],
)
def test_any_number_of_devices_and_of_slices_at_once(count: int, at_once: int):
  several = lambda: tiny.Steps(count, slices_per_pass=at_once)
  steps = several() if at_once > 1 else tiny.steps_on(count)
  tiny.assert_same_course(tiny.course_on_one(), tiny.course(steps))


@pytest.mark.slow
@pytest.mark.devices
def test_a_loss_of_one_device_that_is_not_finite_is_noticed_by_all(monkeypatch):
  """Where the target has a certain token; the state stays as it was."""
  original, bad = step.cross_entropy, tiny.VOCABULARY - 1

  def poisonous(outputs: Outputs, target: jax.Array, epsilon_ls: float) -> tuple:
    smoothed, plain = original(outputs, target, epsilon_ls)
    return smoothed * jnp.where((target == bad).any(), jnp.nan, 1.0), plain

  monkeypatch.setattr(step, 'cross_entropy', poisonous)
  steps = tiny.Steps(8)
  source, target = (np.where(side == bad, 3, side) for side in tiny.example())
  state, sums = steps(steps.initialize(), source, target)
  assert sums.skipped == 0
  before = jax.device_get(state)
  target[5, 0, 0] = bad
  state, sums = steps(state, source, target)
  assert sums.skipped == 1
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(state)[1:], before[1:])


def test_adam_by_equation_3():
  """Five updates; the config's numbers differ from the paper's."""
  config = base.get_config()
  config.update({'adam_b1': 0.8, 'adam_b2': 0.95, 'adam_epsilon': 1e-3})
  config.update({'warmup_steps': 3, 'rate_factor': 0.5})
  b1, b2, epsilon, warmup, factor = 0.8, 0.95, 1e-3, 3, 0.5
  transform = step.adam(config)
  rng = np.random.default_rng(0)
  gradients = rng.normal(size=(5, 7)) * np.logspace(-9, 1, 7)
  x = params = np.zeros(7)
  m, v, state = np.zeros(7), np.zeros(7), transform.init(jnp.zeros(7))
  update = jax.jit(transform.update)
  for n, g in enumerate(gradients, 1):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    rate = factor * 512**-0.5 * min(n**-0.5, n * warmup**-1.5)
    x = x - rate * (m / (1 - b1**n)) / (np.sqrt(v / (1 - b2**n)) + epsilon)
    change, state = update(jnp.asarray(g, jnp.float32), state)
    params = params + np.asarray(change, np.float64)
  np.testing.assert_allclose(params, x, rtol=2e-5)
