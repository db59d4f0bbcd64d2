"""Kernels for a GPU, interpreted on this CPU, equal the plain forms.

With JAX_PLATFORMS=cuda they run on an NVIDIA GPU (make native).
"""

import os
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.forms import dropout_key, normal
from transformer_jax.model import layers, ops, ops_gpu
from transformer_jax.model.attention import attend
from transformer_jax.model.dropout import NO_DROPOUT, Dropout

IS_NATIVE = os.environ['JAX_PLATFORMS'] == 'cuda'
KERNELS = 'cuda' if IS_NATIVE else 'interpret'
# A GPU's exponential is an approximation.
OFF = {jnp.float32: 1e-5 if IS_NATIVE else 1e-6, jnp.bfloat16: 1e-2}
# From JAX 0.12 on, YNN's sums of bfloat16 products by a transposed matrix err by 1 %. A
# GPU has no such library, so XLA computes the products around kernels without it.
BY_XLA = {'xla_cpu_experimental_ynn_fusion_type': ''}


def outputs(function: Callable, inputs: tuple, mode: str) -> list[np.ndarray]:
  """Returns a function's value, and its gradients for a weighted sum of it."""

  def both(*inputs: jax.Array) -> tuple[jax.Array, ...]:
    value, backward = jax.vjp(function, *inputs)
    return value, *backward(normal(*value.shape, seed=9).astype(value.dtype))

  program = jax.jit(both, compiler_options=BY_XLA)
  # A GPU would multiply float32 as TF32.
  with ops.kernel_mode(mode), jax.default_matmul_precision('highest'):
    return [np.asarray(x, np.float32) for x in program(*inputs)]


def assert_equal(make: Callable, *case: Any) -> None:
  """The kernel differs from the plain form by at most OFF of each output's norm."""
  function, inputs = make(*case)
  off = OFF[inputs[0].dtype.type]
  both = (outputs(function, inputs, mode) for mode in (KERNELS, 'plain'))
  for one, expected in zip(*both, strict=True):
    assert np.linalg.norm(one - expected) <= off * max(1, np.linalg.norm(expected))


def attention(
  T: int, M: int, h: int, d_k: int, d_v: int, kept: tuple[int, ...] | None, dtype: Any
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
    return attend(x, other, matrices, mask, NO_DROPOUT, h=h, dtype=dtype)

  return function, (x, memory, *matrices)


CAUSAL = (33, 33, 2, 16, 16, None, jnp.float32)


def smoothed(
  rows: int, tokens: int, epsilon: float, kept: int, dtype: Any
) -> tuple[Callable, tuple]:
  """Returns the losses and their inputs; `kept` of each three rows are real.

  The first and the last label are the vocabulary's edges.
  """
  labels = (jnp.arange(rows) * 7 % tokens).at[-1].set(tokens - 1)
  real = jnp.arange(rows) % 3 < kept
  table = normal(tokens, 8, seed=1).astype(dtype)

  def function(x: jax.Array, table: jax.Array) -> jax.Array:
    return jnp.stack(
      ops.smoothed_cross_entropy(x, table, labels, real, epsilon=epsilon)
    )

  return function, (normal(rows, 8).astype(dtype), table)


def add_and_norm(
  shape: tuple[int, ...], slices: int, rate: float, dtype: Any
) -> tuple[Callable, tuple]:
  dropout = Dropout(rate, dropout_key(1, 2, jnp.arange(slices)), site=3)
  x, y = (normal(*shape, seed=n).astype(dtype) for n in range(2))
  vectors = [normal(shape[-1], seed=n) for n in (2, 3)]
  function = lambda *inputs: layers.add_and_norm(*inputs, dropout)
  return function, (x, y, *vectors)


@pytest.mark.parametrize(
  ('make', 'case'),
  [
    (attention, CAUSAL),
    (attention, (1, 20, 3, 16, 32, (0, 7, 20), jnp.bfloat16)),
    (smoothed, (7, 300, 0.1, 2, jnp.float32)),
    (add_and_norm, ((6, 11, 64), 2, 0.3, jnp.float32)),
  ],
)
def test_kernels(make: Callable, case: tuple):
  """With padding from none to all, and d_k that is not d_v; with dropped elements."""
  assert_equal(make, *case)


any_of = lambda *values: st.sampled_from(values)
dtypes, size = any_of(jnp.float32, jnp.bfloat16), st.integers(1, 256)


@st.composite
def any_attention(draw: st.DrawFn) -> tuple:
  T, h, dtype = draw(size), draw(any_of(1, 2, 3)), draw(dtypes)
  d_k, d_v = (draw(any_of(16, 24, 32, 64, 128, 512)) for _ in range(2))
  longest = 2**15 // max(d_k, d_v) // jnp.dtype(dtype).itemsize  # else it is plain
  M = min(draw(size), longest)
  padding = st.lists(st.integers(0, M), min_size=1, max_size=2).map(tuple)
  kept = draw(padding | st.none())
  return T if kept else M, M, h, d_k, d_v, kept, dtype


@st.composite
def any_rows(draw: st.DrawFn) -> tuple:
  slices, rows, length = draw(any_of(1, 2)), draw(any_of(1, 2, 3)), draw(size)
  shape = slices * rows, length, draw(any_of(64, 96, 256))
  return shape, slices, draw(any_of(0.0, 0.3)), draw(dtypes)


any_loss = st.tuples(
  st.integers(1, 40), st.integers(2, 700), any_of(0.0, 0.1), any_of(0, 2, 3), dtypes
)
ANY = (attention, any_attention()), (smoothed, any_loss), (add_and_norm, any_rows())


@pytest.mark.slow
@pytest.mark.parametrize(('make', 'cases'), ANY)
@settings(max_examples=20)
@given(data=st.data())
def test_kernels_of_any_sizes(make: Callable, cases: st.SearchStrategy, data):
  assert_equal(make, *data.draw(cases))


RTX_4090 = {'compute_capability': '8.9'}


@pytest.mark.skipif(IS_NATIVE, reason='is of a CPU')
def test_sizes_that_kernels_take(monkeypatch):
  """Wide heads leave room for few keys; Pallas counts elements in 32 bits."""
  keys = [ops_gpu.longest_keys(d, 16, jnp.bfloat16) for d in (8, 24, 64, 128, 512)]
  assert keys == [0, 0, 256, 128, 32]
  monkeypatch.setattr(jax, 'devices', lambda: [types.SimpleNamespace(**RTX_4090)])
  assert ops_gpu.longest_keys(64, 64, jnp.bfloat16) == 128
  rows = 2**31 // (40 * 1024 + ops.TILE)
  assert ops_gpu.takes_logits(rows, 40 * 1024) and not ops_gpu.takes_logits(1, 40_961)
  assert not ops_gpu.takes_logits(rows + 1, 40 * 1024)


@pytest.mark.skipif(IS_NATIVE, reason='is of a CPU')
def test_a_program_for_a_cpu_has_no_kernels():
  """Even where JAX would choose kernels for a GPU."""
  both = (outputs(*attention(*CAUSAL), mode) for mode in ('cuda', 'plain'))
  jax.tree.map(np.testing.assert_array_equal, *both)
