"""A config's compiled steps."""

import pathlib
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import base
from toy.steps import corpus, model, tiny_config
from transformer_jax.data.batches import Shape
from transformer_jax.model import build, ops, ops_gpu
from transformer_jax.training import kernels, trainer
from transformer_jax.training.step import cross_entropy
from transformer_jax.training.trainer import Trainer


@pytest.mark.slow
def test_a_program_for_each_shape_and_none_later(tmp_path: pathlib.Path, monkeypatch):
  """Each update uses the config's numbers, which differ from the defaults."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.0))
  config = tiny_config(tokens_per_batch=64, max_shapes=2, epsilon_ls=0.3)
  config.update({'warmup_steps': 7, 'rate_factor': 0.5})
  config.model.P_drop = 0.0
  ours = Trainer(config, corpus(tmp_path))
  state = ours.restore(tmp_path / 'checkpoints')
  with ours.compile(state, ours.batches.shapes):
    ours.wait_for_all_programs()
  assert len(ours.batches.shapes) == 2
  graph, params = model(0.0)
  batch = ours.batch(0)
  sides = [jnp.asarray(side).reshape(-1, side.shape[-1]) for side in batch[:2]]
  loss = lambda params: cross_entropy(nnx.merge(graph, params)(*sides), sides[1], 0.3)
  smoothed, plain = jax.jit(loss)(params)
  state, sums = ours.step(state, batch)
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-5)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-5)
  assert float(ours.learning_rate(2)) == pytest.approx(0.5 * 16**-0.5 * 3 * 7**-1.5)
  compiled = []
  count = lambda event, seconds, **_: compiled.append(event)
  jax.monitoring.register_event_duration_secs_listener(count)
  try:
    seen = set()
    for step in range(1, ours.batches.steps_per_epoch + 1):
      batch = ours.batches.batch(step)
      seen.add(batch.source.shape)
      state, sums = ours.step(state, batch)
  finally:
    jax.monitoring.unregister_event_duration_listener(count)
  assert len(seen) == 2 and np.isfinite(sums.loss)
  assert not [event for event in compiled if 'compile' in event]


@pytest.mark.slow
def test_the_seed_decides_the_order_and_dropout(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  orders, losses, first = [], [], None
  for seed in (1, 2):
    config = tiny_config(max_shapes=1, seed=seed)
    config.model.P_drop = 0.3
    ours = Trainer(config, corpus(tmp_path))
    orders.append(ours.batch(0).pairs.tolist())
    first = first or ours.batch(0)
    state = ours.initialize()
    with ours.compile(state, ours.batches.shapes):
      ours.wait_for_all_programs()
    losses.append(float(ours.step(state, first)[1].loss))
  assert orders[0] != orders[1]
  assert abs(losses[0] / losses[1] - 1) > 1e-4


@pytest.fixture
def quick(monkeypatch) -> None:
  """Nothing is initialized or compiled."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.0))
  monkeypatch.setattr(trainer, 'compile_if_it_fits', lambda lowered: lowered)


@pytest.mark.slow
def test_all_shapes_take_as_many_slices_as_the_largest(quick, tmp_path, monkeypatch):
  ours = Trainer(tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path))
  ours.devices.pass_sizes = [8, 4, 1]
  answers, said, sizes = iter([None]), [], []
  length = lambda lowered: lowered.args_info[0][1].source.shape[-1]
  fits = lambda lowered: sizes.append(length(lowered)) or next(answers, lowered)
  monkeypatch.setattr(trainer, 'compile_if_it_fits', fits)
  with ours.compile(ours.initialize(), ours.batches.shapes, said.append):
    pass
  assert said[0] == 'a device computes 4 of its 8 slices at once'
  assert sizes == [max(shape.source for shape in ours.batches.shapes)] * 2


FAILURES = [
  jax.errors.JaxRuntimeError('Shared memory size limit exceeded'),
  RuntimeError('Unsupported GPU: Tesla V100'),
  ImportError("No module named 'triton'"),
  NotImplementedError(),
]


@pytest.mark.parametrize('failure', FAILURES, ids=lambda x: type(x).__name__)
def test_without_kernels_where_one_does_not_compile(
  failure: Exception, quick, tmp_path, monkeypatch
):
  """One line says so; with --config.kernels=plain none was tried."""
  tried, said = [], []

  def lower(*_: Any) -> types.SimpleNamespace:
    tried.append(ops.kernel_mode.value)
    if tried[-1] != 'plain':
      raise failure
    return types.SimpleNamespace(compile=lambda: None)

  monkeypatch.setattr(Trainer, '_lower', lower)
  monkeypatch.setattr(kernels.Kernels, 'check', lambda *_: None)
  ours = Trainer(tiny_config(max_shapes=1), corpus(tmp_path))
  ours._kernels.mode = 'cuda'
  with ours.compile(ours.initialize(), ours.batches.shapes, said.append):
    ours.wait_for_all_programs()
  assert tried == ['cuda', 'plain']
  reason = str(failure) or 'NotImplementedError'
  assert len([line for line in said if line.endswith(f'since: {reason}')]) == 1


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({}, []),
    ({'h': 1, 'd_k': 512, 'd_v': 512}, ['attention of more than 32 tokens (d_k=512,']),
    ({'d_k': 24}, ['attention (d_k=24,']),
    (
      {'P_drop_attention': 0.1, 'd_model': 96},
      ['attention (P_drop_', 'add-and-norm ('],
    ),
    ({'vocab_size': 50_000}, ['the loss (6,272 positions of 50,000 logits)']),
  ],
)
def test_sizes_that_no_kernel_takes(changes: dict[str, Any], said: list[str]):
  config = base.get_config()
  config.model.update(changes)
  ours = kernels.Kernels(config, 'gpu').plain_forms([Shape(98, 256, 64)], 1)
  for line, start in zip(ours, said, strict=True):
    assert line.startswith(start)


def an_update(folder: pathlib.Path, mode: str) -> tuple[list[np.ndarray], list[str]]:
  """Returns the parameters after an update, and what was said of kernels."""
  said = []
  config = tiny_config(max_shapes=1, slices=1, tokens_per_batch=40)
  ours = Trainer(config, corpus(folder))
  ours._kernels.mode = mode
  state = ours.initialize()
  with ours.compile(state, ours.batches.shapes, said.append):
    state, _ = ours.step(state, ours.batch(0))
  told = [line for line in said if 'kernel' in line]
  return jax.tree.leaves(jax.device_get(state.params)), told


@pytest.mark.slow
def test_kernels_are_compared_before_they_are_trusted(tmp_path, monkeypatch):
  """Training goes on without a wrong one; a comparison is made once."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  plain, told = an_update(tmp_path, 'plain')
  assert not told
  row, compare, compared = ops_gpu._row_kernel, kernels.Kernels._difference, []
  counted = lambda *inputs: compared.append(inputs) or compare(*inputs)
  monkeypatch.setattr(kernels.Kernels, '_difference', counted)
  monkeypatch.setattr(kernels.Kernels, '_path', lambda *_: tmp_path / 'right.json')
  ours, told = an_update(tmp_path, 'interpret')
  assert 'differ by' in told[0] and 'd_model=16' in told[1] and len(told) == 2
  # This one counts the rows of padding.
  wrong = lambda z, labels, weights, *rest, **of: row(
    z, labels, jnp.ones(weights.shape), *rest, **of
  )
  monkeypatch.setattr(ops_gpu, '_row_kernel', wrong)
  monkeypatch.setattr(kernels.Kernels, '_path', lambda *_: tmp_path / 'wrong.json')
  jax.clear_caches()
  for _ in range(2):
    ours, told = an_update(tmp_path, 'interpret')
    assert len(told) == 1 and told[0].startswith('training without kernels')
    jax.tree.map(np.testing.assert_array_equal, ours, plain)
  jax.clear_caches()
  assert len(compared) == 2
