"""Runs that are killed end like a run that is not, on any devices and hosts."""

import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest

from toy.programs import CACHE, Program, free_port
from toy.runs import (
  Toy,
  assert_all_whole,
  assert_equal_runs,
  finished,
  records,
  restored,
  undisturbed,
)
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get('TRANSFORMER_JAX_KILLS', '20'))
STEP = 'transformer_jax.training.trainer:Trainer.step'
WRITE = 'transformer_jax.training.checkpoint:checksums'  # while a checkpoint is written


@pytest.fixture(scope='module')
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
  return undisturbed(tmp_path_factory.mktemp('toy'))


def test_cut_at_any_step(toy: Toy):
  """Before, at and after the end of an epoch, and at a random step."""
  settings = Toy(
    toy.folder, train_steps=40, checkpoint_every_steps=1, keep_checkpoints=40
  )
  straight = settings.in_another('uncut')
  finished(straight.train())
  epoch = round(records(straight)[-1]['step'] / records(straight)[-1]['epoch'])
  assert 10 < epoch < 35
  for step in (epoch - 1, epoch, epoch + 1, random.Random(0).randrange(1, 40)):
    cut = settings.in_another(f'cut.{step}')
    shutil.copytree(straight.workdir, cut.workdir, dirs_exist_ok=True)
    for later in range(step + 1, 41):
      shutil.rmtree(cut.checkpoints / str(later))
    assert f'going on from step {step}: ' in finished(cut.train()).output
    assert_equal_runs(cut, straight)


def test_kills_while_training(toy: Toy):
  """By SIGKILL or SIGTERM: at any time, in a step, while a checkpoint is written."""
  steps = 15 * KILLS + 40
  straight = Toy(toy.folder, train_steps=steps).in_another('straight')
  finished(straight.train())
  killed = Toy(toy.folder, train_steps=steps).in_another('killed')
  rng, newest, phases = random.Random(KILLS), 0, collections.Counter()
  for n in range(KILLS):
    phase = ('step', 'writing', 'any')[n % 3]
    number = rng.choice((signal.SIGKILL, signal.SIGTERM))
    if phase == 'any':
      # Slowed down: else a fast machine would come to the end between two kills.
      program = killed.train(hold={STEP: 1}, seconds=0.02)
      if rng.random() < 0.7:
        program.wait_for(lambda: 'the first step begins' in program.output)  # noqa: B023
      time.sleep(rng.uniform(0, 0.3))
    else:
      held, call = (STEP, rng.randrange(1, 12)) if phase == 'step' else (WRITE, 1)
      program = killed.train(hold={held: call})
      program.wait_for(lambda: program.calls(held) >= call)  # noqa: B023
    ends = {-number} if number == signal.SIGKILL else {EXIT_CODE}
    if phase == 'any':  # it may not listen to signals yet
      ends.add(-number)
    program.signal(number)
    program.release()
    assert program.code() in ends, program.output
    phases[number.name, phase] += 1
    newest = assert_all_whole(killed, newest)
  print(f'{KILLS} trainers killed: {dict(phases)}')
  finished(killed.train())
  assert_equal_runs(killed, straight)
  left = {path.name for path in killed.checkpoints.iterdir()}
  assert left == {str(step) for step in (steps - 10, steps - 5, steps)}


def test_a_full_disk_is_told_last(toy: Toy):
  """Not among tracebacks of Orbax's threads. A limit on files' sizes stands for it."""
  full = toy.in_another('full')
  command = sys.executable, '-m', 'scripts.train', f'--workdir={full.workdir}'
  known = {'XDG_CACHE_HOME': str(CACHE), 'JAX_NUM_CPU_DEVICES': '1'}
  done = subprocess.run(
    ['bash', '-c', 'ulimit -f 16; exec "$@"', 'bash', *command, *full.preparing],
    cwd=pathlib.Path(__file__).parents[2],
    env=os.environ | known,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1 and '[thread=' not in done.stderr  # of Orbax's log
  assert done.stderr.splitlines()[-1].startswith(f'saving {full.checkpoints / "5"}: ')
  assert not checkpoint.finished_steps(full.checkpoints)


# Other devices, several hosts


@pytest.fixture(scope='module')
def eight(toy: Toy) -> Toy:
  """Returns an undisturbed run on eight devices."""
  eight = Toy(toy.folder, slices=8, train_steps=60).in_another('eight')
  finished(eight.train(devices=8))
  return eight


def test_one_device_goes_on_where_eight_stopped(eight: Toy):
  fewer = eight.in_another('eight.then.one')
  shutil.copytree(eight.workdir, fewer.workdir)
  for step in (55, 60):
    shutil.rmtree(fewer.checkpoints / str(step))
  program = finished(fewer.train(devices=1))
  assert 'so far were made on CPU' in program.output
  assert 'going on from step 50: ' in program.output
  assert_similar_runs(fewer, eight, start=50)


def two_hosts(toy: Toy, elsewhere: Toy, **how: Any) -> list[Program]:
  """Starts the command twice, with four devices each and a folder of its own each."""
  address = f'--coordinator_address=localhost:{free_port()}'
  return [
    one.train(address, '--process_count=2', f'--process_id={number}', devices=4, **how)
    for number, one in enumerate((toy, elsewhere))
  ]


def test_hosts_stop_together_and_one_goes_on(eight: Toy):
  """A signal comes to one in a step: they make that step, the next, which carries the
  request, and the one that has started by then. One machine goes on from there.
  """
  shared, elsewhere = map(eight.in_another, ('two', 'elsewhere'))
  first, second = two_hosts(shared, elsewhere, hold={STEP: 7})
  second.wait_for(lambda: second.calls(STEP) == 7)
  second.signal(signal.SIGTERM)
  for program in (first, second):
    program.release()
  for program in (first, second):
    assert program.code() == EXIT_CODE, program.output
  newest = checkpoint.finished_steps(shared.checkpoints)[-1]
  assert newest == second.calls(STEP) == 9
  assert first.output.endswith(f'checkpoint: {shared.checkpoints / str(newest)}\n')
  assert 'training on' in first.output and 'training on' not in second.output
  assert not elsewhere.workdir.exists()
  finished(shared.train(devices=8))
  assert_similar_runs(shared, eight, start=50)


def test_an_error_of_the_first_host_ends_both(toy: Toy):
  """JAX alone would make them wait five minutes for each other."""
  finished(Toy(toy.folder, slices=8).in_another('held').train(devices=8))
  other = Toy(toy.folder, slices=8, seed=9).in_another('held')
  first, second = two_hosts(other, other.in_another('held.elsewhere'))
  assert first.code(200) == 1 and second.code(200) not in (0, EXIT_CODE)
  assert "another config's run; these differ: seed." in first.output
  assert 'Traceback' not in first.output


def largest(tree: Any, less: Any = None) -> float:
  """Returns the largest magnitude in a tree, or in its difference from another."""
  if less is not None:
    tree = jax.tree.map(np.subtract, tree, less)
  return max(np.abs(x).max() for x in jax.tree.leaves(tree))


def assert_similar_runs(one: Toy, other: Toy, start: int) -> None:
  """Checks that only the order of sums differs.

  Losses by 1e-6, parameters by 1e-4 of their largest movement since `start`, each of
  Adam's averages by 1e-4 of its largest value.
  """
  losses = [np.array([r['loss'] for r in records(toy)][-5:]) for toy in (one, other)]
  np.testing.assert_allclose(*losses, rtol=1e-6)
  total = [sum(r['target_tokens'] for r in records(toy)) for toy in (one, other)]
  assert total[0] == total[1]
  last = Run(other.workdir).config().train_steps
  ours, theirs = (restored(toy, last) for toy in (one, other))
  moved = largest(theirs.params, restored(other, start).params)
  assert moved > 0.01
  assert largest(ours.params, theirs.params) < 1e-4 * moved
  ours, theirs = ours.opt_state[0], theirs.opt_state[0]
  assert ours.count == theirs.count == last
  for key in ('mu', 'nu'):
    a, b = getattr(ours, key), getattr(theirs, key)
    assert largest(a, b) < 1e-4 * largest(b)
