"""Slices of a batch on devices, and the memory that devices use."""

import types
import unittest.mock
from collections.abc import Callable
from contextlib import nullcontext

import jax
import numpy as np
import pytest

from toy.steps import ShardMapDevices, course, example, steps_on
from transformer_jax.machine.devices import (
  Devices,
  compile_if_it_fits,
  decode_tokens,
  map_sentences,
)
from transformer_jax.machine.errors import UserError


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
  assert Devices(12, fake(6, here=2)).host_slices == slice(0, 4)  # the first host
  with pytest.raises(UserError, match='^3 devices cannot share 8 .*: 1, 2, 4, 8[.]'):
    Devices(8, fake(3))


def test_each_accelerator_searches_as_much_as_its_memory_takes():
  for gigabytes, count, expected in (60, 8, 64), (60, 1, 8), (16, 1, 4), (2, 3, 3):
    assert decode_tokens(0, gigabytes * 2**30, count) == expected * 4096
  assert decode_tokens(0) == 4096  # in all, on a CPU's devices
  assert decode_tokens(100, 60 * 2**30, 8) == 100


def test_each_sentence_is_in_one_batch():
  """Results name their sentences; two batches at most are in the devices' memory."""
  rng, running, most, shapes = np.random.default_rng(0), [], [], []
  draw = lambda: rng.integers(1, 9, rng.integers(0, 21)).tolist()  # 20 is the longest
  texts = [[draw() for _ in range(90)] for _ in range(2)]

  def start(params: None, *padded: np.ndarray) -> Callable[[], list[np.ndarray]]:
    (shape,) = {block.shape for block in padded}
    shapes.append(shape)
    running.append(shape)
    most.append(len(running))
    return lambda: [*padded] if running.pop() else []

  translated = {}
  for numbers, blocks in map_sentences(start, None, texts, positions=64, longest=20):
    for row, number in enumerate(numbers):
      assert number not in translated
      translated[number] = [block[row][block[row] > 0].tolist() for block in blocks]
    assert not any(block[len(numbers) :].any() for block in blocks)
  pairs = dict(enumerate(map(list, zip(*texts, strict=True))))
  assert translated == {number: pair for number, pair in pairs.items() if any(pair)}
  assert max(most) == 2 and not running
  lengths = [max(map(len, pair)) for pair in translated.values()]
  assert lengths == sorted(lengths, reverse=True)
  # 64 positions; of a length that is new, no more rows than there are sentences.
  full = [(3, 20)] * (sum(length > 16 for length in lengths) // 3)
  assert shapes[: len(full)] == full and (4, 16) in shapes


@pytest.mark.devices
@pytest.mark.slow
def test_the_state_is_updated_in_place():
  steps = steps_on(8)
  state, _ = steps(steps.initialize(), *example())  # the first may be the host's memory
  steps(state, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(state))


@pytest.mark.devices
@pytest.mark.slow
def test_shard_map_can_replace_pmap():
  twin = steps_on(8, kind=ShardMapDevices)
  jax.tree.map(np.testing.assert_array_equal, course(steps_on(8)), course(twin))
  state, _ = twin(twin.initialize(), *example())
  twin(state, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(state))


def test_a_program_that_needs_too_much_memory_is_not_taken(monkeypatch):
  lowered = jax.jit(lambda x: x + 1).lower(np.zeros(25, np.float32))  # in and out: 200
  assert compile_if_it_fits(lowered)  # a CPU does not tell
  limits = {}
  device = types.SimpleNamespace(memory_stats=lambda: limits)
  monkeypatch.setattr(jax, 'local_devices', lambda: [device])
  for limit, is_taken in (223, True), (221, False):  # nine tenths of it
    limits['bytes_limit'] = limit
    assert bool(compile_if_it_fits(lowered)) == is_taken
  for message, refused in (
    ('RESOURCE_EXHAUSTED: Ran out of memory', 0),
    ('INTERNAL', 1),
    ('RESOURCE_EXHAUSTED: Shared memory', 1),
  ):
    fail = unittest.mock.Mock(side_effect=jax.errors.JaxRuntimeError(message))
    with pytest.raises(jax.errors.JaxRuntimeError) if refused else nullcontext():
      assert compile_if_it_fits(unittest.mock.Mock(compile=fail)) is None
