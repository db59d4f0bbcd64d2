"""A config's compiled steps, and what a training of them tells."""

import pathlib
import threading
import types

import jax
import numpy as np
import pytest
from flax import nnx

from toy.runs import state_shapes
from toy.steps import (
  corpus,
  model,
  poisonous,
  tiny_config,
)
from transformer_jax.data import batches
from transformer_jax.machine import platform
from transformer_jax.machine.devices import Devices
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build
from transformer_jax.runs import run
from transformer_jax.training import checkpoint, loop, loss, trainer
from transformer_jax.training.metrics import Log
from transformer_jax.training.trainer import Trainer

SHAPES = [batches.Shape(rows, 8, 9) for rows in range(1, 9)]


def test_a_program_for_each_shape_and_none_later(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  config = tiny_config(tokens_per_batch=64, max_shapes=2)
  ours = Trainer(config, corpus(tmp_path))
  state = ours.restore(tmp_path / 'checkpoints')
  with ours.compile(state, ours.batches.shapes) as programs:
    programs.wait_for_all()
  assert len(ours.batches.shapes) == 2
  state, _ = ours.step(state, ours.batches.batch(0))
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


def test_the_configs_numbers_reach_an_update(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """Numbers that are no config's: what is computed is not by default."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.0))
  config = tiny_config(tokens_per_batch=64, max_shapes=1, epsilon_ls=0.3)
  config.update({'warmup_steps': 7, 'rate_factor': 0.5})
  config.model.P_drop = 0.0
  ours = Trainer(config, corpus(tmp_path))
  state = ours.initial()
  ours.compile(state, ours.batches.shapes)
  graph, params = model(0.0)
  batch = ours.batch(0)
  sides = [side.reshape(-1, side.shape[-1]) for side in batch[:2]]
  outputs = nnx.merge(graph, params)(*sides)
  smoothed, plain = loss.cross_entropy(outputs, sides[1], 0.3)
  _, sums = ours.step(state, batch)
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-5)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-5)
  assert float(ours.learning_rate(2)) == pytest.approx(0.5 * 16**-0.5 * 3 * 7**-1.5)
  assert float(ours.learning_rate(27)) == pytest.approx(0.5 * 16**-0.5 * 28**-0.5)


@pytest.mark.devices
def test_any_number_of_devices_goes_on_from_a_checkpoint(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """1 or 4 have the same numbers as the 8 that wrote it."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  config = tiny_config(tokens_per_batch=64, max_shapes=1)
  folder = corpus(tmp_path)
  ours = Trainer(config, folder)
  state = ours.initial()
  ours.compile(state, ours.batches.shapes)
  for step in range(2):
    state, _ = ours.step(state, ours.batch(step))
  saved = jax.device_get((state.params, state.opt_state))
  checkpoint.save(tmp_path / 'checkpoints', 2, *saved)
  shapes = lambda tree: jax.tree.map(lambda x: x.shape, tree)
  assert shapes(saved) == shapes(state_shapes(config))
  largest = [np.abs(x).max() for x in jax.tree.leaves(saved[1][0].nu)]
  assert min(largest) > 0
  for count in (1, 4):
    theirs = Trainer(config, folder, Devices(8, jax.devices()[:count]))
    again = jax.device_get(theirs.restore(tmp_path / 'checkpoints')[1:])
    jax.tree.map(np.testing.assert_array_equal, again, saved)


@pytest.mark.parametrize('memory, expected', [(8, 8), (5, 4), (0.5, 1)])
def test_as_many_slices_at_once_as_memory_allows(
  memory: float, expected: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """Where a slice needs one unit of memory; no other shape tries what did not fit."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  config = tiny_config(tokens_per_batch=64, max_shapes=2)
  one = Devices(8, jax.devices()[:1])
  one.slices_at_once = [8, 4, 2, 1]  # as on an accelerator
  ours, tried = Trainer(config, corpus(tmp_path), one), []
  assert ours.at_once == 8

  def lower(state: object, shape: batches.Shape, at_once: int) -> types.SimpleNamespace:
    tried.append(at_once)
    return types.SimpleNamespace(at_once=at_once, compile=lambda: at_once)

  monkeypatch.setattr(ours, 'lower', lower)
  fits = lambda lowered: lowered.compile() if lowered.at_once <= memory else None
  monkeypatch.setattr(trainer, 'compile_if_it_fits', fits)
  with ours.compile(ours.initial(), ours.batches.shapes) as programs:
    assert [programs[shape] for shape in ours.batches.shapes] == [expected] * 2
  assert ours.at_once == expected
  assert tried == [*(n for n in (8, 4, 2, 1) if n >= expected), expected]


@pytest.mark.slow
def test_seeds_share_a_program_and_no_dropout(tmp_path: pathlib.Path):
  folder, programs, losses = corpus(tmp_path, pairs=200), [], []
  same = Trainer(tiny_config(max_shapes=1), folder)
  for seed in 1, 2:
    ours, state = Trainer(tiny_config(seed=seed, max_shapes=1), folder), same.initial()
    programs.append(ours.lower(state, ours.batches.shapes[0], 1).as_text())
    ours.compile(state, ours.batches.shapes)
    losses.append(float(ours.step(state, same.batch(0))[1].loss))
  assert programs[0] == programs[1] and losses[0] != losses[1]


@pytest.mark.devices
@pytest.mark.slow
@pytest.mark.parametrize('count', [1, 8])
def test_one_bad_batch_is_skipped_and_persistent_ones_end_the_run(
  count: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """Update 3 is bad and all from 7 on; each second state is saved."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  monkeypatch.setattr(loss, 'cross_entropy', poisonous(loss.cross_entropy))
  first = Devices(8, jax.devices()[:count])
  config = tiny_config(
    tokens_per_batch=64,
    max_shapes=1,
    train_steps=20,
    checkpoint_every_steps=1,
    keep_checkpoints=20,
    log_every_steps=1,
  )
  order = Trainer(config, corpus(tmp_path, pairs=200)).batches
  assert order.steps_per_epoch > 16
  pairs = [set(order.batch(step).pairs.flat) - {-1} for step in range(17)]
  bad = {min(pairs[2])}.union(*(pairs[6:]))
  ours = Trainer(config, corpus(tmp_path, pairs=200, poisoned=bad), first)
  directory = run.Run(tmp_path)
  state = ours.initial()
  ours.compile(state, ours.batches.shapes)
  writer = checkpoint.Writer(directory.checkpoints, 1, 20)
  with Log(directory, 0, 20) as log, writer:
    one = loop.Loop(ours, config, [], log, writer, Interruption())
    with pytest.raises(loop.Diverged) as stopped:
      one.run(state, 0, loop.Dev(lambda _: 2.0), unmeasured=False)
  assert str(stopped.value) == (
    'no finite update in 10 steps on end, up to step 16. The newest checkpoint: '
    f'{directory.checkpoints / "15"}'
  )
  shapes = state_shapes(config)
  restore = lambda step: checkpoint.restore(directory.checkpoints, step, *shapes)
  same = lambda one, other: jax.tree.all(
    jax.tree.map(np.array_equal, restore(one)[1:], restore(other)[1:])
  )
  assert same(2, 3) and same(6, 7) and same(6, 15)
  assert not any(same(step, step + 1) for step in (1, 3, 4, 5))
  skipped = [r for r in directory.records() if 'skipped_pairs' in r]
  assert [r['step'] for r in skipped] == [3, *range(7, 17)]
  assert {*skipped[0]['skipped_pairs']} == pairs[2]


# Programs


class Compiler:
  """Compiles nothing; waits for `go`."""

  def __init__(self) -> None:
    self.compiled: list[batches.Shape] = []
    self.go = threading.Event()

  def __call__(self, shape: batches.Shape) -> batches.Shape:
    self.compiled.append(shape)
    assert self.go.wait(60)
    return shape


def test_programs_come_in_order_and_the_rest_is_dropped(monkeypatch):
  """Waiting can be given up; what runs is waited for, so that no process ends in it."""
  monkeypatch.setattr(platform, 'compiling_threads', lambda: 1)
  compiler, looks = Compiler(), iter([False, True])
  with trainer.Programs(compiler, SHAPES) as programs:
    programs.wait(SHAPES[-1], lambda: next(looks))
    compiler.go.set()
    assert [programs[shape] for shape in SHAPES] == SHAPES == compiler.compiled
    with pytest.raises(KeyError):
      programs[batches.Shape(9, 8, 9)]
  compiler = Compiler()
  with trainer.Programs(compiler, SHAPES):
    threading.Timer(0.1, compiler.go.set).start()
  assert compiler.go.is_set() and len(compiler.compiled) < len(SHAPES)
