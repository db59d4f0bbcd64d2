"""SIGTERM in each phase of our commands: what they save, and how soon they exit.

The phase is certain: a function of it has been made to wait (`hold`), has said that it
began and not that it ended, as the signal came.
"""

import pathlib
import signal
import time

import pytest

from toy.programs import Program
from toy.runs import (
  Toy,
  assert_all_whole,
  assert_equal_runs,
  finished,
  records,
  undisturbed,
)
from transformer_jax.machine.signals import EXIT_CODE
from transformer_jax.training import checkpoint

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
AT_ONCE = 2  # seconds
STEP = 'transformer_jax.training.trainer:Trainer.step'
WRITE = 'transformer_jax.training.checkpoint:checksums'  # while a checkpoint is written
MEASURE = 'transformer_jax.training.perplexity:Perplexity.__call__'
TRANSLATE = 'transformer_jax.decoding.translate:Translator.translate'
COMPILE = 'jax.stages:Lowered.compile'
LEARN = 'transformer_jax.data.vocabulary:learn_pieces'
BOOTSTRAP = 'transformer_jax.scoring.bleu:score'


@pytest.fixture(scope='module')
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
  return undisturbed(tmp_path_factory.mktemp('toy'))


def calls(program: Program, function: str) -> int:
  """How often it has been called."""
  return program.said.count(f'begin {function.split(":")[1]}\n')


def interrupted(
  program: Program,
  function: str,
  within: float,
  call: int = 1,
  number: signal.Signals = signal.SIGTERM,
) -> str:
  """Signals it in a call of `function`; returns what it printed until its exit."""
  program.wait_for(lambda: calls(program, function) == call)
  begin = time.monotonic()
  program.signal(number)
  assert program.code() == EXIT_CODE, program.said
  seconds = time.monotonic() - begin
  assert seconds < within, (seconds, program.said)
  return program.said


def ended(said: str, function: str) -> int:
  return said.count(f'end {function.split(":")[1]}\n')


# Where nothing is new


def test_while_preparing(toy: Toy):
  """The unfinished folder is no corpus; the same command runs to the end."""
  new = Toy(toy.folder, data_dir='new').in_another('preparing')
  said = interrupted(new.train(hold={LEARN: 60}), LEARN, AT_ONCE)
  assert said.endswith('stopped by a signal.\n')
  assert not (toy.folder / 'new' / 'toy').exists()
  finished(new.train())
  assert_equal_runs(new, toy)


def test_while_compiling(toy: Toy):
  """Within XLA, however long it takes; the message names the newest checkpoint."""
  new = toy.in_another('compiling')
  cold = str(toy.folder / 'cold')
  program = new.train(hold={COMPILE: 0}, XDG_CACHE_HOME=cold)
  program.wait_for(lambda: calls(program, COMPILE))
  time.sleep(0.2)
  said = interrupted(program, COMPILE, AT_ONCE)
  assert not ended(said, COMPILE)
  assert said.endswith('stopped by a signal. The newest checkpoint: none\n')
  assert not checkpoint.finished_steps(new.checkpoints)


# While training


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGUSR1])
def test_while_training(number: signal.Signals, toy: Toy):
  """It saves the current step, which is on no cadence, and starts no other."""
  cut, seconds = toy.in_another(f'told.{number}'), 2
  for call, newest in ((3, 3), (4, 7)):
    program = cut.train(hold={STEP: seconds if newest == 3 else 0.3})
    said = interrupted(program, STEP, seconds + AT_ONCE, call, number)
    assert calls(program, STEP) == call
    assert checkpoint.finished_steps(cut.checkpoints)[-1] == newest
    assert said.endswith(f'checkpoint: {cut.checkpoints / str(newest)}\n')
    assert records(cut)[-1]['step'] == newest
  finished(cut.train())
  assert_equal_runs(cut, toy)
  assert checkpoint.finished_steps(cut.checkpoints) == [20, 25, 30]


def test_while_saving(toy: Toy):
  """It finishes the checkpoint that it writes, and then saves the current step."""
  cut, seconds = toy.in_another('saving'), 4
  program = cut.train(hold={WRITE: seconds, STEP: 0.3})
  program.wait_for(lambda: calls(program, WRITE) == 1 and calls(program, STEP) >= 6)
  assert [path.name for path in cut.checkpoints.iterdir()] == ['5.orbax-checkpoint-tmp']
  said = interrupted(program, WRITE, 2 * seconds + AT_ONCE)
  step = calls(program, STEP)
  assert ended(said, WRITE) == 2 and 5 < step < 10
  assert_all_whole(cut, step)
  assert {path.name for path in cut.checkpoints.iterdir()} == {'5', str(step)}
  finished(cut.train())
  assert_equal_runs(cut, toy)


def test_while_measuring(toy: Toy):
  """It does not wait for the perplexity of dev, but for the checkpoint before."""
  cut, seconds = toy.in_another('measuring'), 2
  program = cut.train(hold={MEASURE: 60, WRITE: seconds})
  said = interrupted(program, MEASURE, seconds + AT_ONCE)
  assert not ended(said, MEASURE)
  assert said.endswith(f'checkpoint: {cut.checkpoints / "5"}\n')
  assert_all_whole(cut, 5)
  finished(cut.train())
  assert_equal_runs(cut, toy)


# With a finished run


@pytest.mark.parametrize('function', [TRANSLATE, BOOTSTRAP])
def test_while_evaluating(function: str, toy: Toy):
  result = toy.workdir / 'result.json'
  before = result.read_bytes()
  said = interrupted(toy.evaluate(hold={function: 60}), function, AT_ONCE)
  assert said.endswith('stopped by a signal. No result was written.\n')
  assert result.read_bytes() == before


def test_while_translating(toy: Toy):
  text = toy.folder / 'raw' / 'test.en'
  program = toy.translate(text, hold={TRANSLATE: 60})
  said = interrupted(program, TRANSLATE, AT_ONCE)
  assert said.endswith('stopped by a signal. No line was written.\n')
  assert 'eins' not in said
