"""Kernels for a GPU, interpreted on this CPU, equal the plain forms."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.forms import dropout_key, normal, random_like
from transformer_jax.config import Model
from transformer_jax.model import layers, ops, ops_gpu
from transformer_jax.model.attention import attend
from transformer_jax.model.dropout import Dropout
from transformer_jax.model.transformer import Transformer
from transformer_jax.training.step import cross_entropy

TOKENS = 300


def outputs(function: Callable, inputs: tuple, mode: str) -> list[np.ndarray]:
  """Returns a function's value, and its gradients for a weighted sum of it."""

  def both(*inputs: jax.Array) -> tuple[jax.Array, ...]:
    value, backward = jax.vjp(function, *inputs)
    return value, *backward(normal(*value.shape, seed=9).astype(value.dtype))

  with ops.mode(mode):
    return [np.asarray(x, np.float32) for x in jax.jit(both)(*inputs)]


def assert_equal(function: Callable, *inputs: jax.Array, off: float = 1e-6) -> None:
  """The kernel is as near to the plain form, in the norm of each output."""
  pair = (outputs(function, inputs, mode) for mode in ('interpret', 'plain'))
  for ours, expected in zip(*pair, strict=True):
    assert np.linalg.norm(ours - expected) <= off * max(1, np.linalg.norm(expected))


def attention(
  T: int, M: int, h: int, d_k: int, d_v: int, kept: list[int] | None, dtype: Any
) -> tuple[Callable, tuple]:
  """Returns an attention and its inputs; sentence n has kept[n] keys, or is causal."""
  B, D = 2 if kept is None else len(kept), 8
  x, memory = normal(B, T, D).astype(dtype), normal(B, M, D, seed=1).astype(dtype)
  widths = (d_k, d_k, d_v)
  matrices = [normal(D, h, d, seed=2 + n) / 4 for n, d in enumerate(widths)]
  mask = jnp.tri(T, dtype=bool)[None]
  if kept is not None:
    mask = jnp.arange(M)[None, None] < jnp.array(kept)[:, None, None]

  def function(x: jax.Array, memory: jax.Array, *matrices: jax.Array) -> jax.Array:
    other = None if kept is None else memory
    return attend(x, other, matrices, mask, dtype=dtype)

  return function, (x, memory, *matrices)


lengths = st.one_of(st.integers(1, 40), st.sampled_from([64, 65, 100]))
widths = st.sampled_from([16, 32])


@settings(max_examples=6)
@given(
  T=lengths, M=lengths, h=st.integers(1, 3), d_k=widths, d_v=widths, data=st.data()
)
def test_attention(T: int, M: int, h: int, d_k: int, d_v: int, data: st.DataObject):
  """Of any lengths, with padding from none to all, and d_k that is not d_v."""
  kept = data.draw(st.lists(st.integers(0, M), min_size=1, max_size=2))
  function, inputs = attention(T, M, h, d_k, d_v, kept, jnp.float32)
  assert_equal(function, *inputs)
  function, inputs = attention(T, T, h, d_k, d_v, None, jnp.float32)
  assert_equal(function, *inputs)


@pytest.mark.slow
@pytest.mark.parametrize('length', [128, 200, 256])
def test_attention_of_long_sentences(length: int):
  for kept in (None, [length, 3]):
    function, inputs = attention(length, length, 1, 16, 16, kept, jnp.float32)
    assert_equal(function, *inputs)


@pytest.mark.parametrize('kept', [None, [7, 3]])
def test_attention_in_bfloat16(kept: list[int] | None):
  function, inputs = attention(9, 9, 2, 16, 16, kept, jnp.bfloat16)
  assert_equal(function, *inputs, off=1e-2)


def smoothed(
  rows: int, tokens: int, epsilon: float, dtype: Any
) -> tuple[Callable, tuple]:
  """Returns the losses and their inputs; labels are at the vocabulary's edges too."""
  labels = jnp.arange(rows) * 7 % tokens
  labels = labels.at[0].set(tokens - 1)
  real = jnp.arange(rows) % 3 != 1
  table = normal(tokens, 8, seed=1).astype(dtype)

  def function(x: jax.Array, table: jax.Array) -> jax.Array:
    return jnp.stack(
      ops.smoothed_cross_entropy(x, table, labels, real, epsilon=epsilon)
    )

  return function, (normal(rows, 8).astype(dtype), table)


@pytest.mark.parametrize(
  ('rows', 'tokens', 'epsilon'), [(1, 5, 0.1), (5, 128, 0.1), (7, TOKENS, 0.0)]
)
def test_cross_entropy(rows: int, tokens: int, epsilon: float):
  function, inputs = smoothed(rows, tokens, epsilon, jnp.float32)
  assert_equal(function, *inputs)


def test_cross_entropy_in_bfloat16():
  function, inputs = smoothed(7, TOKENS, 0.1, jnp.bfloat16)
  assert_equal(function, *inputs, off=1e-2)


def add_and_norm(
  shape: tuple[int, ...], slices: int, rate: float, dtype: Any, site: int = 0
) -> tuple[Callable, tuple]:
  dropout = Dropout(rate, dropout_key(1, 2, jnp.arange(slices))).at(site)
  x, y = (normal(*shape, seed=n).astype(dtype) for n in range(2))
  vectors = [normal(shape[-1], seed=n) for n in (2, 3)]
  function = lambda *inputs: layers.add_and_norm(*inputs, dropout)
  return function, (x, y, *vectors)


@settings(max_examples=3)
@given(
  slices=st.integers(1, 2),
  rows=st.integers(1, 3),
  length=st.integers(1, 30),
  D=st.sampled_from([64, 256]),
  rate=st.sampled_from([0.0, 0.3]),
)
def test_add_and_norm(slices: int, rows: int, length: int, D: int, rate: float):
  """Of any number of rows; the same elements are dropped."""
  shape = slices * rows, length, D
  function, inputs = add_and_norm(shape, slices, rate, jnp.float32)
  assert_equal(function, *inputs)


def test_add_and_norm_in_bfloat16():
  function, inputs = add_and_norm((2, 16, 64), 2, 0.3, jnp.bfloat16)
  assert_equal(function, *inputs, off=1e-2)


@pytest.mark.parametrize(
  'mutant', ['mask shifted', 'scale forgotten', 'padding counted', 'other site']
)
def test_mutants_fail(mutant: str, monkeypatch):
  jax.clear_caches()
  original, load = ops_gpu._dot, ops_gpu.load
  if mutant == 'mask shifted':
    shifted = lambda x: jnp.roll(x, 1, 1) if x.dtype == bool else x
    monkeypatch.setattr(ops_gpu, 'load', lambda *inputs: shifted(load(*inputs)))
    function, inputs = attention(9, 9, 1, 16, 16, None, jnp.float32)
  elif mutant == 'scale forgotten':
    scale = lambda **options: 4 if options.get('trans_b') else 1
    dot = lambda a, b, **options: original(a, b, **options) * scale(**options)
    monkeypatch.setattr(ops_gpu, '_dot', dot)
    function, inputs = attention(9, 9, 1, 16, 16, None, jnp.float32)
  elif mutant == 'padding counted':
    kernel = ops_gpu._row_kernel
    ones = lambda z, labels, weights, *rest, **of: kernel(
      z, labels, jnp.ones(weights.shape), *rest, **of
    )
    monkeypatch.setattr(ops_gpu, '_row_kernel', ones)
    function, inputs = smoothed(7, TOKENS, 0.1, jnp.float32)
  else:
    stream = Dropout.stream
    monkeypatch.setattr(Dropout, 'stream', lambda self, site: stream(self, site + 1))
    function, inputs = add_and_norm((2, 16, 64), 2, 0.3, jnp.float32)
  with pytest.raises(AssertionError):
    assert_equal(function, *inputs)
  jax.clear_caches()


@functools.cache
def model(d_k: int) -> tuple[nnx.GraphDef, Any]:
  sizes = Model(
    N=1, d_model=64, d_ff=32, h=2, d_k=d_k, d_v=16, P_drop=0.3, vocab_size=50
  )
  dtypes = {'dtype': jnp.float32, 'activation_dtype': jnp.float32}
  make = lambda: Transformer(sizes, **dtypes, rngs=nnx.Rngs(params=0))
  graph, shapes = nnx.split(nnx.eval_shape(make))
  return graph, random_like(nnx.to_pure_dict(shapes), 0.1)


def loss(params: Any, graph: nnx.GraphDef) -> jax.Array:
  source, target = np.random.default_rng(0).integers(3, 50, (2, 4, 7))
  source[1, 3:] = target[2, 4:] = 0
  key = dropout_key(1, 2, jnp.arange(2))
  outputs = nnx.merge(graph, params)(jnp.array(source), jnp.array(target), key)
  return cross_entropy(outputs, jnp.array(target), 0.1)[0]


def test_a_model_with_kernels():
  """Its loss has the gradient of plain forms. Heads of 24 are none for a kernel."""
  kernels, gradients = {}, []
  for d_k, mode in (16, 'interpret'), (16, 'plain'), (24, 'interpret'), (24, 'plain'):
    graph, params = model(d_k)
    gradient = jax.jit(lambda params, graph=graph: jax.grad(loss)(params, graph))
    with ops.mode(mode):
      kernels[d_k, mode] = str(gradient.trace(params).jaxpr).count('pallas_call')
      if d_k == 16:
        gradients.append(gradient(params))
  for ours, expected in zip(*map(jax.tree.leaves, gradients), strict=True):
    assert np.linalg.norm(ours - expected) < 1e-5 * np.linalg.norm(expected)
  assert kernels[16, 'interpret'] > kernels[24, 'interpret'] > 0
  assert kernels[16, 'plain'] == kernels[24, 'plain'] == 0


def test_a_program_for_a_cpu_has_no_kernels():
  """Even where JAX would choose kernels for a GPU."""
  function, inputs = attention(9, 9, 2, 16, 16, None, jnp.float32)
  ours, expected = (outputs(function, inputs, mode) for mode in ('cuda', 'plain'))
  jax.tree.map(np.testing.assert_array_equal, ours, expected)
