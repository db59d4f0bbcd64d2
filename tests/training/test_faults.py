"""Runs that are killed end like a run that is not, on any devices and hosts.

The phase of a signal is certain: a function of it waits (`hold`) when the signal comes.
"""

import os
import random
import shutil
import signal
import time
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import PyTree

from toy.programs import Program, free_port
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
COMPILE = 'jax.stages:Lowered.compile'
LEARN = 'transformer_jax.prepare.prepare:learn'
BOOTSTRAP = 'transformer_jax.scoring.bleu:TextMetric.score'
WRITE = 'transformer_jax.training.checkpoint:checksums'  # while a checkpoint is written


@pytest.fixture(scope='module')
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
  return undisturbed(tmp_path_factory.mktemp('toy'))


def interrupted(program: Program, function: str) -> str:
  """Signals it in a call of `function`; returns what it printed until its exit."""
  program.wait_for(lambda: program.calls(function))
  program.signal(signal.SIGTERM)
  assert program.code() == EXIT_CODE, program.output
  return program.output


def ended(output: str, function: str) -> int:
  return output.count(f'end {function.split(":")[1]}\n')


def test_while_preparing(toy: Toy):
  """The unfinished folder is not a corpus; the same command runs to the end."""
  new = Toy(toy.folder, data_dir='new').in_another('preparing')
  output = interrupted(new.train(hold={LEARN: 1}), LEARN)
  assert not ended(output, LEARN)
  assert output.endswith('stopped by a signal.\n')
  assert not (toy.folder / 'new' / 'toy').exists()
  finished(new.train())
  assert_equal_runs(new, toy)


def test_while_compiling(toy: Toy):
  """Within XLA, however long it takes; the message names the newest checkpoint."""
  new = toy.in_another('compiling')
  cold = str(toy.folder / 'cold')
  program = new.train(hold={COMPILE: 99}, XDG_CACHE_HOME=cold)  # it only tells of calls
  program.wait_for(lambda: program.calls(COMPILE))
  time.sleep(0.2)
  output = interrupted(program, COMPILE)
  assert not ended(output, COMPILE)
  assert output.endswith('same command again. The newest checkpoint: none\n')
  assert not checkpoint.finished_steps(new.checkpoints)


def test_while_evaluating(toy: Toy):
  result = toy.workdir / 'result.json'
  before = result.read_bytes()
  output = interrupted(toy.evaluate(hold={BOOTSTRAP: 1}), BOOTSTRAP)
  assert not ended(output, BOOTSTRAP)
  assert output.endswith('stopped by a signal. No result was written.\n')
  assert result.read_bytes() == before


def test_kills_while_training(toy: Toy):
  """By SIGKILL or SIGTERM: at any time, in a step, while a checkpoint is written."""
  steps = 15 * KILLS + 40
  straight = Toy(toy.folder, train_steps=steps).in_another('straight')
  finished(straight.train())
  killed = Toy(toy.folder, train_steps=steps).in_another('killed')
  rng, newest = random.Random(KILLS), 0
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
    newest = assert_all_whole(killed, newest)
  finished(killed.train())
  assert_equal_runs(killed, straight)
  left = {path.name for path in killed.checkpoints.iterdir()}
  assert left == {str(step) for step in (steps - 10, steps - 5, steps)}


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


def largest(a: PyTree, b: PyTree) -> float:
  return max(jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), a, b)))


def assert_similar_runs(one: Toy, other: Toy, start: int) -> None:
  """Losses differ by 1e-6, parameters by 1e-4 of their movement since `start`."""
  losses = [np.array([r['loss'] for r in records(toy)][-5:]) for toy in (one, other)]
  np.testing.assert_allclose(*losses, rtol=1e-6)
  total = [sum(r['target_tokens'] for r in records(toy)) for toy in (one, other)]
  assert total[0] == total[1]
  last = Run(other.workdir).config().train_steps
  ours, theirs = (restored(toy, last) for toy in (one, other))
  moved = largest(theirs.params, restored(other, start).params)
  assert moved > 0.01
  assert largest(ours.params, theirs.params) < 1e-4 * moved
