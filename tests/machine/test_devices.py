"""Slices of a batch on devices, and the memory that devices use."""

import pathlib
import types
import unittest.mock
from collections.abc import Callable
from contextlib import nullcontext

import jax
import numpy as np
import pytest

from toy.steps import (
  ShardMapDevices,
  corpus,
  course,
  example,
  steps_on,
  tiny_config,
)
from transformer_jax.data.batches import train_batches
from transformer_jax.machine.devices import (
  Devices,
  compile_if_it_fits,
  decode_tokens,
  map_sentences,
)
from transformer_jax.machine.errors import UserError

several = pytest.mark.devices


def fake(count: int, platform: str = 'gpu', here: int = 0) -> list:
  """Returns devices of two hosts, of which this one has the last `here`, or all."""
  hosts = [0 if not here or n >= count - here else 1 for n in range(count)]
  return [types.SimpleNamespace(process_index=n, platform=platform) for n in hosts]


def test_devices_share_the_slices():
  """On a CPU, one at a time; of several hosts, each those of its devices."""
  for count, platform, each, sizes in (
    (8, 'gpu', 1, [1]),
    (2, 'gpu', 6, [6, 3, 2, 1]),
    (4, 'cpu', 3, [1]),
  ):
    slices = count * each
    devices = Devices(slices, fake(count, platform))
    assert (devices.count, devices.platform) == (count, platform)
    assert (devices.slices_per_device, devices.pass_sizes) == (each, sizes)
    assert devices.host_slices == slice(0, slices)
  assert Devices(12, fake(6, here=2)).host_slices == slice(0, 4), (
    'the first host is first'
  )
  with pytest.raises(
    UserError, match='^3 devices cannot share 8 .*: 1, 2, 4, 8[.] Hide'
  ):
    Devices(8, fake(3))


@pytest.mark.parametrize(
  'count', [1, *(pytest.param(n, marks=several) for n in (4, 8))]
)
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


def test_each_accelerator_searches_as_much_as_its_memory_takes():
  for gigabytes, count, expected in (60, 8, 64), (60, 1, 8), (16, 1, 4), (2, 3, 3):
    assert decode_tokens(0, gigabytes * 2**30, count) == expected * 4096
  assert decode_tokens(0) == 4096  # in all, on a CPU's devices
  assert decode_tokens(100, 60 * 2**30, 8) == 100


ON_EIGHT = pytest.param(90, 1, marks=several)


@pytest.mark.parametrize(
  ('count', 'positions'), [(0, 64), (1, 64), (90, 64), (90, 1), ON_EIGHT]
)
def test_each_sentence_is_in_one_batch(count: int, positions: int):
  """Results name their sentences; two batches at most are in the devices' memory."""
  rng, running, most, shapes = np.random.default_rng(count), 0, 0, []
  draw = lambda: rng.integers(1, 9, rng.integers(0, 21)).tolist()  # 20 is the longest
  texts = [[draw() for _ in range(count)] for _ in range(2)]

  def start(params: None, *padded: np.ndarray) -> Callable[[], list[np.ndarray]]:
    nonlocal running, most
    running += 1
    most = max(most, running)
    (shape,) = {block.shape for block in padded}
    assert shape[0] % jax.local_device_count() == 0 and shape[1] in (16, 20)
    shapes.append(shape)

    def wait() -> list[np.ndarray]:
      nonlocal running
      running -= 1
      return [*padded]

    return wait

  found, lengths = {}, []
  for numbers, blocks in map_sentences(
    start, None, texts, positions=positions, longest=20
  ):
    for row, number in enumerate(numbers):
      assert number not in found
      lengths.append(max(len(text[number]) for text in texts))
      found[number] = [block[row][block[row] > 0].tolist() for block in blocks]
    assert not any(block[len(numbers) :].any() for block in blocks)
  pairs = dict(enumerate(map(list, zip(*texts, strict=True))))
  assert found == {number: pair for number, pair in pairs.items() if any(pair)}
  assert most == min(count, 2) and not running
  assert lengths == sorted(lengths, reverse=True)
  if (count, positions, jax.local_device_count()) == (90, 64, 1):
    # 64 positions; of a length that is new, no more rows than there are sentences.
    full = [(3, 20)] * sum(length > 16 for length in lengths)
    assert shapes[: len(full) // 3] == full[: len(full) // 3] and (4, 16) in shapes


@several
@pytest.mark.slow
def test_the_state_is_updated_in_place():
  steps = steps_on(8)
  state, _ = steps(steps.initialize(), *example())  # the first may be the host's memory
  steps(state, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(state))


@several
@pytest.mark.slow
def test_shard_map_can_replace_pmap():
  twin = steps_on(8, kind=ShardMapDevices)
  jax.tree.map(np.testing.assert_array_equal, course(steps_on(8)), course(twin))
  state, _ = twin(twin.initialize(), *example())
  twin(state, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(state))


def test_a_program_that_needs_too_much_memory_is_not_taken(monkeypatch):
  lowered = jax.jit(lambda x: x + 1).lower(np.zeros(25, np.float32))  # in and out: 200
  limits = {'bytes_limit': 224}
  device = types.SimpleNamespace(memory_stats=lambda: limits)
  assert compile_if_it_fits(lowered)  # a CPU does not tell
  monkeypatch.setattr(jax, 'local_devices', lambda: [device])
  assert compile_if_it_fits(lowered)
  limits['bytes_limit'] = 221  # of which nine tenths are taken
  assert not compile_if_it_fits(lowered)
  limits['bytes_limit'] = 223
  assert compile_if_it_fits(lowered)
  shared = 'RESOURCE_EXHAUSTED: Shared memory'
  for message, refused in (
    ('RESOURCE_EXHAUSTED: Ran out of memory', 0),
    ('INTERNAL', 1),
    (shared, 1),
  ):
    fail = unittest.mock.Mock(side_effect=jax.errors.JaxRuntimeError(message))
    with pytest.raises(jax.errors.JaxRuntimeError) if refused else nullcontext():
      assert compile_if_it_fits(unittest.mock.Mock(compile=fail)) is None
