"""Slices of a batch on devices, and the memory that devices use."""

import pathlib
import types

import jax
import numpy as np
import pytest

from toy.steps import corpus, example, steps_on, tiny_config
from transformer_jax.data.batches import train_batches
from transformer_jax.machine.devices import (
  Devices,
  compile_if_it_fits,
  replicate,
  replicate_read_only,
)
from transformer_jax.machine.errors import UserError

pytestmark = pytest.mark.devices


def test_a_device_count_that_does_not_divide_the_slices_is_refused():
  with pytest.raises(UserError, match='1, 2, 4, 8'):
    Devices(8, jax.devices()[:3])


@pytest.mark.parametrize('count', [1, 4, 8])
def test_slices_lie_on_devices_in_their_order(count: int, tmp_path: pathlib.Path):
  """So a slice has the same rows and dropout on any number of devices."""
  all_batches = train_batches(
    tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path)
  )
  devices = Devices(8, jax.devices()[:count])
  for step in range(20):
    batch = all_batches.batch(step, devices.host_slices)
    rows = batch.pairs.astype(np.int32)
    parts = {x.device: x.data for x in devices.split((rows,))[0].addressable_shards}
    assert {len(part[0]) for part in parts.values()} == {8 // count}
    actual = [parts[device][0] for device in jax.devices()[:count]]
    np.testing.assert_array_equal(np.concatenate(actual), all_batches.batch(step).pairs)


def addresses(x: jax.Array) -> set[int]:
  """Returns the addresses of an array's shards."""
  return {part.data.unsafe_buffer_pointer() for part in x.addressable_shards}


def test_the_state_is_updated_in_place():
  """Each array of the old state has the memory of one of the new state."""
  steps = steps_on(8)
  state, _ = steps(steps.initial(), *example())  # the first may be the host's memory
  before = jax.tree.map(addresses, state)
  after, _ = steps(state, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(state))
  assert jax.tree.map(addresses, after) == before


class Needs:
  """Stands in for a lowered program and its sizes."""

  argument_size_in_bytes, output_size_in_bytes, alias_size_in_bytes = 30, 40, 25

  def __init__(self, temporary: int = 0, error: Exception | None = None):
    self.temp_size_in_bytes, self._error = temporary, error

  def compile(self) -> 'Needs':
    if self._error is not None:
      raise self._error
    return self

  def memory_analysis(self) -> 'Needs':
    return self


def test_a_program_that_needs_too_much_memory_is_not_taken(monkeypatch):
  fits = lambda *needs: compile_if_it_fits(Needs(*needs)) is not None
  assert fits(10**15)  # a CPU does not tell
  device = types.SimpleNamespace(memory_stats=lambda: {'bytes_limit': 200})
  monkeypatch.setattr(jax, 'local_devices', lambda: [device])
  assert fits(135) and not fits(136)  # 30 + 40 - 25 + 135 is nine tenths
  error = jax.errors.JaxRuntimeError
  assert not fits(0, error('RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm'))
  with pytest.raises(error, match='INTERNAL'):
    fits(0, error('INTERNAL: no kernel'))


def test_devices_of_a_cpu_read_the_same_memory():
  """Arrays may come from the host, from one device or from all."""
  x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
  for source in (x, jax.numpy.array(x), replicate(x)):
    actual = replicate_read_only({'x': source})['x']
    parts = [part.data for part in actual.addressable_shards]
    assert [part.device for part in parts] == jax.local_devices()
    assert len({part.unsafe_buffer_pointer() for part in parts}) == 1
    for part in parts:
      np.testing.assert_array_equal(part, x)
