"""The CPU's forms of the products equal the plain ones, in value and gradient."""

import re

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx

from configs import quickstart
from transformer_jax import loss, products, translate

SHAPES = ((7, 5), (2, 3, 5))


def normal(*shape: int, seed: int = 0) -> jax.Array:
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def same(function, plain, *inputs: jax.Array) -> None:
  """Equal values, and equal gradients of a sum that weighs each element by itself."""
  np.testing.assert_allclose(function(*inputs), plain(*inputs), atol=1e-5)
  weights = normal(*np.shape(plain(*inputs)), seed=9)
  gradient = lambda f: jax.grad(lambda inputs: jnp.vdot(f(*inputs), weights))(inputs)
  for ours, expected in zip(gradient(function), gradient(plain), strict=True):
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.fixture(params=[True, False], ids=['cpu', 'elsewhere'])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(products, 'on_cpu', lambda: request.param)


@pytest.mark.parametrize('shape', SHAPES)
def test_products_are_the_plain_ones(platform: None, shape: tuple[int, ...]):
  x = normal(*shape)
  same(products.linear, jnp.matmul, x, normal(5, 4, seed=1))
  same(products.logits, lambda x, table: x @ table.T, x, normal(11, 5, seed=1))


@pytest.mark.parametrize('shape', SHAPES)
def test_a_vector_for_rows_is_broadcast(platform: None, shape: tuple[int, ...]):
  x = normal(*shape)
  scaled = lambda vector, x: x * products.for_rows(vector, x)
  plain = lambda vector, x: x * jnp.broadcast_to(vector, x.shape)
  same(scaled, plain, normal(5, seed=1), x)


def objective(config: ml_collections.ConfigDict):
  graph, params = translate.transformer(config)
  pairs = np.random.default_rng(0).integers(4, 50, (2, 3, 6)).astype(np.int32)
  pairs[:, 0, 4:] = 0

  def of(params):
    model = nnx.merge(graph, params)
    return loss.cross_entropy(model(*pairs, jax.random.key(1)), pairs[1], 0.1)[0]

  return of, params


def test_the_model_and_its_loss_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch):
  config = quickstart.get_config()
  config.model.update(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8, vocab_size=50)
  of, params = objective(config)
  value, gradient = jax.value_and_grad(of)(params)
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  expected, plain = jax.value_and_grad(of)(params)
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
  jax.tree.map(close, gradient, plain)


def compiled_gradient(objective, *inputs: jax.Array) -> str:
  program = jax.jit(jax.value_and_grad(objective, (0, 1))).lower(*inputs).compile()
  return program.as_text()


def test_no_right_side_is_transposed_on_a_cpu(monkeypatch: pytest.MonkeyPatch):
  """Or the form is for nothing: XLA folds transpositions into products."""
  x, weight = normal(64, 32), normal(32, 48)
  objective = lambda x, weight: jnp.square(products.linear(x, weight)).sum()
  transposed = re.compile(r' dot\(.*rhs_contracting_dims=\{1\}')
  text = compiled_gradient(objective, x, weight)
  assert ' dot(' in text and not transposed.search(text)
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  assert transposed.search(compiled_gradient(objective, x, weight))


def test_logits_are_never_transposed(monkeypatch: pytest.MonkeyPatch):
  """The loss takes them as the product stores them, by words or by rows."""
  x, table = normal(64, 32), normal(100, 32)

  def objective(x: jax.Array, table: jax.Array) -> jax.Array:
    return loss.cross_entropy(products.logits(x, table), jnp.arange(64), 0.1)[0]

  by_words, by_rows = 'f32[100,64]{1,0}', 'f32[64,100]{1,0}'
  text = compiled_gradient(objective, x, table)
  assert by_words in text and by_rows not in text
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  text = compiled_gradient(objective, x, table)
  assert by_rows in text and by_words not in text
