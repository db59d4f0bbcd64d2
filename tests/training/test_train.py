"""Equation 3, Adam in numpy, and a step that does not depend on the devices' number."""

import functools
import pathlib
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import base
from toy.steps import (
  LENGTH,
  POISON,
  ROWS,
  SLICES,
  Steps,
  Tree,
  assert_same_course,
  corpus,
  course,
  course_on_one,
  example,
  model,
  steps_on,
  tiny_config,
)
from transformer_jax.data import batches, token_files
from transformer_jax.data import corpus as corpora
from transformer_jax.data.vocabulary import PAD
from transformer_jax.machine import parallel
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build
from transformer_jax.runs import run
from transformer_jax.training import checkpoint, loop, loss, optimizer, train, trainer
from transformer_jax.training.log import Log

# 5.3 Optimiser


@pytest.mark.parametrize(
  'step, expected', [(1, 1.746928e-7), (4000, 6.987712e-4), (100_000, 1.397542e-4)]
)
def test_equation_3(step: int, expected: float):
  schedule = optimizer.learning_rate(512, 4000, 1.0)
  np.testing.assert_allclose(schedule(step - 1), expected, rtol=1e-6)
  written = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
  np.testing.assert_allclose(schedule(jnp.int32(step - 1)), written, rtol=1e-6)
  np.testing.assert_allclose(
    optimizer.learning_rate(512, 4000, 2.5)(step - 1), 2.5 * written, rtol=1e-6
  )


def test_equation_3_peaks_at_the_end_of_warm_up():
  rates = optimizer.learning_rate(512, 4000, 1.0)(jnp.arange(10_000))
  assert int(rates.argmax()) == 3999
  assert (jnp.diff(rates[:4000]) > 0).all() and (jnp.diff(rates[3999:]) < 0).all()


def test_adam_is_the_papers():
  """Five updates with beta 0.9 and 0.98, epsilon 1e-9 and the rate of Equation 3."""
  config = base.get_config()
  transform = trainer.adam(config)
  rng = np.random.default_rng(0)
  gradients = rng.normal(size=(5, 7)) * np.logspace(-9, 1, 7)
  x = params = np.zeros(7)
  m, v, state = np.zeros(7), np.zeros(7), transform.init(jnp.zeros(7))
  update = jax.jit(transform.update)
  for step, g in enumerate(gradients, 1):
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    rate = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    x = x - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)
    change, state = update(jnp.asarray(g, jnp.float32), state)
    params = params + np.asarray(change, np.float64)
  np.testing.assert_allclose(params, x, rtol=2e-5)


# The step


def test_sums_are_over_the_tokens_of_all_slices():
  """They equal those of all sentences at once: no mean of slices' means."""
  source, target = example()
  steps = steps_on(1, P_drop=0.0, rate=1e-2)
  _, sums = steps(steps.initial(), source, target)
  graph, params = model(0.0)
  flat = lambda side: side.reshape(-1, LENGTH)

  def objective(p: Tree) -> tuple[jax.Array, jax.Array]:
    logits = nnx.merge(graph, p)(flat(source), flat(target))
    return loss.cross_entropy(logits, flat(target), 0.1)

  (smoothed, plain), gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))(
    params
  )
  tokens = (target != PAD).sum()
  assert len({*(target != PAD).sum((1, 2))}) > 3
  assert sums.tokens == tokens
  np.testing.assert_allclose(sums.loss, smoothed, rtol=1e-6)
  np.testing.assert_allclose(sums.negative_log_likelihood, plain, rtol=1e-6)
  squares = sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))
  np.testing.assert_allclose(sums.gradient_norm, squares**0.5 / tokens, rtol=1e-5)


@pytest.mark.parametrize('count', [pytest.param(4, marks=pytest.mark.slow), 8])
def test_any_number_of_devices_is_one_device(count: int):
  assert_same_course(course_on_one(), course(steps_on(count)))


def mean_of_means(psum: Callable) -> Callable:
  """psum() that weighs all devices alike, however many tokens each of them has."""

  def mutant(sums: Tree, axis: str) -> Tree:
    (gradient, *losses, tokens), wishes = sums
    total, devices = psum((tokens, jnp.float32(1)), axis)
    weight = total / devices / jnp.maximum(tokens, 1)
    weighted = jax.tree.map(lambda x: x * weight, (gradient, *losses))
    return psum(((*weighted, tokens), wishes), axis)

  return mutant


def one_replaced(seed: int) -> tuple[np.ndarray, np.ndarray]:
  source, target = example(seed)
  source[3], target[3] = source[2], target[2]
  return source, target


@pytest.mark.parametrize(
  'mutant', ['mean of means', 'slice replaced', 'batch repeated']
)
def test_that_test_would_notice(mutant: str, monkeypatch: pytest.MonkeyPatch):
  if mutant == 'mean of means':
    monkeypatch.setattr(jax.lax, 'psum', mean_of_means(jax.lax.psum))
    wrong = course(Steps(4))
  elif mutant == 'slice replaced':
    wrong = course(steps_on(4), one_replaced)
  else:
    wrong = course(steps_on(4), lambda number: example(min(number, 18)))
  with pytest.raises(AssertionError):
    assert_same_course(course_on_one(), wrong)


# Gradients that are no numbers


def poisonous(cross_entropy: Callable) -> Callable:
  """A loss that is not a number where the target holds POISON."""

  def loss_of(logits: jax.Array, target: jax.Array, epsilon_ls: float) -> tuple:
    smoothed, plain = cross_entropy(logits, target, epsilon_ls)
    return smoothed * jnp.where((target == POISON).any(), jnp.nan, 1.0), plain

  return loss_of


@pytest.mark.parametrize('count', [1, 8])
def test_an_update_without_a_finite_gradient_is_skipped(
  count: int, monkeypatch: pytest.MonkeyPatch
):
  """In one slice of one device it is enough; what follows is as if it had not been."""
  monkeypatch.setattr(loss, 'cross_entropy', poisonous(loss.cross_entropy))
  steps = Steps(count)
  clean = [[np.where(side == POISON, 3, side) for side in example(n)] for n in (0, 1)]
  state, sums = steps(steps.initial(), *clean[0])
  assert sums.skipped == 0 and np.isfinite(sums.loss)
  before = jax.device_get(state)
  source, target = clean[1][0], clean[1][1].copy()
  target[5, 0, 0] = POISON
  state, sums = steps(state, source, target)
  assert sums.skipped == 1 and not np.isfinite(sums.gradient_norm)
  after = jax.device_get(state)
  assert after.step == before.step + 1 == 2
  jax.tree.map(np.testing.assert_array_equal, after[1:], before[1:])
  state, sums = steps(state, *clean[1])
  assert sums.skipped == 0
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params, before.params)
  assert max(jax.tree.leaves(moved)) > 1e-4


def test_each_slice_and_each_step_has_its_own_dropout():
  """The same two sentences: what differs is the slice they are in, or the step."""
  steps = steps_on(1)

  def loss_at(place: int, step: int) -> float:
    sides = np.zeros((2, SLICES, ROWS, LENGTH), np.int32)
    sides[:, place] = [side[0] for side in example()]
    return float(steps(steps.initial(step), *sides)[1].loss)

  first = loss_at(0, 0)
  assert loss_at(0, 0) == first
  for place, step in ((1, 0), (7, 0), (0, 1), (1, 1)):
    assert abs(loss_at(place, step) / first - 1) > 1e-4


def test_the_state_is_donated():
  steps = steps_on(1)
  given = steps.initial()
  steps(given, *example())
  assert all(array.is_deleted() for array in jax.tree.leaves(given))


def copied_matrices(text: str) -> list[str]:
  """A compiled step's copies of matrices that it was given."""
  entry = text[text.index('\nENTRY') :].splitlines()
  return [line for line in entry if re.search(r'f32\[\d+,.* copy\(%param', line)]


def test_the_new_state_takes_the_place_of_the_old(monkeypatch: pytest.MonkeyPatch):
  """Else XLA on a CPU copies both of Adam's averages in every update."""
  text = lambda steps: next(iter(steps.programs.values())).as_text()
  plain, naive = Steps(2), Steps(2)
  plain(plain.initial(), *example())
  assert not copied_matrices(text(plain))
  unordered = lambda average, param: average
  monkeypatch.setattr('transformer_jax.training.step._after', unordered)
  naive(naive.initial(), *example())
  assert copied_matrices(text(naive))


def test_loss_falls_on_a_copy_task():
  """A word six times over: below what one who only sees the target would come to."""
  steps = steps_on(1, P_drop=0.0, rate=1e-2)
  state = steps.initial()
  rng = np.random.default_rng(0)
  losses = []
  for _ in range(60):
    words = rng.integers(3, 11, (SLICES, 4, 1)).astype(np.int32)
    side = words.repeat(LENGTH, axis=2)
    state, sums = steps(state, side, side)
    losses.append(sums.negative_log_likelihood / sums.tokens)
  assert losses[-1] < np.log(8) / LENGTH < losses[0]


def test_a_device_count_that_does_not_divide_the_slices_is_refused():
  with pytest.raises(ValueError, match='1, 2, 4, 8'):
    parallel.Devices(8, jax.devices()[:3])


# The trainer


def test_a_program_for_each_shape_and_none_later(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  config = tiny_config(tokens_per_batch=64, max_shapes=2)
  ours = trainer.Trainer(config, corpus(tmp_path))
  state = ours.restore(tmp_path / 'checkpoints')
  ours.compile(state, list)
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


@pytest.mark.slow
@pytest.mark.parametrize('count', [1, 8])
def test_one_bad_batch_is_skipped_and_persistent_ones_end_the_run(
  count: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """Update 3 is bad and all from 7 on; each second state is saved."""
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  monkeypatch.setattr(loss, 'cross_entropy', poisonous(loss.cross_entropy))
  first = functools.partial(parallel.Devices, devices=jax.devices()[:count])
  monkeypatch.setattr(parallel, 'Devices', first)
  config = tiny_config(
    tokens_per_batch=64,
    max_shapes=1,
    train_steps=20,
    checkpoint_every_steps=1,
    keep_checkpoints=20,
    log_every_steps=1,
  )
  order = trainer.Trainer(config, corpus(tmp_path, pairs=200)).batches
  assert order.steps_per_epoch > 16
  pairs = [set(order.batch(step).pairs.flat) - {-1} for step in range(17)]
  bad = {min(pairs[2])}.union(*(pairs[6:]))
  ours = trainer.Trainer(config, corpus(tmp_path, pairs=200, poisoned=bad))
  assert ours.devices.count == count
  directory = run.Run(tmp_path)
  state = ours.initial()
  ours.compile(state, list)
  writer = checkpoint.Writer(directory.checkpoints, 1, 20, lambda _: None)
  with Log(directory, 0, 20) as log, writer:
    cadence = loop.Cadence(20, checkpoint_every=1, log_every=1)
    one = loop.Loop(ours, cadence, [], log, writer, Interruption())
    with pytest.raises(loop.Diverged) as stopped:
      one.run(state, 0, lambda _: 2.0, unmeasured=False)
  assert str(stopped.value) == (
    'no finite gradient in 10 steps on end, up to step 16. The newest checkpoint: '
    f'{directory.checkpoints / "15"}'
  )
  restore = lambda step: checkpoint.restore(directory.checkpoints, step, *ours._shapes)
  same = lambda one, other: jax.tree.all(
    jax.tree.map(np.array_equal, restore(one)[1:], restore(other)[1:])
  )
  assert same(2, 3) and same(6, 7) and same(6, 15)
  assert not any(same(step, step + 1) for step in (1, 3, 4, 5))
  skipped = [r for r in directory.records() if 'skipped_pairs' in r]
  assert [r['step'] for r in skipped] == [3, *range(7, 17)]
  assert {*skipped[0]['skipped_pairs']} == pairs[2]


def test_seeds_share_a_program_and_no_dropout(tmp_path: pathlib.Path):
  folder, losses, programs, run = corpus(tmp_path, pairs=200), [], [], None
  for seed in 1, 2, 1:
    ours = trainer.Trainer(tiny_config(seed=seed, max_shapes=1), folder)
    fresh = trainer.Trainer(tiny_config(max_shapes=1), folder)
    state, batch = fresh.initial(), fresh.batch(0)
    share = ours._inputs(batch.source, batch.target, False, False)
    lowered = ours._parallel.lower(state, share)
    programs.append(lowered.as_text())
    run = run or lowered.compile()
    losses.append(float(run(state, share)[1].loss))
  assert programs[0] == programs[1] == programs[2]
  assert losses[0] == losses[2] != losses[1]


@pytest.mark.parametrize(
  'slices, expected',
  [
    (8, 'a batch is 25,000 source and 20,000 target tokens on average, 100 % of'),
    (256, 'a batch is 30,000 source and 24,000 target tokens on average, 120 % of'),
  ],
)
def test_how_large_a_batch_comes_out_is_told(
  slices: int, expected: str, tmp_path: pathlib.Path
):
  """Not what was asked for: 256 slices have two whole rows of 60 tokens each."""
  for side, length in (('source', 59), ('target', 47)):
    token_files.write_tokens(tmp_path / f'train.{side}', np.full((20_000, length), 5))
  made = corpora.train_batches(tiny_config(slices=slices), tmp_path)
  assert train.mean_batch(made) == f"{expected} the paper's 25,000"
