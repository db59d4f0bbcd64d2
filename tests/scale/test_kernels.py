"""Kernels of every config compile for an H200 that is not here, and a few whole steps.

Compiled are, forward and backward:

- the attentions of all lengths into which batches.py cuts text of random lengths, for
  every d_k and d_v. h only counts programs, so the configs' values of h take turns;
- add-and-norm for every d_model, of rows that fill blocks and of rows that do not: a
  number of rows changes no more;
- the loss, for every size of vocabulary;
- whole steps of a few configs, of a shape from the middle.

`make kernels` has a virtual environment of its own, with jax[cuda12-local]: in it, JAX
writes to stderr as it starts without a GPU.
"""

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base, big, multi30k, parsing, quickstart, table3
from transformer_jax.data.batches import Shape, train_batches
from transformer_jax.data.corpus import read_split, token_writer
from transformer_jax.model import layers, ops
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
for (
  config
) in CONFIGS:  # base's 24 lengths would take twice as long, for the same blocks
  config.max_shapes = min(config.max_shapes, 12)
MODELS = [config.model for config in CONFIGS]
HEADS: dict[tuple[int, int], set[int]] = {}  # h by (d_k, d_v)
for model in MODELS:
  if min(model.d_k, model.d_v) >= 16:  # else they have the plain form
    HEADS.setdefault((model.d_k, model.d_v), set()).add(model.h)
# A kernel takes powers of two; the quickstart's 96 takes the plain form.
WIDTHS = sorted({m.d_model for m in MODELS if m.d_model.bit_count() == 1})
TOKENS = sorted({m.target_vocab_size or m.vocab_size for m in MODELS})


@pytest.fixture(scope='module')
def shapes(tmp_path_factory) -> Callable[[Callable], list[Shape]]:
  """Returns a function: all shapes of slices of the configs whose model it selects."""
  folders, rng = {}, np.random.default_rng(0)
  for task, ratio, longest in ('translation', 1.1, 256), ('parsing', 3, 512):
    folders[task] = tmp_path_factory.mktemp(task)
    source = rng.lognormal(3.1, 0.6, 50_000)
    target = source * ratio * rng.uniform(0.7, 1.3, len(source))
    kept = np.maximum(source, target) < longest - 1
    for name, lengths in ('source', source), ('target', target):
      lengths = lengths[kept].astype(np.int64)
      with token_writer(folders[task] / f'train.{name}') as append:
        append(np.zeros(lengths.sum()), lengths)
  of = {
    id(c): train_batches(c, read_split(folders[c.task], 'train')).shapes
    for c in CONFIGS
  }
  return lambda selects: sorted(
    {shape for c in CONFIGS if selects(c.model) for shape in of[id(c)]}
  )


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
def test_attention(widths: tuple[int, int], shapes: Callable):
  """Of encoder and decoder, and between them; where a head fits into shared memory."""
  chosen = shapes(lambda model: (model.d_k, model.d_v) == widths)
  lengths = sorted({(shape.source, shape.target) for shape in chosen})
  operations = {}
  for (S, T), h in zip(lengths, itertools.cycle(HEADS[widths]), strict=False):
    d_k, d_v = widths
    of_width = lambda width, h=h: array(64, h, width, dtype=jnp.float32)
    matrices = tuple(map(of_width, (d_k, d_k, d_v)))
    source, target = array(2, S, 64), array(2, T, 64)
    form = {'h': h, 'dtype': jnp.bfloat16}
    between = lambda *inputs, form=form: attend(*inputs, NO_DROPOUT, **form)
    of_self = lambda x, *rest, between=between: between(x, None, *rest)
    padding, causal = array(2, 1, S, dtype=bool), array(1, T, T, dtype=bool)
    for operation, activations, mask, longest in (
      (of_self, (source,), padding, S),
      (of_self, (target,), causal, T),
      (between, (target, source), padding, max(S, T)),
    ):
      keys = 1 << (mask.shape[2] - 1).bit_length()
      if longest <= 256 and keys * max(widths) <= 2**14:
        key = h, mask.shape, *(x.shape for x in activations)
        operations[key] = operation, (*activations, matrices), (mask,)
  assert operations
  assert kernels([*operations.values()]) == 2 * len(operations)


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
    (base.get_config(), 'h200:1'),
    (big.get_config(), 'h100:8'),
    (table3.get_config('A1'), 'h100:8'),
    (table3.get_config('B1'), 'h100:8'),
    (table3.get_config('C5'), 'h100:8'),
    (multi30k.get_config(), 'h100:8'),
    (parsing.get_config('craft'), 'h200:1'),
  ],
  ids=['base', 'base-h200', 'big', 'A1', 'B1', 'C5', 'multi30k', 'craft'],
)
def test_a_step_compiles(config: Any, target: str, shapes: Callable):
  """For a shape of the middle, whose source and target differ in length."""
  chosen = shapes(lambda model: model == config.model)
  shape = chosen[len(chosen) // 2]
  with lowering_for(topology(target)), ops.kernel_mode('cuda'):
    step = lower_step(config, devices_of(topology(target)), shape)
  attends = config.row != 'A1'  # whose head of 512 does not fit at this length
  assert step.as_text().count('xla.gpu.triton') > (4 if attends else 2)
  step.compile()
