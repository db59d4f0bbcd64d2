"""The training loop: its checkpoints, records and messages, and when it ends.

Nothing is computed here: a trainer without a model counts its steps.
"""

import itertools
import json
import pathlib
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from configs import base
from toy import corpus, forms
from toy.config import tiny
from transformer_jax.data import batches
from transformer_jax.data.corpus import Corpus
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE, Interruption
from transformer_jax.model import build
from transformer_jax.runs.records import best_step
from transformer_jax.runs.run import Run, finished_steps
from transformer_jax.training import loop
from transformer_jax.training.metrics import Log
from transformer_jax.training.step import Sums, TrainState


class Counter:
  """A trainer whose parameters are the number of its steps."""

  def __init__(self, last: int):
    self.last = last
    self.learning_rate, self.pieces = float, 60
    self.batches = self.devices = self
    self.steps_per_epoch = 100
    self.bad: set[int] = set()  # steps without a finite update
    self.begin = lambda step: None  # called with the number of each step
    self.compiled = lambda step: True

  def on_this_host(self, params: Any) -> Any:
    return params

  def batch(self, step: int) -> batches.Batch:
    pairs = np.array([[10 * step, 10 * step + 1, -1]])
    return batches.Batch(pairs, pairs, pairs)

  def wait_for_program(self, batch: batches.Batch, unless: Callable[[], bool]) -> None:
    while not self.compiled(batch.pairs[0, 0] // 10 + 1) and not unless():
      pass

  def step(
    self, state: TrainState, batch: batches.Batch, stop: bool, save: bool
  ) -> tuple[TrainState, Sums]:
    step = int(state.step) + 1
    assert batch.pairs[0, 0] == 10 * (step - 1)
    self.begin(step)
    bad = step in self.bad
    loss = np.nan if bad else 10.0
    return TrainState(np.int32(step), {'w': np.float32(step)}, ()), Sums(
      loss, loss, 5, loss, int(bad), np.array([stop, save], np.int32)
    )


class Kept:
  """Stands in for the writer of checkpoints."""

  def __init__(self) -> None:
    self.steps: list[int] = []
    self.check = self.finish = lambda: None

  def save(self, step: int, params: Any, _: Any) -> None:
    assert params['w'] == step
    self.steps.append(step)

  def newest(self) -> str:
    return f'The newest checkpoint: {self.steps[-1]}'


def looped(
  folder: pathlib.Path,
  trainer: Counter,
  interruption: Interruption | None = None,
  start: int = 0,
  bleu: loop.MeasureBleu | None = None,
  **changes: int,
) -> tuple[Kept, list[dict]]:
  """Runs to the end; returns its checkpoints and its records."""
  folder.mkdir(exist_ok=True)
  kept, run = Kept(), Run(folder)
  config = base.get_config()
  config.update({'train_steps': trainer.last, 'checkpoint_every_steps': 4})
  config.update({'log_every_steps': 2} | changes)
  state = TrainState(np.int32(start), {'w': np.float32(start)}, ())
  before = run.records()
  measures = interruption or Interruption(), lambda _: 2.0, bleu
  with Log(run, start, trainer.last) as log:
    one = loop.Loop(trainer, config, before, log, kept, *measures)
    try:
      one.run(state, start, start > 0 and loop._needs_dev_eval(config, start, before))
    except SystemExit as end:
      kept.end = end
  return kept, run.records()


def test_dev_bleu(tmp_path: pathlib.Path, capsys):
  """At every second checkpoint and the last; it may choose the best, for patience."""
  sample = 'ein Satz', 'a sentence', 'one sentence'
  scores = iter([20.0, 30.0, 29.0, 28.0, 1.0, 2.0])
  options = {'bleu': lambda _: (next(scores), [sample]), 'bleu_every_checkpoints': 2}
  options |= {'best_by': 'bleu', 'patience': 2}
  kept, records = looped(tmp_path, Counter(60), **options)
  bleus = {r['step']: r['dev_bleu'] for r in records if 'dev_bleu' in r}
  assert bleus == {8: 20.0, 16: 30.0, 24: 29.0, 32: 28.0}
  assert kept.steps[-1] == 32 and best_step(records, 'bleu') == 16
  shown = '  source: ein Satz\n  translation: a sentence\n  reference: one sentence\n'
  assert capsys.readouterr().err.count(shown) == 4
  _, records = looped(tmp_path / 'short', Counter(10), **options)
  assert [r['step'] for r in records if 'dev_bleu' in r] == [8, 10]


def test_a_missing_measurement_comes_first(tmp_path: pathlib.Path):
  """Of the step it goes on from, so the records are those of a straight run."""
  kept, expected = looped(tmp_path / 'straight', Counter(10))
  assert kept.steps == [4, 8, 10]
  assert [r['step'] for r in expected if 'loss' in r] == [2, 4, 6, 8, 10]
  assert [r['step'] for r in expected if 'dev_perplexity' in r] == [4, 8, 10]
  lines = Run(tmp_path / 'straight').metrics.read_text().splitlines(keepends=True)
  at = next(i for i, line in enumerate(lines) if 'dev_perplexity' in line)
  Run(tmp_path).metrics.write_text(''.join(lines[:at]))
  _, records = looped(tmp_path, Counter(10), start=4)
  untimed = lambda rows: [r | {'seconds': 0} for r in rows if 'saved' not in r]
  assert untimed(records) == untimed(expected)
  kept, records = looped(tmp_path / 'ended', Counter(10), start=10)
  assert kept.steps == [] and records[-1] == {'step': 10, 'dev_perplexity': 2.0}


def test_an_interruption_while_a_step_is_compiled(tmp_path: pathlib.Path):
  """It saves the steps before, and does not wait for this one."""
  interruption, trainer = Interruption(), Counter(10)
  trainer.compiled = lambda step: step < 6 or setattr(interruption, 'requested', True)
  kept, records = looped(tmp_path, trainer, interruption)
  assert kept.steps == [4, 5] and kept.end.code == EXIT_CODE
  assert records[-1]['step'] == 5


def test_several_hosts_stop_at_one_step(tmp_path: pathlib.Path, monkeypatch):
  """One with a signal after the last step before a checkpoint goes on until then.

  Step 5 carries its request, which is read when 6 is on its way.
  """
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  interruption, trainer = Interruption(), Counter(10)
  save = Kept.save

  def signalled(self: Kept, step: int, *rest: Any) -> None:
    interruption.requested = True
    save(self, step, *rest)

  monkeypatch.setattr(Kept, 'save', signalled)
  kept, records = looped(tmp_path, trainer, interruption)
  assert kept.steps == [4, 6] and kept.end.code == EXIT_CODE
  assert [r['step'] for r in records if 'dev_perplexity' in r] == [4]


def test_copies_every_few_minutes(tmp_path: pathlib.Path, monkeypatch):
  """A minute passes at each look at the clock; a request is read one step late."""
  clock = types.SimpleNamespace(monotonic=itertools.count(step=60).__next__)
  monkeypatch.setattr(loop, 'time', clock)
  monkeypatch.setattr(loop, 'SAFETY_MINUTES', 3)
  kept, _ = looped(tmp_path, Counter(16), checkpoint_every_steps=100)
  assert kept.steps == [5, 10, 15, 16]


def test_a_skipped_update_is_counted_and_its_batch_named(tmp_path: pathlib.Path):
  """Ten in a row end the training."""
  trainer = Counter(20)
  trainer.bad = {3, *range(9, 20)}
  with pytest.raises(UserError, match='10 steps in a row had no finite update'):
    looped(tmp_path, trainer)
  records = Run(tmp_path).records()
  assert {'step': 3, 'skipped_pairs': [20, 21]} in records
  assert [r['step'] for r in records if 'skipped_pairs' in r] == [3, *range(9, 19)]
  losses = [r for r in records if 'loss' in r]
  assert [r['skipped'] for r in losses] == [0, 1, 0, 0]
  assert [r['loss'] for r in losses] == [2.0] * 4
  assert sum(r['target_tokens'] for r in losses) == 35


@pytest.mark.parametrize('stop', [4, 5, 6, 8])
def test_interrupted(stop: int, tmp_path: pathlib.Path):
  """It saves the current step, and goes on as if it had not ended.

  The learning rate depends on the number of skipped updates, such as those at 5 and 6.
  """
  trainer, interruption, ends = Counter(20), Interruption(), []
  trainer.bad = {2, 4, 5, 6}
  trainer.begin = lambda step: setattr(interruption, 'requested', step == stop)
  kept, _ = looped(tmp_path, trainer, interruption)
  assert kept.steps == sorted({4, stop}) and kept.end.code == EXIT_CODE
  trainer.begin = lambda step: None
  for folder, start in ((tmp_path, stop), (tmp_path / 'straight', 0)):
    losses = [r for r in looped(folder, trainer, start=start)[1] if 'loss' in r]
    sums = [sum(r[k] for r in losses) for k in ('target_tokens', 'steps', 'skipped')]
    ends.append((losses[-1]['learning_rate'], sums))
  assert ends[0] == ends[1]


def test_a_restart_does_not_forget_the_best_loss(tmp_path: pathlib.Path, capsys):
  good = [{'step': step, 'loss': 0.5, 'target_tokens': 5} for step in (1, 2)]
  lines = ''.join(json.dumps(record) + '\n' for record in good)
  (tmp_path / 'metrics.jsonl').write_text(lines)
  looped(tmp_path, Counter(12), start=2)
  assert capsys.readouterr().err.count('has diverged') == 2, 'and once more at the end'


def test_a_start_that_is_refused_writes_no_run(tmp_path: pathlib.Path):
  """Orbax takes a folder of such a name for a pattern."""
  corpus.prepare(corpus.write_raw(tmp_path / 'raw'))
  workdir = tmp_path / '[12]'
  with pytest.raises(UserError, match='no checkpoint can be written there'):
    loop.train(tiny(max_shapes=1), workdir, Corpus.open(tmp_path / 'data' / 'toy'))
  assert {path.name for path in workdir.iterdir()} == {'checkpoints', 'lock'}


def test_hosts_compare_config_and_corpus(tmp_path: pathlib.Path, monkeypatch):
  compare = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(loop.hosts, 'check_same', compare)
  for config, identity in (tiny(), 'a'), (tiny(), 'b'), (tiny(seed=2), 'a'):
    card = types.SimpleNamespace(card=types.SimpleNamespace(identity=identity))
    with pytest.raises(KeyboardInterrupt):
      loop.train(config, tmp_path, card)
  assert len({*map(str, compare.mock_calls)}) == 3


@pytest.mark.slow
def test_a_training(tmp_path: pathlib.Path, monkeypatch, capsys):
  """The second checkpoint is the best; after two more, training ends, and goes on."""
  corpus.prepare(corpus.write_raw(tmp_path / 'raw'))
  prepared = Corpus.open(tmp_path / 'data' / 'toy')
  kept = {'checkpoint_every_steps': 1, 'keep_checkpoints': 1, 'average_last': 1}
  kept |= {'best_by': 'perplexity', 'patience': 2}
  config = tiny(tokens_per_batch=64, max_shapes=1, train_steps=9, slices=1, **kept)
  measured = iter([5.0, 1.0, 3.0, 2.0, 0.5, 3.0, 4.0])
  monkeypatch.setattr(loop.Perplexity, '__call__', lambda self, params: next(measured))
  initial = lambda config: (None, forms.random_like(build.architecture(config)[1], 0.1))
  monkeypatch.setattr(build, 'transformer', initial)
  run, interruption = Run(tmp_path / 'new'), Interruption()

  def said(**options: Any) -> str:
    loop.train(config, run.workdir, prepared, **options)
    return ''.join(capsys.readouterr())

  said(interruption=interruption)
  assert finished_steps(run.checkpoints) == [2, 4] and run.best_step() == 2
  newest = f'The newest checkpoint: {run.checkpoints / "4"}'
  assert interruption.last_words().endswith(newest)
  (device,) = {r['device'] for r in run.records() if 'loss' in r}
  assert device == platform.describe_device()
  assert 'has 4 of 9 steps; patience=2 ended it: nothing to do' in said()
  # A signal came while dev was measured. The missing perplexity is the best, so the run
  # goes on, though by the others less patience has ended.
  lines = run.metrics.read_text().splitlines(keepends=True)
  others = [line for line in lines if '"dev_perplexity": 2.0' not in line]
  assert len(others) == len(lines) - 1
  run.metrics.write_text(''.join(others))
  config.patience = 1
  assert 'step 5: no better dev perplexity in 1' in said()
  assert finished_steps(run.checkpoints) == [4, 5] and run.best_step() == 4
  config.update({'patience': 0, 'train_steps': 6})
  assert 'dev BLEU 50.00' in said(bleu=lambda params: (50.0, []))
  assert finished_steps(run.checkpoints) == [4, 6]
  assert [r['step'] for r in run.records() if 'loss' in r] == [1, 2, 3, 4, 5, 6]
