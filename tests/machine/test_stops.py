"""SIGTERM in each phase of our commands: what they save, and that they exit.

The phase is certain: a function of it waits (`hold`) when the signal comes, and goes on
only where the program has to finish it. Else the program must exit without it.
"""

import signal
import time

import pytest

from toy.programs import Program
from toy.runs import (
  Toy,
  assert_all_whole,
  assert_equal_runs,
  finished,
  undisturbed,
)
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.training import checkpoint

pytestmark = pytest.mark.slow

STEP = 'transformer_jax.training.trainer:Trainer.step'
WRITE = 'transformer_jax.training.checkpoint:checksums'  # while a checkpoint is written
MEASURE = 'transformer_jax.training.perplexity:Perplexity.__call__'
TRANSLATE = 'transformer_jax.decoding.translate:Translator.translate'
COMPILE = 'jax.stages:Lowered.compile'
LEARN = 'transformer_jax.data.vocabulary:learn'
BOOTSTRAP = 'transformer_jax.scoring.bleu:score'


@pytest.fixture(scope='module')
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
  return undisturbed(tmp_path_factory.mktemp('toy'))


def interrupted(
  program: Program,
  function: str,
  call: int = 1,
  number: signal.Signals = signal.SIGTERM,
  release: bool = False,
) -> str:
  """Signals it in a call of `function`; returns what it printed until its exit."""
  program.wait_for(lambda: program.calls(function) >= call)
  program.signal(number)
  if release:
    program.release()
  assert program.code() == EXIT_CODE, program.output
  return program.output


def ended(output: str, function: str) -> int:
  return output.count(f'end {function.split(":")[1]}\n')


def test_while_preparing(toy: Toy):
  """The unfinished folder is no corpus; the same command runs to the end."""
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
  assert output.endswith('The same command goes on. The newest checkpoint: none\n')
  assert not checkpoint.finished_steps(new.checkpoints)


def test_while_saving(toy: Toy):
  """It finishes the checkpoint that it writes, and then saves the current step."""
  cut = toy.in_another('saving')
  program = cut.train(hold={WRITE: 1, STEP: 6})
  program.wait_for(lambda: program.calls(WRITE) and program.calls(STEP) == 6)
  assert [path.name for path in cut.checkpoints.iterdir()] == ['5.orbax-checkpoint-tmp']
  output = interrupted(program, WRITE, release=True)
  assert ended(output, WRITE) == 2 and ended(output, STEP) == 6
  assert_all_whole(cut, 6)
  assert {path.name for path in cut.checkpoints.iterdir()} == {'5', '6'}
  finished(cut.train())
  assert_equal_runs(cut, toy)


def test_while_measuring(toy: Toy):
  """It does not wait for the perplexity of dev, but for the checkpoint before."""
  cut = toy.in_another('measuring')
  program = cut.train(hold={MEASURE: 1, WRITE: 1})
  output = interrupted(program, MEASURE, release=True)
  assert not ended(output, MEASURE)
  assert output.endswith(f'checkpoint: {cut.checkpoints / "5"}\n')
  assert_all_whole(cut, 5)
  finished(cut.train())
  assert_equal_runs(cut, toy)


@pytest.mark.parametrize('function', [TRANSLATE, BOOTSTRAP])
def test_while_evaluating(function: str, toy: Toy):
  result = toy.workdir / 'result.json'
  before = result.read_bytes()
  output = interrupted(toy.evaluate(hold={function: 1}), function)
  assert not ended(output, function)
  assert output.endswith('stopped by a signal. No result was written.\n')
  assert result.read_bytes() == before


def test_while_translating(toy: Toy):
  text = toy.folder / 'raw' / 'test.en'
  output = interrupted(toy.translate(text, hold={TRANSLATE: 1}), TRANSLATE)
  assert output.endswith('stopped by a signal. No line was written.\n')
  assert 'eins' not in output
