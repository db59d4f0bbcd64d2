"""What a CPU alone needs: the loss in parts, and right products on two devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import multi30k
from toy import forms
from toy.programs import SERVER
from toy.steps import Steps
from transformer_jax.model import build
from transformer_jax.model.transformer import Outputs
from transformer_jax.training.step import cross_entropy


@pytest.mark.parametrize('width', [pytest.param(64, marks=pytest.mark.slow), 512])
def test_the_loss_of_many_rows_takes_no_more_memory(width: int):
  """The table is smaller or larger than a cache."""

  def memory(rows: int) -> int:
    loss = lambda x, table, labels: cross_entropy(Outputs(x, table), labels, 0.1)[0]
    inputs = jnp.zeros((rows, width)), jnp.zeros((37_000, width)), jnp.ones(rows, int)
    program = jax.jit(jax.grad(loss, (0, 1))).lower(*inputs).compile()
    return program.memory_analysis().temp_size_in_bytes

  more_for_x = 4 * width * (4096 - 1024)
  assert memory(4096) - memory(1024) < 4 * more_for_x


# XLA's fault on CPUs: a product of two matrices by Eigen may be wrong (docs/speed.md)


def gradients_of_two_devices() -> None:
  """Checks that a step of Multi30k's size has its slices' own gradients."""
  jax.config.update('jax_num_cpu_devices', 2)
  config = multi30k.get_config('en-de')
  config.model.P_drop = 0.0
  graph, params = build.transformer(config)
  params = jax.tree.map(np.array, params)
  sides = np.random.default_rng(0).integers(4, config.model.vocab_size, (2, 8, 33, 28))
  source, target = sides.astype(np.int32)

  def smoothed(params, source: np.ndarray, target: np.ndarray) -> jax.Array:
    outputs = nnx.merge(graph, params)(source, target, forms.dropout_key())
    return cross_entropy(outputs, target, 0.1)[0]

  gradient = jax.jit(jax.grad(smoothed))
  each = [gradient(params, *pair) for pair in zip(source, target, strict=True)]
  expected = jax.tree.map(lambda *parts: sum(np.float64(p) for p in parts), *each)

  steps = Steps(2, of=(graph, params))
  assert jax.device_count() == steps.devices.count == 2
  state, _ = steps(steps.initialize(), source, target)
  # Adam's first moment is (1 - beta1) of the first gradient, a mean over tokens.
  scale = (1 - 0.9) / target.size
  for ours, theirs in zip(
    jax.tree.leaves(jax.device_get(state.opt_state[0].mu)),
    jax.tree.leaves(expected),
    strict=True,
  ):
    off = np.abs(ours / scale - theirs).max()
    assert off < 1e-3 * np.abs(theirs).max(), (ours.shape, off, np.abs(theirs).max())


@pytest.mark.slow
def test_a_step_on_two_devices_has_right_gradients():
  process = SERVER.Process(target=gradients_of_two_devices, daemon=True)
  process.start()
  process.join(300)
  assert process.exitcode == 0
