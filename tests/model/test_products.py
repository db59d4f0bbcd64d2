"""The CPU's forms of the products equal the plain ones, in value and gradient."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import multi30k, quickstart
from toy.programs import SERVER
from toy.steps import Steps
from transformer_jax.machine import processor
from transformer_jax.model import build, products
from transformer_jax.training import loss

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


def rounded(x: jax.Array) -> jax.Array:
  return x.astype(jnp.bfloat16).astype(jnp.float32)


@pytest.mark.parametrize('rows', [(2, 3), (1, 1)])
@pytest.mark.parametrize('product', [products.linear, products.logits])
def test_on_a_cpu_bfloat16_operands_have_float32_results(product, rows):
  """Operands and gradients are rounded, and a weight's gradient; nothing else."""
  x, gradient = normal(*rows, 5), normal(*rows, 4, seed=2)
  weight = normal(5, 4, seed=1)
  plain = lambda x, weight: x @ weight
  given = weight.astype(jnp.bfloat16)
  if product is products.logits:
    given = given.T
  result, backward = jax.vjp(product, x, given)
  expected, exact = jax.vjp(plain, rounded(x), rounded(weight))
  assert result.dtype == jnp.float32
  np.testing.assert_allclose(result, expected, atol=1e-5)
  towards_x, towards_weight = backward(gradient)
  expected = exact(rounded(gradient))
  assert (towards_x.dtype, towards_weight.dtype) == (jnp.float32, jnp.bfloat16)
  np.testing.assert_allclose(towards_x, expected[0], atol=1e-5)
  if product is products.logits:
    towards_weight = towards_weight.T
  np.testing.assert_array_equal(towards_weight, expected[1].astype(jnp.bfloat16))


@pytest.mark.parametrize('rows', [1, 16, 17, 50])
def test_a_weight_is_transposed_in_parts(rows: int):
  weight = normal(rows, 5)
  np.testing.assert_array_equal(products.transposed_weight(weight), weight.T)


def test_a_weight_in_bfloat16_is_never_made_float32():
  """XLA would do that to all of it for every part."""
  weight = normal(50, 5).astype(jnp.bfloat16)
  transposed = jax.jit(products.transposed_weight)
  np.testing.assert_array_equal(transposed(weight), weight.T)
  assert 'f32' not in transposed.lower(weight).compile().as_text()


@pytest.mark.parametrize('rows', [1, 7, 12, 40])
def test_sums_over_rows(platform: None, rows: int):
  x = normal(rows, 5)
  np.testing.assert_allclose(products.sum_of(x, 0), x.sum(0), atol=1e-5)
  np.testing.assert_allclose(products.sum_of(x, 1), x.sum(1), atol=1e-5)


@pytest.mark.parametrize('shape', SHAPES)
def test_a_vector_for_rows_is_broadcast(platform: None, shape: tuple[int, ...]):
  x = normal(*shape)
  scaled = lambda vector, x: x * products.for_rows(vector, x)
  plain = lambda vector, x: x * jnp.broadcast_to(vector, x.shape)
  same(scaled, plain, normal(5, seed=1), x)


def smoothed(params, graph: nnx.GraphDef, source: np.ndarray, target: np.ndarray):
  logits = nnx.merge(graph, params)(source, target, jax.random.key(1))
  return loss.cross_entropy(logits, target, 0.1)[0]


def test_the_model_and_its_loss_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch):
  config = quickstart.get_config()
  config.model.update(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8, vocab_size=50)
  graph, params = build.transformer(config)
  pairs = np.random.default_rng(0).integers(4, 50, (2, 3, 6)).astype(np.int32)
  pairs[:, 0, 4:] = 0
  of = lambda: jax.jit(jax.value_and_grad(lambda x: smoothed(x, graph, *pairs)))(params)
  value, gradient = of()
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  expected, plain = of()
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
  jax.tree.map(close, gradient, plain)


def compiled_gradient(objective, *inputs: jax.Array) -> str:
  program = jax.jit(jax.value_and_grad(objective, (0, 1))).lower(*inputs).compile()
  return program.as_text()


MATRIX = re.compile(r'= f32\[([2-9]|\d\d+),([2-9]|\d\d+)\]\S* dot\(')


def left_to_eigen(text: str) -> list[str]:
  """A program's products of two matrices that are not in a fusion of YNN's."""
  lines = text[text.index('\nENTRY') :].splitlines()
  assert any('"__ynn_fusion"' in line for line in lines)
  return [line for line in lines if MATRIX.search(line)]


def made_float32(text: str) -> list[str]:
  """The signatures of YNN's products of two matrices, of which one is float32."""
  found, signature = [], ''
  for line in text[: text.index('\nENTRY')].splitlines():
    signature = line if line.endswith('{') else signature
    if MATRIX.search(line):
      found.append(signature)
  assert found
  return [line for line in found if 'f32[' in line.partition('->')[0]]


def squares(x: jax.Array, weight: jax.Array) -> jax.Array:
  return jnp.square(products.linear(x, weight)).sum()


def surprise(x: jax.Array, table: jax.Array) -> jax.Array:
  return loss.cross_entropy(products.logits(x, table), 1 + jnp.arange(len(x)), 0.1)[0]


rounds = pytest.mark.skipif(
  not processor.multiplies_bfloat16(),
  reason='XLA leaves products in bfloat16 alone on processors that have them',
)
both = pytest.mark.parametrize(
  'objective, shape', [(squares, (32, 100)), (surprise, (100, 32))]
)


@both
def test_on_a_cpu_ynn_multiplies(
  objective, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
  """Or the forms are for nothing: XLA folds transpositions into products."""
  x, weight = normal(64, 32), normal(*shape)
  assert not left_to_eigen(compiled_gradient(objective, x, weight))
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  assert left_to_eigen(compiled_gradient(objective, x, weight))


@rounds
@both
def test_products_in_bfloat16_stay_so(
  objective, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
  """XLA makes those float32 again one of whose operands looks transposed."""
  x, weight = normal(64, 32), normal(*shape).astype(jnp.bfloat16)
  assert not made_float32(compiled_gradient(objective, x, weight))
  monkeypatch.setattr(products, 'transposed', lambda x: products.copied(x.T))
  assert made_float32(compiled_gradient(objective, x, weight))


@rounds
@both
def test_one_row_is_multiplied_in_bfloat16(objective, shape: tuple[int, int]):
  """As greedy search has it, of one sentence; a vector XLA would make float32 again."""
  x, weight = normal(1, 32), normal(*shape).astype(jnp.bfloat16)
  program = jax.jit(objective).lower(x, weight).compile()
  assert not made_float32(program.as_text())


def gradients_of_two_devices() -> None:
  """A step at Multi30k's size has the gradients of its slices taken one by one."""
  count = '--xla_force_host_platform_device_count'
  os.environ['XLA_FLAGS'] = re.sub(
    rf'{count}=\d+', f'{count}=2', os.environ['XLA_FLAGS']
  )
  config = multi30k.get_config('en-de')
  config.model.P_drop = 0.0
  graph, params = build.transformer(config)
  params = jax.tree.map(np.array, params)
  sides = np.random.default_rng(0).integers(4, config.model.vocab_size, (2, 8, 33, 28))
  source, target = sides.astype(np.int32)

  gradient = jax.jit(jax.grad(lambda params, *pair: smoothed(params, graph, *pair)))
  each = [gradient(params, *pair) for pair in zip(source, target, strict=True)]
  expected = jax.tree.map(lambda *parts: sum(np.float64(p) for p in parts), *each)

  steps = Steps(2, of=(graph, params))
  assert jax.device_count() == steps.devices.count == 2
  state, _ = steps(steps.initial(), source, target)
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
def test_products_in_loops_on_two_devices_are_right():
  """By Eigen, on two cores, the embedding's gradient would be off by 8 per cent."""
  process = SERVER.Process(target=gradients_of_two_devices)
  process.start()
  process.join(300)
  assert process.exitcode == 0


def test_logits_are_never_transposed(monkeypatch: pytest.MonkeyPatch):
  """The loss takes them as the product stores them, by words or by rows."""
  x, table = normal(64, 32), normal(100, 32)
  by_words, by_rows = 'f32[100,64]{1,0}', 'f32[64,100]{1,0}'
  text = compiled_gradient(surprise, x, table)
  assert by_words in text and by_rows not in text
  monkeypatch.setattr(products, 'on_cpu', lambda: False)
  text = compiled_gradient(surprise, x, table)
  assert by_rows in text and by_words not in text
