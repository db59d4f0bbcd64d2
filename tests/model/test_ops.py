"""A CPU's forms of the operations equal the plain ones, in value and gradient."""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import multi30k, quickstart
from toy.programs import SERVER
from toy.steps import Steps
from transformer_jax.machine import environment
from transformer_jax.model import build, ops, ops_cpu
from transformer_jax.model.transformer import Outputs
from transformer_jax.training import loss

SHAPES = ((7, 5), (2, 3, 5))


def normal(*shape: int, seed: int = 0) -> jax.Array:
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_same(operation: Callable, plain: Callable, *inputs: jax.Array) -> None:
  """Equal values, and equal gradients of a sum that weighs each element by itself."""
  np.testing.assert_allclose(operation(*inputs), plain(*inputs), atol=1e-5)
  weights = normal(*np.shape(plain(*inputs)), seed=9)
  gradient = lambda f: jax.grad(lambda inputs: jnp.vdot(f(*inputs), weights))(inputs)
  for ours, expected in zip(gradient(operation), gradient(plain), strict=True):
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.fixture(params=['cpu', 'gpu'])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
  monkeypatch.setattr(jax, 'default_backend', lambda: request.param)
  return request.param


@pytest.mark.parametrize('shape', SHAPES)
def test_products(backend: str, shape: tuple[int, ...]):
  x = normal(*shape)
  assert_same(ops.linear, jnp.matmul, x, normal(5, 4, seed=1))
  for product in ops.logits, ops.linear_transposed:
    assert_same(product, lambda x, table: x @ table.T, x, normal(11, 5, seed=1))


@pytest.mark.parametrize('shape', [*SHAPES, (1, 5), (40, 5)])
def test_a_vector_in_every_row(backend: str, shape: tuple[int, ...]):
  x = normal(*shape)
  scaled = lambda vector, x: x * ops.in_every_row(vector, x)
  plain = lambda vector, x: x * jnp.broadcast_to(vector, x.shape)
  assert_same(scaled, plain, normal(5, seed=1), x)


@pytest.mark.parametrize('shape', [(5,), *SHAPES, (40, 5), (16, 3, 5)])
def test_a_sum_of_squares(backend: str, shape: tuple[int, ...]):
  x = normal(*shape)
  np.testing.assert_allclose(ops.sum_of_squares(x), np.vdot(x, x), rtol=1e-6)


def test_squares_are_summed_without_storing_all_of_them():
  x = normal(1024, 512)
  memory = jax.jit(ops.sum_of_squares).lower(x).compile().memory_analysis()
  assert memory.temp_size_in_bytes < x.nbytes / 4
  plain = jax.jit(lambda x: (x * x).sum()).lower(x).compile().memory_analysis()
  assert plain.temp_size_in_bytes >= x.nbytes  # or the form is needed no more


def test_values_weighted_by_attention(backend: str):
  plain = lambda weights, v: jnp.einsum('bhrm,bhmv->bhrv', weights, v)
  assert_same(
    ops.weighted_values, plain, normal(2, 3, 4, 5), normal(2, 3, 5, 6, seed=1)
  )


@pytest.mark.parametrize('size', [40, 129, 1000, 1280, 1281, 5000])
def test_best_words(backend: str, size: int):
  """Ties and all: few different values, and -inf."""
  rng = np.random.default_rng(size)
  x = rng.integers(-3, 40, (6, 7, size)).astype(np.float32)
  x[x < 0] = -np.inf
  x[0, 0, : size - 3] = -np.inf
  x[1] = rng.normal(size=(7, size))
  normalizer = jax.nn.logsumexp(x, -1)
  for count in 1, 3, 10:
    expected = jax.lax.top_k(x, count)
    # A function of its own: jit would give one backend the program of the other.
    found = jax.jit(lambda x, count=count: ops.best_words(x, count))(x)
    assert np.array_equal(found[0], expected[0])
    there = np.isfinite(expected[0])
    assert np.array_equal(found[1][there], expected[1][there])
    np.testing.assert_allclose(found[2], normalizer, rtol=1e-6)


def rounded(x: jax.Array) -> jax.Array:
  return x.astype(jnp.bfloat16).astype(jnp.float32)


@pytest.mark.parametrize('rows', [(2, 3), (1, 1)])
@pytest.mark.parametrize('product', [ops.linear, ops.linear_transposed, ops.logits])
def test_float32_activations_meet_bfloat16_weights(
  backend: str, product: Callable, rows: tuple[int, int]
):
  """Operands are rounded, the result is not; gradients have their inputs' dtypes."""
  x, weight = normal(*rows, 5), normal(5, 4, seed=1).astype(jnp.bfloat16)
  given = weight if product is ops.linear else weight.T
  result, backward = jax.vjp(product, x, given)
  assert result.dtype == jnp.float32
  expected = rounded(x) @ rounded(weight)
  np.testing.assert_allclose(result, expected, atol=1e-5)
  gradients = backward(normal(*rows, 4, seed=2))
  assert [g.dtype for g in gradients] == [jnp.float32, jnp.bfloat16]


def smoothed(params, graph: nnx.GraphDef, source: np.ndarray, target: np.ndarray):
  outputs = nnx.merge(graph, params).outputs(source, target, jax.random.key(1))
  return loss.cross_entropy(outputs, target, 0.1)[0]


def test_the_model_and_its_loss(monkeypatch: pytest.MonkeyPatch):
  config = quickstart.get_config()
  config.model.update(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8, vocab_size=50)
  graph, params = build.transformer(config)
  pairs = np.random.default_rng(0).integers(4, 50, (2, 3, 6)).astype(np.int32)
  pairs[:, 0, 4:] = 0
  of = lambda: jax.jit(jax.value_and_grad(lambda x: smoothed(x, graph, *pairs)))(params)
  value, gradient = of()
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  expected, plain = of()
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
  jax.tree.map(close, gradient, plain)


# What XLA makes of the forms


MATRIX = re.compile(r'= f32\[([2-9]|\d\d+),([2-9]|\d\d+)\]\S* dot\(')


def signatures(text: str) -> list[str]:
  """Of YNN's products of two matrices, the operands' types; all products are YNN's."""
  start = text.index('\nENTRY')
  assert not MATRIX.search(text[start:]), 'left to Eigen'
  found, signature = [], ''
  for line in text[:start].splitlines():
    signature = line.partition('->')[0] if line.endswith('{') else signature
    if MATRIX.search(line):
      found.append(signature)
  assert found
  return found


PRODUCTS = pytest.mark.parametrize(
  ('product', 'shape'),
  [
    (ops.linear, (32, 100)),
    (ops.linear_transposed, (100, 32)),
    (ops.logits, (100, 32)),
  ],
)


@PRODUCTS
def test_eigen_multiplies_nothing(
  product: Callable, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
  """Nor in the gradient, where the plain forms transpose a left side."""

  def text() -> str:
    squares = lambda x, weight: jnp.square(product(x, weight)).sum()
    gradient = jax.jit(jax.value_and_grad(squares, (0, 1)))
    return gradient.lower(normal(64, 32), normal(*shape)).compile().as_text()

  assert len(signatures(text())) == 3
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  with pytest.raises(AssertionError, match='left to Eigen'):
    signatures(text())


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_a_large_table_is_transposed_in_parts(
  dtype: jnp.dtype, monkeypatch: pytest.MonkeyPatch
):
  """As the loss's gradient needs it; the last part overlaps the one before."""
  monkeypatch.setattr(ops_cpu, 'CACHE', 1000)
  words, width = 37, 30
  table, x = normal(words, width).astype(dtype), normal(2, width)
  labels, real = jnp.array([0, words - 1]), jnp.ones(2, bool)
  of = lambda x: ops.cross_entropy(x, table, None, labels, real, 0.1)[0]
  value, gradient = jax.jit(jax.value_and_grad(of))(x)
  plain = lambda x: _smoothed(x, table.astype(jnp.float32), labels)
  expected_value, expected = jax.value_and_grad(plain)(x)
  rough = 3e-2 if dtype == jnp.bfloat16 else 1e-4
  np.testing.assert_allclose(value, expected_value, rtol=rough)
  off = np.linalg.norm(gradient - expected) / np.linalg.norm(expected)
  assert off < rough


def _smoothed(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
  """Section 5.4's loss with 0.1, by a one-hot."""
  log = jax.nn.log_softmax(x @ table.T)
  hot = jax.nn.one_hot(labels, len(table))
  return -((0.9 * hot + 0.1 / (len(table) - 1) * (1 - hot)) * log).sum()


@pytest.mark.parametrize('rows', [1, 64])
@PRODUCTS
def test_ynn_multiplies_bfloat16(product: Callable, shape: tuple[int, int], rows: int):
  """XLA makes bfloat16 float32 again for a vector, or if an operand is transposed."""
  if not environment.multiplies_bfloat16():
    pytest.skip('XLA multiplies bfloat16 as float32 on this processor')
  x, weight = normal(rows, 32), normal(*shape).astype(jnp.bfloat16)
  text = jax.jit(product).lower(x, weight).compile().as_text()
  assert not [operands for operands in signatures(text) if 'f32[' in operands]


def loss_gradient(
  labels: jax.Array, x: jax.Array, table: jax.Array
) -> jax.stages.Compiled:
  """The program of the loss's gradient by x and by the table."""
  outputs = lambda x, table: Outputs(x, table, None)
  objective = lambda *given: loss.cross_entropy(outputs(*given), labels, 0.1)[0]
  return jax.jit(jax.grad(objective, (0, 1))).lower(x, table).compile()


def test_the_loss_transposes_no_logits(backend: str):
  """It takes them as the product stores them: by words on a CPU, or by rows."""
  labels = 1 + jnp.arange(64)
  text = loss_gradient(labels, normal(64, 32), normal(100, 32)).as_text()
  stored = ['f32[100,64]{1,0}', 'f32[64,100]{1,0}']
  assert [shape in text for shape in stored] == [backend == 'cpu', backend != 'cpu']


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('rows', [64, 1000])
def test_ynn_multiplies_in_the_loss(rows: int, dtype: jnp.dtype):
  """All three products, of all rows at once and of some at a time."""
  if dtype == jnp.bfloat16 and not environment.multiplies_bfloat16():
    pytest.skip('XLA multiplies bfloat16 as float32 on this processor')
  labels = jnp.ones(rows, jnp.int32)
  given = normal(rows, 32), normal(5000, 32).astype(dtype)
  found = signatures(loss_gradient(labels, *given).as_text())
  assert len(found) == 3
  assert dtype == jnp.float32 or not [types for types in found if 'f32[' in types]


@pytest.mark.parametrize('width', [64, 512])
def test_the_loss_of_many_rows_takes_no_more_memory(width: int):
  """Whether the table is small enough for a cache, or not."""
  table = jnp.zeros((37_000, width))

  def needed(rows: int) -> int:
    program = loss_gradient(jnp.ones(rows, jnp.int32), jnp.zeros((rows, width)), table)
    return program.memory_analysis().temp_size_in_bytes

  of_rows = 4 * width * (4096 - 1024)  # what x takes more
  assert needed(4096) - needed(1024) < 4 * of_rows


@pytest.mark.parametrize('shape', [(8, 40), (40, 8)])
def test_the_gradient_by_a_weight_transposes_the_smaller_side(shape: tuple[int, int]):
  squares = lambda weight, x: jnp.square(ops.linear(x, weight)).sum()
  gradient = jax.jit(jax.grad(squares))
  text = gradient.lower(normal(*shape), normal(64, shape[0])).compile().as_text()
  assert 'f32[8,64]' in text and 'f32[40,64]' not in text


# XLA's fault on CPUs


def gradients_of_two_devices() -> None:
  """A step at Multi30k's size has the gradients of its slices taken one by one."""
  jax.config.update('jax_num_cpu_devices', 2)
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
    ours = ours.reshape(theirs.shape)  # it is shared by the devices
    off = np.abs(ours / scale - theirs).max()
    assert off < 1e-3 * np.abs(theirs).max(), (ours.shape, off, np.abs(theirs).max())


@pytest.mark.slow
def test_a_step_on_two_devices_has_right_gradients():
  process = SERVER.Process(target=gradients_of_two_devices)
  process.start()
  process.join(300)
  assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize(('threads', 'wrong'), [(2, 1), (3, 0)])
def test_eigen_needs_a_spare_thread(threads: int, wrong: int):
  """If two threads are right too, platform.set_cpu_flags() is no longer needed."""
  script = pathlib.Path(__file__).with_name('eigen_fault.py')
  environment = os.environ | {'NPROC': str(threads), 'XLA_FLAGS': ''}
  done = subprocess.run([sys.executable, script], env=environment, text=True)
  assert done.returncode == wrong
