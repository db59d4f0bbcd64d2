"""Kernels of every config's sizes compile for an H200 that is not here.

They run where `pip install 'jax[cuda12-local]'` has brought the compiler; a GPU is not
needed. With it, JAX without a driver writes to stderr as it starts, so `make test-all`
does without.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from configs import base, big, multi30k, parsing, quickstart, table3
from transformer_jax.model import layers, ops
from transformer_jax.model.attention import attend
from transformer_jax.model.dropout import Dropout, DropoutKey
from transformer_jax.scale.compile import full_shape, lower_step
from transformer_jax.scale.topologies import devices_of, topology

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not importlib.util.find_spec('jax_cuda12_plugin')
    or jax.__version_info__ >= (0, 11),
    reason='needs jax_cuda12_plugin, and a JAX that lowers kernels without a GPU',
  ),
]
CONFIGS = [base.get_config(), base.get_config('en-fr'), big.get_config()]
CONFIGS += [multi30k.get_config(), quickstart.get_config()]
CONFIGS += [table3.get_config(row) for row in table3.ROWS]
CONFIGS += [table3.get_config(f'{row},mini') for row in table3.ROWS]
CONFIGS += [parsing.get_config(name) for name in parsing.ARGS]
MODELS = [config.model for config in CONFIGS]
HEADS = {(m.h, m.d_k, m.d_v): max(m.d_model, 64) for m in MODELS}
WIDTHS = sorted({m.d_model for m in MODELS})
TOKENS = sorted({m.target_vocab_size or m.vocab_size for m in MODELS})


def array(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, dtype)


def kernels(
  operation: Callable, *inputs: jax.ShapeDtypeStruct, fixed: tuple = ()
) -> int:
  """Compiles an operation and its gradient; returns how many kernels that has."""

  def both(inputs: tuple, fixed: tuple) -> tuple:
    value, backward = jax.vjp(lambda *inputs: operation(*inputs, *fixed), *inputs)
    return value, backward(jnp.ones_like(value))

  (device,) = devices_of(topology('h200:1'))
  here = jax.sharding.SingleDeviceSharding(device)
  with ops.mode('cuda'):
    lowered = jax.jit(both, in_shardings=here).lower(inputs, fixed)
  lowered.compile()
  return lowered.as_text().count('xla.gpu.triton')


@pytest.mark.parametrize('lengths', [(32, 32), (40, 65), (200, 256)])
@pytest.mark.parametrize('heads', HEADS, ids=str)
def test_attention(heads: tuple[int, int, int], lengths: tuple[int, int]):
  """Of the widest heads, long sentences have the plain form."""
  (T, M), (h, d_k, d_v), D, B = lengths, heads, HEADS[heads], 3
  matrices = [array(D, h, width, dtype=jnp.float32) for width in (d_k, d_k, d_v)]
  options = {'dtype': jnp.bfloat16}
  cross = lambda x, memory, *rest: attend(x, memory, rest[:3], rest[3], **options)
  masks = [array(*shape, dtype=bool) for shape in ((B, 1, M), (1, T, T))]
  count = kernels(cross, array(B, T, D), array(B, M, D), *matrices, fixed=masks[:1])
  of_self = lambda x, *rest: attend(x, None, rest[:3], rest[3], **options)
  count += kernels(of_self, array(B, T, D), *matrices, fixed=masks[1:])
  fits = lambda length: 1 << (length - 1).bit_length() <= 2**14 // max(d_k, d_v)
  assert count == (2 * fits(M) + 2 * fits(T) if min(d_k, d_v) >= 16 else 0)


@pytest.mark.parametrize('rows', [(98, 32), (7, 13)])
@pytest.mark.parametrize('D', WIDTHS)
def test_add_and_norm(D: int, rows: tuple[int, int]):
  x, vector = array(2 * rows[0], rows[1], D), array(D, dtype=jnp.float32)

  def operation(x, y, scale, bias, seed, slices):
    dropout = Dropout(0.1, DropoutKey(seed, seed, slices))
    return layers.add_and_norm(x, y, scale, bias, dropout)

  numbers = array(dtype=jnp.int32), array(2, dtype=jnp.int32)
  assert kernels(operation, x, x, vector, vector, fixed=numbers) == 2


@pytest.mark.parametrize('tokens', TOKENS)
def test_cross_entropy(tokens: int):
  def operation(x, table, labels, real):
    return ops.smoothed_cross_entropy(x, table, labels, real, epsilon=0.1)[0]

  rows = array(64, dtype=jnp.int32), array(64, dtype=bool)
  assert kernels(operation, array(64, 512), array(tokens, 512), fixed=rows) == 1


def test_base_compiles_for_eight_gpus():
  config = base.get_config()
  with ops.mode('cuda'):
    step = lower_step(config, devices_of(topology('h100:8')), full_shape(config, 32))
  assert step.as_text().count('xla.gpu.triton') > 4
  step.compile()
