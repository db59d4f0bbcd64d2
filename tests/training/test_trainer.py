"""A config's compiled steps."""

import math
import pathlib
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from ml_collections import ConfigDict

from configs import base
from toy.forms import dropout_key
from toy.steps import VOCABULARY, corpus, example, model, tiny_config
from transformer_jax.data.batches import Batch, Shape
from transformer_jax.machine import platform
from transformer_jax.model import build, ops, ops_gpu
from transformer_jax.training import kernels, trainer
from transformer_jax.training.step import cross_entropy
from transformer_jax.training.trainer import Trainer


def test_a_program_for_each_shape(tmp_path: pathlib.Path, monkeypatch):
  """Each update uses the config's numbers, which differ from the defaults."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  config = tiny_config(tokens_per_batch=64, max_shapes=2, epsilon_ls=0.3, seed=7)
  config.update({'warmup_steps': 7, 'rate_factor': 0.5})
  config.model.P_drop = 0.3
  ours = Trainer(config, corpus(tmp_path))
  state = ours.restore(tmp_path / 'checkpoints')
  with ours.compile(state, ours.batches.shapes):
    ours.wait_for_all_programs()
  assert len(ours.batches.shapes) == 2 and ours.pieces == VOCABULARY
  graph, params = model(0.3)
  batch = ours.batch(0)
  ours.wait_for_program(batch)
  sides = [jnp.asarray(side).reshape(-1, side.shape[-1]) for side in batch[:2]]
  key = dropout_key(7, 0, np.arange(config.slices))
  outputs = lambda params: nnx.merge(graph, params)(*sides, key)
  loss = lambda params: cross_entropy(outputs(params), sides[1], 0.3)
  smoothed, plain = jax.jit(loss)(params)
  state, sums = ours.step(state, batch, save=True)
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-5)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-5)
  assert sums.requests.tolist() == [0, config.slices]
  assert float(ours.learning_rate(2)) == pytest.approx(0.5 * 16**-0.5 * 3 * 7**-1.5)
  batch = next(b for b in map(ours.batch, range(1, 99)) if b.shape != batch.shape)
  state, sums = ours.step(state, batch, stop=True)
  assert np.isfinite(sums.loss) and sums.requests.tolist() == [config.slices, 0]


@pytest.fixture
def quick(monkeypatch) -> list[tuple[Shape, int]]:
  """Nothing is initialized or compiled; returns the shapes and sizes of programs."""
  lowered = []
  program = types.SimpleNamespace(compile=lambda: None)
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.0))
  monkeypatch.setattr(trainer, 'compile_if_it_fits', lambda lowered: lowered)
  lower = lambda self, state, *which: lowered.append(which) or program
  monkeypatch.setattr(Trainer, '_lower', lower)
  return lowered


@pytest.mark.parametrize(('answers', 'size'), [((None, 1), 4), ((None, None), 1)])
def test_all_shapes_take_as_many_slices_as_the_largest(
  answers: tuple, size: int, quick: list, tmp_path: pathlib.Path, monkeypatch
):
  ours = Trainer(tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path))
  ours.devices.pass_sizes = [8, 4, 1]
  remaining, said = iter(answers), []
  fits = lambda lowered: next(remaining) and lowered
  monkeypatch.setattr(trainer, 'compile_if_it_fits', fits)
  with ours.compile(ours.initialize(), ours.batches.shapes, said.append):
    ours.wait_for_all_programs()
  assert said == [f'a device computes {size} of its 8 slices at once']
  small, large = sorted(ours.batches.shapes, key=lambda shape: shape.source)
  tried = [(large, 8), (large, 4), (large, 1)][: 2 + (size == 1)]
  assert sorted(quick) == sorted([*tried, (small, size)])


def test_without_kernels_where_one_does_not_compile(quick, tmp_path, monkeypatch):
  tried, checked, said = [], [], []

  def lower(*_: Any) -> types.SimpleNamespace:
    tried.append(ops.kernel_mode.value)
    if tried[-1] != 'plain':
      raise RuntimeError('Unsupported GPU: Tesla V100\nand more')
    return types.SimpleNamespace(compile=lambda: None)

  monkeypatch.setattr(Trainer, '_lower', lower)
  monkeypatch.setattr(kernels.Kernels, 'check', lambda *of: checked.append(of[1:3]))
  ours = Trainer(tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path))
  ours._kernels.mode = 'cuda'
  smallest = min(ours.batches.shapes, key=lambda s: s.rows * (s.source + s.target))
  with ours.compile(ours.initialize(), [smallest], said.append):
    ours.wait_for_all_programs()
  ((make, batch),) = checked
  assert make() is model(0.0) and batch.shape == smallest and len(batch.source) == 1
  assert sum(line.endswith('since: Unsupported GPU: Tesla V100') for line in said) == 1
  assert tried == ['cuda', 'plain']


def test_sizes_that_no_kernel_takes():
  for changes, said in (
    ({}, []),
    ({'h': 1, 'd_k': 512, 'd_v': 512}, ['attention of more than 32 tokens (d_k=512,']),
    ({'P_drop_attention': 0.1, 'd_model': 96}, ['attention (P_drop', 'add-and-norm (']),
    ({'vocab_size': 50_000}, ['the loss (6,272 positions of 50,000 logits)']),
  ):
    config = base.get_config()
    config.model.update(changes)
    ours = kernels.Kernels(config, 'gpu').plain_forms([Shape(98, 256, 64)], 1)
    for line, start in zip(ours, said, strict=True):
      assert line.startswith(start)


def check(
  make: Callable, batch: Batch, config: ConfigDict, mode: str = 'interpret'
) -> tuple[str, list[str]]:
  """Compares kernels of a mode; returns the mode of the training, and what is said."""
  ours, said = kernels.Kernels(config, 'gpu'), []
  assert ours.mode == 'cuda'
  ours.mode = mode
  ours.check(make, batch, said.append)
  return ours.mode, said


def batch_of(length: int) -> Batch:
  return Batch(*[np.full((2, 3, length), 5)] * 3)


def test_kernels_are_compared_once(tmp_path: pathlib.Path, monkeypatch):
  """Each array, by its norm or by 1 % of the gradient's; the comparison is kept."""
  off = {'large': 0.0, 'small': 0.0, 'loss': 0.0}

  def compute(params: Any, source: Any, target: Any, key: Any, **_: Any) -> tuple:
    has_kernels = ops.kernel_mode.value != 'plain'
    if off['loss'] == math.inf and has_kernels:
      raise RuntimeError('no kernel\nand more')
    factor = lambda name: 1 + off[name] if has_kernels else 1
    gradient = {name: x * factor(name) for name, x in params.items()}
    return gradient, source.sum() * factor('loss'), jnp.float32(key.slices.sum() + 1)

  monkeypatch.setattr(kernels, 'loss_and_gradient', compute)
  monkeypatch.setattr(platform, 'compilation_cache', lambda: tmp_path)
  params = {'large': np.full(4, 50.0), 'small': np.full(1, 0.1)}
  model, batch = lambda: (None, params), batch_of(6)
  config = tiny_config(dtype='float32')
  bound = 2**-11 * math.sqrt(12 * 5 * config.model.N)  # TF32 rounds to 11 bits
  again = lambda: pytest.fail('compared again')
  for name, part in (('large', 1), ('small', 0.1), ('loss', 1)):
    for times, mode in (1.02, 'plain'), (0.98, 'interpret'):
      off.update(dict.fromkeys(off, 0.0) | {name: times * bound / part})
      chosen, (said,) = check(model, batch, config)
      assert chosen == mode and f'{times * bound:.2g} with kernels' in said
      assert check(again, batch, config) == (mode, [said])
      (path,) = tmp_path.iterdir()
      path.write_text('{')  # damaged, so that it is made again
  off['loss'] = math.inf
  mode, said = check(model, batch, config)
  assert mode == 'plain' and said[0].endswith(': no kernel') and len(said) == 2
  assert path.read_text() == '{', 'kernels that failed may do so no more'
  path.write_text('{"difference": 0}')
  narrow, rounded = tiny_config(**{'model.d_ff': 8}), tiny_config(dtype='bfloat16')
  others = (batch_of(7), config), (batch, narrow), (batch, rounded)
  for case in *others, (batch, config, 'cuda'):
    with pytest.raises(pytest.fail.Exception):
      check(again, *case)


@pytest.mark.slow
def test_a_wrong_kernel_is_left_out(monkeypatch):
  """This one counts the rows of padding."""
  monkeypatch.setattr(platform, 'compilation_cache', lambda: None)
  batch, row = Batch(*[example()[0]] * 3), ops_gpu._row_kernel
  config = tiny_config(dtype='float32')
  assert check(lambda: model(0.0), batch, config)[0] == 'interpret'
  wrong = lambda z, labels, weights, *rest, **of: row(
    z, labels, jnp.ones(weights.shape), *rest, **of
  )
  monkeypatch.setattr(ops_gpu, '_row_kernel', wrong)
  jax.clear_caches()
  assert check(lambda: model(0.0), batch, config)[0] == 'plain'
  jax.clear_caches()


def test_where_no_kernel_is_wanted():
  for config, device in (tiny_config(), 'cpu'), (tiny_config(kernels='plain'), 'gpu'):
    ours = kernels.Kernels(config, device)
    assert ours.mode == 'plain' and not [*ours.plain_forms([Shape(1, 999, 999)], 1)]
