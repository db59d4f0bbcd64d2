"""A config's compiled steps, and its checkpoints on any number of devices."""

import pathlib

import jax
import numpy as np
import pytest
from flax import nnx

from toy import checkpoints
from toy.runs import state_shapes
from toy.steps import corpus, model, tiny_config
from transformer_jax.data import batches
from transformer_jax.machine.devices import Devices
from transformer_jax.model import build
from transformer_jax.training import trainer
from transformer_jax.training.step import TrainState, cross_entropy
from transformer_jax.training.trainer import Trainer


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
  sides = [side.reshape(-1, side.shape[-1]) for side in batch[:2]]
  outputs = jax.jit(lambda params: nnx.merge(graph, params)(*sides))(params)
  smoothed, plain = cross_entropy(outputs, sides[1], 0.3)
  state, sums = ours.step(state, batch)
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-5)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-5)
  assert float(ours.learning_rate(2)) == pytest.approx(0.5 * 16**-0.5 * 3 * 7**-1.5)
  assert float(ours.learning_rate(27)) == pytest.approx(0.5 * 16**-0.5 * 28**-0.5)
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
  empty = np.zeros((config.slices, 1, 13), np.int32)
  with pytest.raises(KeyError):
    ours.step(state, batches.Batch(empty, empty, empty))


@pytest.mark.parametrize('order', [1, -1])
def test_all_shapes_take_as_many_slices_as_the_largest(
  order: int, tmp_path: pathlib.Path, monkeypatch
):
  """The number is decided once, whatever shape comes first."""
  config = tiny_config(tokens_per_batch=64, max_shapes=2)
  ours = Trainer(config, corpus(tmp_path), Devices(8, jax.devices()[:1]))
  ours.devices.pass_sizes = [8, 4, 1]
  lowered, said = [], []
  lower = ours._lower

  def record(state: TrainState, shape: batches.Shape, size: int) -> jax.stages.Lowered:
    lowered.append((shape, size))
    return lower(state, shape, size)

  monkeypatch.setattr(ours, '_lower', record)
  fits = lambda one: None if len(lowered) == 1 else one.compile()
  monkeypatch.setattr(trainer, 'compile_if_it_fits', fits)
  shapes = ours.batches.shapes[::order]
  with ours.compile(ours.initial(), shapes, said.append):
    ours.wait_for_all_programs()
  shorter, largest = sorted(shapes, key=lambda shape: shape.source + shape.target)
  assert lowered == [(largest, 8), (largest, 4), (shorter, 4)]
  assert said[0] == 'a device computes 4 of its 8 slices at once'


@pytest.mark.devices
def test_any_number_of_devices_goes_on_from_a_checkpoint(tmp_path: pathlib.Path):
  """Every device of 1, 4 or 8 has the numbers that were written."""
  config, folder = tiny_config(tokens_per_batch=64, max_shapes=1), corpus(tmp_path)
  noise = np.random.default_rng(0)
  draw = lambda x: (9 * noise.normal(size=x.shape)).astype(x.dtype)
  saved = jax.tree.map(draw, state_shapes(config))
  checkpoints.save(tmp_path / 'checkpoints', 2, *saved)
  for count in (1, 4, 8):
    one = Trainer(config, folder, Devices(8, jax.devices()[:count]))
    state = one.restore(tmp_path / 'checkpoints')
    assert state.step == 2
    for on_devices, array in zip(
      jax.tree.leaves(state[1:]), jax.tree.leaves(saved), strict=True
    ):
      assert len(on_devices.addressable_shards) == count
      for part in on_devices.addressable_shards:
        np.testing.assert_array_equal(part.data, array)
