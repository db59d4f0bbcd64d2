"""The closed form equals the loss written out with a one-hot, value and gradient.

Of an identity matrix as the table: then the logits are what the outputs are made of.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy import forms
from transformer_jax.data.vocabulary import PAD
from transformer_jax.model import ops_cpu
from transformer_jax.model.transformer import Outputs
from transformer_jax.training.step import cross_entropy

B, T, W = 3, 5, 11


@pytest.fixture(
  params=['plain', 'all rows at once', 'four rows at a time'],
  autouse=True,
  scope='module',
)
def form(request: pytest.FixtureRequest) -> Iterator[None]:
  """Chooses an accelerator's or a CPU's; the last of the four parts has 3 rows."""
  if request.param == 'plain':
    with forms.of_an_accelerator():
      yield
    return
  with pytest.MonkeyPatch.context() as patch:
    if request.param.startswith('four'):
      patch.setattr(ops_cpu, 'LOGITS_BYTES', 4 * 4 * W)
      patch.setattr(ops_cpu, 'VECTOR_FLOATS', 4)
    jax.clear_caches()  # of what was traced with other sizes
    yield
  jax.clear_caches()


def example(scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
  """Returns [B, T, W] logits and [B, T] labels that end in padding; one row is PAD."""
  rng = np.random.default_rng(0)
  logits = (rng.normal(size=(B, T, W)) * scale).astype(np.float32)
  labels = rng.integers(1, W, (B, T)).astype(np.int32)
  labels[0, 3:] = PAD
  labels[2] = PAD
  return logits, labels


def by_one_hot(logits: jax.Array, labels: jax.Array, epsilon: float) -> jax.Array:
  """Returns - sum_w q(w) log softmax(z)_w over real positions, q as in section 5.4."""
  hot = jax.nn.one_hot(labels, logits.shape[-1])
  target = hot * (1 - epsilon) + (1 - hot) * epsilon / (logits.shape[-1] - 1)
  losses = -(target * jax.nn.log_softmax(logits)).sum(-1)
  return (losses * (labels != PAD)).sum()


@functools.partial(jax.jit, static_argnums=2)
def value_and_gradient(
  logits: jax.Array, labels: jax.Array, epsilon: float
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
  """Returns the smoothed and the unsmoothed loss, and the gradient of the first."""
  of = lambda z: cross_entropy(Outputs(z, jnp.eye(W)), labels, epsilon)
  return jax.value_and_grad(of, has_aux=True)(logits)


expected_of = jax.jit(jax.value_and_grad(by_one_hot))


@pytest.mark.parametrize('epsilon', [0.0, 0.1])
def test_equals_the_one_hot_by_autodiff(epsilon: float):
  logits, labels = example()
  (value, unsmoothed), gradient = value_and_gradient(logits, labels, epsilon)
  expected, slope = expected_of(logits, labels, epsilon)
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  np.testing.assert_allclose(gradient, slope, atol=1e-6)
  expected = expected_of(logits, labels, 0.0)[0]
  np.testing.assert_allclose(unsmoothed, expected, rtol=1e-6)


@pytest.mark.parametrize(('scale', 'shift'), [(1e3, 0), (2.0, -200)])
def test_large_logits_stay_finite_and_right(scale: float, shift: float):
  logits, labels = example(scale)
  (value, _), gradient = value_and_gradient(logits + np.float32(shift), labels, 0.1)
  expected, slope = expected_of(logits, labels, 0.1)
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  np.testing.assert_allclose(gradient, slope, atol=1e-4)


def test_value_and_gradients_of_the_table():
  """They equal autodiff of the logits written out."""
  rng = np.random.default_rng(1)
  labels = jnp.asarray(example()[1])
  x, table = (
    jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((B, T, 6), (W, 6))
  )
  # A factor from outside goes through.
  ours = lambda *outputs: cross_entropy(Outputs(*outputs), labels, 0.1)[0] / 3
  plain = lambda x, table: by_one_hot(x @ table.T, labels, 0.1) / 3
  value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1)))(x, table)
  expected, slopes = jax.jit(jax.value_and_grad(plain, (0, 1)))(x, table)
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  for actual, slope in zip(gradient, slopes, strict=True):
    np.testing.assert_allclose(actual, slope, atol=1e-5)
