"""Runs that are killed end like a run that is not, on any devices and hosts.

The phase of a signal is certain: a function of it waits (`hold`) when the signal comes.
"""

import os
import pathlib
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
from toy.runs import Toy, assert_equal_runs, finished, records, restored
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get('TRANSFORMER_JAX_KILLS', '12'))
STEP = 'transformer_jax.training.trainer:Trainer.step'
COMPILE = 'jax.stages:Lowered.compile'
WRITE = 'transformer_jax.training.checkpoint:checksums'  # while a checkpoint is written


def test_while_compiling(tmp_path: pathlib.Path):
  """Within XLA, however long it takes; the message names the newest checkpoint."""
  new, cold = Toy(tmp_path), str(tmp_path / 'cold')
  program = new.train(hold={COMPILE: 99}, XDG_CACHE_HOME=cold)  # it only tells of calls
  program.wait_for(lambda: program.calls(COMPILE))
  time.sleep(0.2)
  program.signal(signal.SIGTERM)
  assert program.code() == EXIT_CODE and 'end Lowered.compile' not in program.output
  assert program.output.endswith('command again. The newest checkpoint: none\n')
  assert not checkpoint.finished_steps(new.checkpoints)


def test_kills_while_training(tmp_path: pathlib.Path):
  """By SIGKILL or SIGTERM: at any time, in a step, while a checkpoint is written."""
  steps = 15 * KILLS + 40
  straight = Toy(tmp_path, train_steps=steps)
  finished(straight.train())
  killed = straight.in_another('killed')
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
    whole = checkpoint.finished_steps(killed.checkpoints)
    for step in whole:
      checkpoint.verify(killed.checkpoints, step)
    assert newest <= max(whole, default=0)
    newest = max(whole, default=0)
  finished(killed.train())
  assert_equal_runs(killed, straight)
  left = {path.name for path in killed.checkpoints.iterdir()}
  assert left == {str(step) for step in (steps - 10, steps - 5, steps)}


def test_a_tuned_run_is_resumed_by_its_folder_alone(tmp_path: pathlib.Path):
  """With dev BLEU, which chooses the best; the raw text is gone by then."""
  first = Toy(tmp_path)
  finished(first.train())
  tuned = first.in_another('tuned')
  bleu = '--config.best_by=bleu', '--config.bleu_sentences=5'
  program = tuned.train(f'--init_from={first.workdir}:25', *bleu, hold={STEP: 8})
  program.wait_for(lambda: program.calls(STEP) >= 8)
  program.signal(signal.SIGTERM)
  program.release()
  assert program.code() == EXIT_CODE, program.output
  shutil.rmtree(tmp_path / 'raw')
  folders = f'--workdir={tuned.workdir}', f'--data_dir={tmp_path / "data"}'
  finished(Program(tmp_path, 'train', *folders))
  run = Run(tuned.workdir)
  assert run.config().init_from.step == 25
  steps = [r['step'] for r in run.records() if 'dev_bleu' in r]
  assert steps == [5, 10, 15, 20, 25, 30]
  assert run.best_step() in checkpoint.finished_steps(run.checkpoints)


def two_hosts(toy: Toy, elsewhere: Toy, **how: Any) -> list[Program]:
  """Starts the command twice, with four devices each and a folder of its own each."""
  address = f'--coordinator_address=localhost:{free_port()}'
  return [
    one.train(address, '--process_count=2', f'--process_id={number}', devices=4, **how)
    for number, one in enumerate((toy, elsewhere))
  ]


def largest(a: PyTree, b: PyTree) -> float:
  return max(jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), a, b)))


def test_hosts_stop_together_and_one_goes_on(tmp_path: pathlib.Path):
  """A signal comes to one in a step: they make that step, the next, which carries the
  request, and the one that has started by then. One device goes on from there.

  It ends as eight do: losses differ by 1e-6, parameters by 1e-4 of their last movement.
  """
  eight = Toy(tmp_path, slices=8, train_steps=60)
  finished(eight.train(devices=8))
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
  program = finished(shared.train(devices=1))
  assert 'so far were made on CPU' in program.output
  runs = shared, eight
  losses = [np.array([r['loss'] for r in records(toy)][-5:]) for toy in runs]
  np.testing.assert_allclose(*losses, rtol=1e-6)
  tokens = [sum(r['target_tokens'] for r in records(toy)) for toy in runs]
  assert tokens[0] == tokens[1]
  ours, theirs = (restored(toy, 60).params for toy in runs)
  moved = largest(theirs, restored(eight, 50).params)
  assert moved > 0.01 and largest(ours, theirs) < 1e-4 * moved


def test_an_error_of_the_first_host_ends_both(tmp_path: pathlib.Path):
  """JAX alone would make them wait five minutes for each other."""
  finished(Toy(tmp_path, slices=8).train(devices=8))
  other = Toy(tmp_path, slices=8, seed=9)
  first, second = two_hosts(other, other.in_another('elsewhere'))
  assert first.code(200) == 1 and second.code(200) not in (0, EXIT_CODE)
  assert "another config's run; these differ: seed." in first.output
