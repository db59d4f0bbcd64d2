"""Kernels of all configs but my.py's, and a few whole steps, compile for an H200.

The number of heads or rows changes no more than how many programs a kernel has, and
whether rows fill its blocks.

`make kernels` has a virtual environment of its own, with jax[cuda12-local]: in it, JAX
writes to stderr as it starts without a GPU.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from configs import base, big, multi30k, parsing, quickstart, table3
from transformer_jax.data.batches import Shape
from transformer_jax.model import layers, ops, ops_gpu
from transformer_jax.model.attention import attend
from transformer_jax.model.dropout import NO_DROPOUT, Dropout, DropoutKey
from transformer_jax.scale.compile import lower_step, lowering_for
from transformer_jax.scale.topologies import devices_of, topology

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not importlib.util.find_spec('jax_cuda12_plugin'), reason='needs jax_cuda12_plugin'
  ),
]
CONFIGS = [base.get_config(), base.get_config('en-fr'), big.get_config()]
CONFIGS += [multi30k.get_config(), quickstart.get_config()]
CONFIGS += [table3.get_config(row) for row in table3.ROWS]
CONFIGS += [table3.get_config(f'{row},mini') for row in table3.ROWS]
CONFIGS += [parsing.get_config(name) for name in parsing.ARGS]
MODELS = [config.model for config in CONFIGS]
# Narrower heads and a d_model that is no power of two, as the quickstart's, are plain.
HEADS = {(m.d_k, m.d_v): m.h for m in MODELS if min(m.d_k, m.d_v) >= 16}
WIDTHS = sorted({m.d_model for m in MODELS if m.d_model.bit_count() == 1})
TOKENS = sorted({m.target_vocab_size or m.vocab_size for m in MODELS})


def array(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, dtype)


def kernels(operations: Sequence[tuple[Callable, tuple, tuple]]) -> int:
  """Compiles operations and their gradients; returns how many kernels they have.

  An operation comes with its inputs and with those that have no gradient.
  """

  def all_of(inputs: list) -> list:
    results = []
    for (operation, *_), (own, fixed) in zip(operations, inputs, strict=True):
      of_own = lambda *own, o=operation, fixed=fixed: o(*own, *fixed)
      value, backward = jax.vjp(of_own, *own)
      results.append((value, backward(jnp.ones_like(value))))
    return results

  target = topology('h200:1')
  here = jax.sharding.SingleDeviceSharding(*devices_of(target))
  with lowering_for(target), ops.kernel_mode('cuda'):
    program = jax.jit(all_of, in_shardings=here)
    lowered = program.lower([inputs for _, *inputs in operations])
  lowered.compile()
  return lowered.as_text().count('xla.gpu.triton')


@pytest.mark.parametrize('widths', HEADS, ids=str)
def test_attention(widths: tuple[int, int]):
  """Of encoder and decoder, and between them; where a head fits into shared memory."""
  (d_k, d_v), h = widths, HEADS[widths]
  matrices = tuple(array(64, h, d, dtype=jnp.float32) for d in (d_k, d_k, d_v))
  between = lambda *inputs: attend(*inputs, NO_DROPOUT, h=h, dtype=jnp.bfloat16)
  of_self = lambda x, *rest: between(x, None, *rest)
  longest = ops_gpu.longest_keys(d_k, d_v, jnp.bfloat16)
  blocks = [n for n in (16, 32, 64, 128, 256) if n <= longest]
  operations = []
  for S, T in [(n, n - 5) for n in blocks] + [(n - 5, n) for n in blocks]:
    source, target = array(2, S, 64), array(2, T, 64)
    padding, causal = array(2, 1, S, dtype=bool), array(1, T, T, dtype=bool)
    operations += [
      (of_self, (source, matrices), (padding,)),
      (of_self, (target, matrices), (causal,)),
      (between, (target, source, matrices), (padding,)),
    ]
  assert operations
  assert kernels(operations) == 2 * len(operations)


@pytest.mark.parametrize('rows', [(98, 32), (7, 13)])
@pytest.mark.parametrize('D', WIDTHS)
def test_add_and_norm(D: int, rows: tuple[int, int]):
  def operation(x, y, scale, bias, seed, slices):
    dropout = Dropout(0.1, DropoutKey(seed, seed, slices))
    return layers.add_and_norm(x, y, scale, bias, dropout)

  x, vector = array(2 * rows[0], rows[1], D), array(D, dtype=jnp.float32)
  key = array(dtype=jnp.int32), array(2, dtype=jnp.int32)
  assert kernels([(operation, (x, x, vector, vector), key)]) == 2


def test_cross_entropy():
  def operation(x, table, labels, real):
    return ops.smoothed_cross_entropy(x, table, labels, real, epsilon=0.1)[0]

  rows = array(64, dtype=jnp.int32), array(64, dtype=bool)
  inputs = [(array(64, 64), array(tokens, 64)) for tokens in TOKENS]
  assert kernels([(operation, one, rows) for one in inputs]) == len(TOKENS)


@pytest.mark.parametrize(
  ('config', 'target'),
  [
    (base.get_config(), 'h100:8'),
    (big.get_config(), 'h200:1'),
    (table3.get_config('A1'), 'h100:8'),
    (parsing.get_config('craft'), 'h200:1'),
  ],
  ids=['base', 'big', 'A1', 'craft'],
)
def test_a_step_compiles(config: Any, target: str):
  """For source and target that differ in length."""
  shape = Shape(config.tokens_per_batch // config.slices // 48, 40, 48)
  with lowering_for(topology(target)), ops.kernel_mode('cuda'):
    step = lower_step(config, devices_of(topology(target)), shape)
  attends = config.row != 'A1'  # whose head of 512 does not fit at this length
  assert step.as_text().count('xla.gpu.triton') > (4 if attends else 2)
  step.compile()
