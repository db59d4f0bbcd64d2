"""What a CPU alone needs: the loss in parts, and products that Eigen may get wrong."""

import functools
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

from configs import multi30k
from toy import forms
from toy.forms import linear, linear_transposed, normal
from toy.programs import SERVER
from toy.steps import Steps
from transformer_jax.model import build, ops, ops_cpu
from transformer_jax.model.transformer import Outputs
from transformer_jax.training.step import cross_entropy


def smoothed(params, graph: nnx.GraphDef, source: np.ndarray, target: np.ndarray):
  outputs = nnx.merge(graph, params)(source, target, forms.dropout_key())
  return cross_entropy(outputs, target, 0.1)[0]


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_the_loss_of_a_table_larger_than_the_cache(dtype: jnp.dtype, monkeypatch):
  """It is transposed 16 rows at a time; the last 16 overlap those before."""
  monkeypatch.setattr(ops_cpu, 'CACHE_BYTES', 1000)
  tokens, width = 37, 30
  table, x = normal(tokens, width).astype(dtype), normal(2, width)
  labels, real = jnp.array([0, tokens - 1]), jnp.ones(2, bool)
  loss_of = functools.partial(ops.smoothed_cross_entropy, epsilon=0.1)
  of = lambda x: loss_of(x, table, labels, real)[0]
  value, gradient = jax.jit(jax.value_and_grad(of))(x)

  def by_one_hot(x: jax.Array) -> jax.Array:
    log = jax.nn.log_softmax(x @ table.astype(jnp.float32).T)
    hot = jax.nn.one_hot(labels, tokens)
    return -((0.9 * hot + 0.1 / (tokens - 1) * (1 - hot)) * log).sum()

  expected_value, expected = jax.value_and_grad(by_one_hot)(x)
  rough = 3e-2 if dtype == jnp.bfloat16 else 1e-4
  np.testing.assert_allclose(value, expected_value, rtol=rough)
  assert np.linalg.norm(gradient - expected) / np.linalg.norm(expected) < rough


def loss_gradient(rows: int, tokens: int, width: int) -> jax.stages.Compiled:
  """Compiles the loss's gradient by x and by the table."""

  def objective(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    return cross_entropy(Outputs(x, table), labels, 0.1)[0]

  shapes = jnp.zeros((rows, width)), jnp.zeros((tokens, width))
  labels = jnp.ones(rows, jnp.int32)
  return jax.jit(jax.grad(objective, (0, 1))).lower(*shapes, labels).compile()


@pytest.mark.parametrize('width', [64, 512])
def test_the_loss_of_many_rows_takes_no_more_memory(width: int):
  """The table is smaller or larger than a cache."""
  few, many = (
    loss_gradient(rows, 37_000, width).memory_analysis().temp_size_in_bytes
    for rows in (1024, 4096)
  )
  assert many - few < 4 * 4 * width * (4096 - 1024)  # four times what x takes more


# XLA's fault on CPUs: a product of two matrices by Eigen may be wrong (docs/eigen.md)


MATRIX = re.compile(r'= f32\[([2-9]|\d\d+),([2-9]|\d\d+)\]\S* dot\(')


def products_by_ynn(program: jax.stages.Compiled) -> int:
  """Counts a program's products of two matrices, if none is left to Eigen."""
  text = program.as_text()
  fusions = {*re.findall(r'%ynn_fusion\S* = .* calls=(%[\w.-]+)', text)}
  count, computation = 0, ''
  for line in text.splitlines():
    computation = line.split()[0] if line.endswith('{') else computation
    if MATRIX.search(line):
      assert computation in fusions, 'left to Eigen'
      count += 1
  return count


@pytest.mark.parametrize(
  ('product', 'shape'),
  [(linear, (32, 100)), (linear_transposed, (100, 32)), (ops.logits, (100, 32))],
)
def test_eigen_multiplies_nothing(product: Callable, shape: tuple[int, int]):
  """Nor in the gradient, where the plain forms transpose a left side."""

  def compile_gradient() -> jax.stages.Compiled:
    squares = lambda x, weight: jnp.square(product(x, weight)).sum()
    gradient = jax.jit(jax.value_and_grad(squares, (0, 1)))
    return gradient.lower(normal(64, 32), normal(*shape)).compile()

  assert products_by_ynn(compile_gradient()) == 3
  with forms.of_an_accelerator(), pytest.raises(AssertionError, match='left to Eigen'):
    products_by_ynn(compile_gradient())


@pytest.mark.parametrize('rows', [64, 1000])
def test_eigen_multiplies_nothing_in_the_loss(rows: int):
  """Of all rows at once, and of some at a time."""
  # Logits, two gradients, and the sums of exponentials.
  assert products_by_ynn(loss_gradient(rows, 5000, 32)) == 4


def gradients_of_two_devices() -> None:
  """Checks that a step of Multi30k's size has its slices' own gradients."""
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
    off = np.abs(ours / scale - theirs).max()
    assert off < 1e-3 * np.abs(theirs).max(), (ours.shape, off, np.abs(theirs).max())


@pytest.mark.slow
def test_a_step_on_two_devices_has_right_gradients():
  process = SERVER.Process(target=gradients_of_two_devices, daemon=True)
  process.start()
  process.join(300)
  assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize(('threads', 'wrong'), [(2, 1), (3, 0)])
def test_eigen_needs_a_spare_thread(threads: int, wrong: int):
  """If two threads are right too, platform.use_ynn() is no longer needed."""
  script = pathlib.Path(__file__).with_name('eigen_fault.py')
  environment = os.environ | {'NPROC': str(threads), 'XLA_FLAGS': ''}
  done = subprocess.run([sys.executable, script], env=environment, text=True)
  assert done.returncode == wrong
