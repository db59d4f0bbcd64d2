"""What the devices compute of a batch, and what they tell each other."""

import pathlib
import re
import types

import jax
import numpy as np
import pytest

from toy.hlo import Hlo, size
from toy.steps import (
  corpus,
  example,
  model,
  steps_on,
  tiny_config,
)
from transformer_jax.data import corpus as corpora
from transformer_jax.machine import parallel
from transformer_jax.model import build
from transformer_jax.training.step import StepInput
from transformer_jax.training.trainer import Trainer

pytestmark = pytest.mark.devices


def test_a_device_count_that_does_not_divide_the_slices_is_refused():
  with pytest.raises(ValueError, match='1, 2, 4, 8'):
    parallel.Devices(8, jax.devices()[:3])


@pytest.mark.parametrize('count', [1, 4, 8])
def test_slices_lie_on_devices_in_their_order(count: int, tmp_path: pathlib.Path):
  """So that a slice has the same rows and the same dropout wherever it is."""
  made = corpora.train_batches(
    tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path)
  )
  devices = parallel.Devices(8, jax.devices()[:count])
  for step in range(20):
    batch = made.batch(step, devices.host_slices)
    rows = batch.pairs.astype(np.int32)
    parts = {x.device: x.data for x in devices.split((rows,))[0].addressable_shards}
    assert {len(part[0]) for part in parts.values()} == {8 // count}
    found = [parts[device][0] for device in jax.devices()[:count]]
    np.testing.assert_array_equal(np.concatenate(found), made.batch(step).pairs)


@pytest.mark.parametrize('count', [4, pytest.param(8, marks=pytest.mark.slow)])
def test_what_the_devices_tell_each_other(count: int):
  """One sum of all gradients a step, after the slices of each have been added up.

  Each device gets its share of the matrices' sums, and then all matrices.
  """
  steps = steps_on(count)
  steps(steps.initial(), *example())
  (program,) = steps.programs.values()
  hlo = Hlo(program.as_text())
  inside = [line for body in hlo.loops() for line in hlo.collectives(body)]
  assert hlo.loops() and not inside
  told = {kind: sum(sizes) for kind, sizes in hlo.told().items()}
  assert set(told) == {'all-reduce', 'reduce-scatter', 'all-gather'}
  leaves = jax.tree.leaves(steps.params)
  shared = sum(x.nbytes for x in leaves if x.ndim > 1 and len(x) % count == 0)
  whole = sum(x.nbytes for x in leaves) - shared
  assert 0 < whole < shared
  assert told['reduce-scatter'] * count == told['all-gather'] == shared
  assert whole <= told['all-reduce'] < whole + 1024


def test_each_device_stores_its_share_of_adams_averages():
  steps = steps_on(8)
  state, _ = steps(steps.initial(), *example())
  for average in (state.opt_state[0].mu, state.opt_state[0].nu):
    pairs = zip(*map(jax.tree.leaves, (average, steps.params)), strict=True)
    stored = {
      (part.data.size / whole.size, whole.ndim > 1 and len(whole) % 8 == 0)
      for x, whole in pairs
      for part in x.addressable_shards
    }
    assert stored == {(1 / 8, True), (1.0, False)}


def test_a_sum_in_a_loop_would_be_found():
  def step(x: jax.Array) -> jax.Array:
    more = lambda total, _: (jax.lax.psum(total * 0.5, 'd'), None)
    return jax.lax.scan(more, x, None, 9)[0]

  mapped = jax.pmap(step, axis_name='d').lower(np.ones((8, 5), np.float32))
  hlo = Hlo(mapped.compile().as_text())
  (inside,) = (line for body in hlo.loops() for line in hlo.collectives(body))
  assert size(inside) == 20


def test_the_state_is_updated_in_place():
  """The state is donated: each of its arrays is one of the new state's."""
  steps = steps_on(8)
  state = steps.initial()
  steps(state, *example())
  (program,) = steps.programs.values()
  leaves = jax.tree.leaves(state)
  assert all(array.is_deleted() for array in leaves)
  aliases = re.search(r'input_output_alias=\{(.*?)\}, entry', program.as_text())[1]
  given = {int(n) for n in re.findall(r'\((\d+), ', aliases)}
  assert given == {*range(len(leaves))}


def each_device_its_own(share: StepInput) -> StepInput:
  """What Devices.split() gives, left on the host."""
  return jax.tree.map(lambda x: x.reshape(8, 1, *x.shape[1:]), share)


def test_nothing_moves_unasked(tmp_path: pathlib.Path, monkeypatch):
  """Batches enter by device_put, as the step wants them; sums leave by device_get.

  A CPU shows the first half alone: what leaves is in the host's memory already, and no
  guard refuses to read it. That sums leave once, one step late, is test_loop.py's.
  """
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  ours = Trainer(tiny_config(tokens_per_batch=64, max_shapes=1), corpus(tmp_path))
  state = ours.initial()
  ours.compile(state, ours.batches.shapes)
  with jax.transfer_guard('disallow'):
    for step in range(3):
      state, sums = ours.step(state, ours.batches.batch(step))
      assert np.isfinite(jax.device_get(sums).loss)
    with monkeypatch.context() as wrong:
      wrong.setattr(ours.devices, 'split', each_device_its_own)
      with pytest.raises(jax.errors.JaxRuntimeError, match='Disallowed host-to-device'):
        ours.step(state, ours.batches.batch(3))
  source = ours.devices.split((ours.batches.batch(0).source,))[0]
  program = ours.lower(state, ours.batches.shapes[0], 1).compile()
  assert source.sharding == program.input_shardings[0][1][0]


class Needs:
  """Stands for a lowered program and what XLA tells of it."""

  argument_size_in_bytes, output_size_in_bytes, alias_size_in_bytes = 30, 40, 25

  def __init__(self, temporary: int = 0, error: Exception | None = None):
    self.temp_size_in_bytes, self._error = temporary, error

  def compile(self) -> 'Needs':
    if self._error is not None:
      raise self._error
    return self

  def memory_analysis(self) -> 'Needs':
    return self


def test_a_program_that_needs_too_much_memory_is_not_taken(
  monkeypatch: pytest.MonkeyPatch,
):
  fits = lambda *given: parallel.compile_if_it_fits(Needs(*given)) is not None
  assert fits(10**15)  # a CPU does not tell
  device = types.SimpleNamespace(memory_stats=lambda: {'bytes_limit': 200})
  monkeypatch.setattr(jax, 'local_devices', lambda: [device])
  assert fits(135) and not fits(136)  # 30 + 40 - 25 + 135 is nine tenths
  error = jax.errors.JaxRuntimeError
  assert not fits(0, error('RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm'))
  with pytest.raises(error, match='INTERNAL'):
    fits(0, error('INTERNAL: no kernel'))


def test_devices_of_a_cpu_read_the_same_memory():
  """Whatever the arrays come from: the host, one device, or all of them."""
  x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
  for given in (x, jax.numpy.array(x), parallel.replicate(x)):
    found = parallel.replicate_read_only({'x': given})['x']
    parts = [part.data for part in found.addressable_shards]
    assert [part.device for part in parts] == jax.local_devices()
    assert len({part.unsafe_buffer_pointer() for part in parts}) == 1
    for part in parts:
      np.testing.assert_array_equal(part, x)
