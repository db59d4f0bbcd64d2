"""Updates: sums over slices on any number of devices, dropout, gradients not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import PyTree

from toy import steps as tiny
from transformer_jax.data.vocabulary import PAD
from transformer_jax.model.transformer import Outputs
from transformer_jax.training import step


def test_sums_are_over_the_tokens_of_all_slices():
  """They equal those of all sentences at once: no mean of slices' means."""
  source, target = tiny.example()
  steps = tiny.steps_on(1, P_drop=0.0, rate=1e-2)
  _, sums = steps(steps.initialize(), source, target)
  graph, params = tiny.model(0.0)
  flat = lambda side: jnp.asarray(side).reshape(-1, tiny.LENGTH)

  def objective(p: PyTree) -> tuple[jax.Array, jax.Array]:
    outputs = nnx.merge(graph, p)(flat(source), flat(target))
    return step.cross_entropy(outputs, flat(target), 0.1)

  (smoothed, plain), gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))(
    params
  )
  tokens = (target != PAD).sum()
  assert len({*(target != PAD).sum((1, 2))}) > 3
  assert sums.tokens == tokens
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-6)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-6)
  squares = sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))
  np.testing.assert_allclose(sums.gradient_norm, squares**0.5 / tokens, rtol=1e-5)


@pytest.mark.devices
def test_any_number_of_devices_is_one_device():
  tiny.assert_same_course(tiny.course_on_one(), tiny.course(tiny.steps_on(8)))


@pytest.mark.slow
@pytest.mark.devices
@pytest.mark.parametrize(('count', 'at_once'), [(1, 8), (2, 2)])
def test_any_number_of_slices_at_once_is_one_at_a_time(count: int, at_once: int):
  tiny.assert_same_course(
    tiny.course_on_one(), tiny.course(tiny.Steps(count, slices_per_pass=at_once))
  )


@pytest.mark.slow
@pytest.mark.devices
def test_an_update_without_a_finite_loss_and_gradient_is_skipped(monkeypatch):
  """One slice of one device is enough; the state stays as it was."""
  original = step.cross_entropy
  nan, steep = tiny.VOCABULARY - 1, tiny.VOCABULARY - 2

  def poisonous(outputs: Outputs, target: jax.Array, epsilon_ls: float) -> tuple:
    """Is nan where the target has `nan`; `steep` makes the gradient alone overflow."""
    smoothed, plain = original(outputs, target, epsilon_ls)
    slope = jnp.where((target == steep).any(), 1e38, 0.0)
    smoothed += slope * (smoothed - jax.lax.stop_gradient(smoothed))
    return smoothed * jnp.where((target == nan).any(), jnp.nan, 1.0), plain

  monkeypatch.setattr(step, 'cross_entropy', poisonous)
  steps = tiny.Steps(8)
  source, clean = (np.where(side >= steep, 3, side) for side in tiny.example())
  state, sums = steps(steps.initialize(), source, clean)
  assert sums.skipped == 0 and np.isfinite(sums.loss)
  before = jax.device_get(state)
  for number, token in enumerate((nan, steep), 2):
    target = clean.copy()
    target[5, 0, 0] = token
    state, sums = steps(state, source, target)
    assert sums.skipped == 1 and not np.isfinite(sums.gradient_norm)
    assert np.isfinite(sums.loss) == (token == steep)
    after = jax.device_get(state)
    assert after.step == number
    jax.tree.map(np.testing.assert_array_equal, after[1:], before[1:])
  state, sums = steps(state, source, clean)
  assert sums.skipped == 0
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params, before.params)
  assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.devices  # which share the program of one device
def test_dropout_depends_on_slice_step_and_seed():
  """The loss of the same two sentences changes with each of the three alone."""
  steps = tiny.steps_on(1)

  def loss_at(number: int, step: int, seed: int) -> float:
    sides = np.zeros((2, tiny.SLICES, tiny.ROWS, tiny.LENGTH), np.int32)
    sides[:, number] = [side[0] for side in tiny.example()]
    return float(steps(steps.initialize(step), *sides, seed)[1].loss)

  first = loss_at(0, 0, 1)
  assert loss_at(0, 0, 1) == first
  for other in ((1, 0, 1), (7, 0, 1), (0, 1, 1), (1, 1, 1), (0, 0, 2)):
    assert abs(loss_at(*other) / first - 1) > 1e-4
