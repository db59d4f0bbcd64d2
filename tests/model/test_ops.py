"""Both forms of the operations, a CPU's and an accelerator's, equal plain formulas."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from toy import forms
from toy.forms import linear, linear_transposed, normal
from transformer_jax.model import ops


@pytest.fixture(params=['cpu', 'accelerator'], autouse=True, scope='module')
def form(request: pytest.FixtureRequest) -> Iterator[None]:
  is_cpu = request.param == 'cpu'
  with contextlib.nullcontext() if is_cpu else forms.of_an_accelerator():
    yield


def assert_same(operation: Callable, plain: Callable, *inputs: jax.Array) -> None:
  """Compares values, and gradients of a sum with a weight for each element."""
  weights = normal(*np.shape(plain(*inputs)), seed=9)

  def value_and_gradient(f: Callable) -> tuple:
    gradient = jax.grad(lambda inputs: jnp.vdot(f(*inputs), weights))
    return jax.jit(lambda inputs: (f(*inputs), *gradient(inputs)))(inputs)

  both = value_and_gradient(operation), value_and_gradient(plain)
  for ours, expected in zip(*both, strict=True):
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_products():
  x = normal(2, 3, 5)
  assert_same(linear, jnp.matmul, x, normal(5, 4, seed=1))
  # Of few outputs, whose gradient is smaller than the inputs.
  assert_same(linear, jnp.matmul, normal(2, 3, 50), normal(50, 2, seed=1))
  for product in ops.logits, linear_transposed:
    assert_same(product, lambda x, table: x @ table.T, x, normal(11, 5, seed=1))


@pytest.mark.parametrize('size', [40, 129, 1281])
def test_top_tokens(size: int):
  """Also of ties and -inf."""
  rng = np.random.default_rng(size)
  x = rng.integers(-3, 40, (6, 7, size)).astype(np.float32)
  x[x < 0] = -np.inf
  x[0, 0, : size - 3] = -np.inf
  x[1] = rng.normal(size=(7, size))
  for count in 1, 10:
    first = np.argsort(-x, kind='stable')[..., :count]
    expected = np.take_along_axis(x, first, -1)
    top_tokens = jax.jit(functools.partial(ops.top_tokens, count=count))
    values, tokens, normalizer = map(np.asarray, top_tokens(x))
    assert np.array_equal(values, expected)
    finite = np.isfinite(expected)
    assert np.array_equal(tokens[finite], first[finite])
    np.testing.assert_allclose(normalizer, special.logsumexp(x, -1), rtol=1e-6)


def rounded(x: jax.Array) -> jax.Array:
  return x.astype(jnp.bfloat16).astype(jnp.float32)


@pytest.mark.parametrize('rows', [(2, 3), (1, 1)])
@pytest.mark.parametrize('product', [linear, linear_transposed, ops.logits])
def test_float32_times_bfloat16(product: Callable, rows: tuple[int, int]):
  """Operands are rounded, the result is not; gradients have their inputs' dtypes."""
  x, weight = normal(*rows, 5), normal(5, 4, seed=1).astype(jnp.bfloat16)
  stored = weight if product is linear else weight.T

  @jax.jit
  def run(*inputs: jax.Array) -> tuple[jax.Array, ...]:
    result, backward = jax.vjp(product, *inputs[:2])
    return result, *backward(inputs[2])

  by_result = normal(*rows, 4, seed=2)
  result, by_x, by_stored = run(x, stored, by_result)
  assert (result.dtype, by_x.dtype) == (jnp.float32, jnp.float32)
  np.testing.assert_allclose(result, rounded(x) @ rounded(weight), atol=1e-5)
  near = functools.partial(np.testing.assert_allclose, rtol=0.02, atol=0.02)
  near(by_x, rounded(by_result) @ rounded(weight).T)
  assert by_stored.dtype == jnp.bfloat16
  by_weight = jnp.tensordot(rounded(x), rounded(by_result), ((0, 1), (0, 1)))
  near(rounded(by_stored), by_weight if product is linear else by_weight.T)


@pytest.mark.parametrize('condition', [True, False])
def test_an_update_on_a_condition(condition: bool):
  update = lambda x, tree: (x + 1, {'y': tree['y'] * x})
  run = jax.jit(lambda condition, *state: ops.update_if(condition, update, *state))
  state = normal(3), {'y': normal(3, seed=1)}
  expected = update(*state) if condition else state
  close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
  jax.tree.map(close, run(condition, *state), expected)
