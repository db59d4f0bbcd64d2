"""Training: a config's steps on all devices, and the loop around them (section 5)."""

import contextlib
import pathlib
import time

import jax
import ml_collections
import numpy as np

from transformer_jax.data import batches, card, token_files
from transformer_jax.machine import hosts, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import run
from transformer_jax.training import checkpoint, perplexity
from transformer_jax.training.log import Log, Silent
from transformer_jax.training.metrics import Divergence, Meter, Values
from transformer_jax.training.optimizer import learning_rate
from transformer_jax.training.step import Sums, TrainState
from transformer_jax.training.trainer import Trainer

SAFETY_MINUTES = 10  # longest that training goes unsaved; the paper's cadence
SKIPS_ON_END = 10  # updates without a finite gradient that end a run


class Diverged(FloatingPointError):
  """Nothing can be learnt any more: all gradients are infinite or not numbers."""


def train(
  config: ml_collections.ConfigDict,
  workdir: pathlib.Path,
  corpus: pathlib.Path,
  interruption: Interruption | None = None,
) -> None:
  """Trains to config.train_steps, going on from what `workdir` holds.

  Raises:
    SystemExit: a signal asked for it; all is saved.
  """
  directory = run.Run(workdir)
  with contextlib.ExitStack() as stack:
    if hosts.is_first_host():
      stack.enter_context(directory.locked())
      run.Run.open(workdir, config, corpus)
      checkpoint.tidy(directory.checkpoints)
    hosts.check_same(config.to_json_best_effort() + card.read_card(corpus)['corpus'])
    trainer = Trainer(config, corpus)
    state = trainer.restore(directory.checkpoints)
    start = int(state.step)
    records = []
    if hosts.is_first_host():
      records = [r for r in directory.records() if r['step'] <= start]
    unmeasured = _unmeasured(config, start, records)
    if start >= config.train_steps and not unmeasured:
      print(f'{workdir} has {start} of {config.train_steps} steps: nothing to do')
      return
    log = Silent()
    if hosts.is_first_host():
      log = Log(directory, start, config.train_steps)
    stack.enter_context(log)
    _say_what_differs(trainer.batches, log)
    writer = checkpoint.Writer(
      directory.checkpoints,
      config.checkpoint_every_steps,
      config.keep_checkpoints,
      log.saved,
    )
    stack.enter_context(writer)
    interruption = Interruption() if interruption is None else interruption
    if hosts.is_first_host():  # the one that saves
      interruption.last_words = log.last_words = writer.newest
    dev = perplexity.Perplexity(
      config, trainer.graph, *token_files.read_split(corpus, 'dev')
    )
    if start < config.train_steps:
      trainer.compile(state, log.compiling)
      hosts.wait_for_all('compiled')
      log.started()
    loop = Loop(trainer, records, log, writer, interruption)
    loop.run(state, start, dev, unmeasured)
    writer.finish()


def _unmeasured(
  config: ml_collections.ConfigDict, step: int, records: list[dict]
) -> bool:
  """Whether a run ended between a checkpoint and the dev perplexity due after it."""
  due = step == config.train_steps or step and step % config.checkpoint_every_steps == 0
  there = any(r['step'] == step and 'dev_perplexity' in r for r in records)
  return bool(hosts.from_first_host(np.int32(due and not there)))


def _say_what_differs(of: batches.Batches, log: Log) -> None:
  """What a reader who compares with the paper, or with another machine, has to know."""
  log.say(f'training on {platform.describe_device()}')
  source, target = of.mean_tokens
  log.say(
    f'a batch is {source:,.0f} source and {target:,.0f} target tokens on average, '
    f"{100 * max(source, target) / batches.PAPER_TOKENS:.0f} % of the paper's "
    f'{batches.PAPER_TOKENS:,}'
  )


class Loop:
  """Steps, and after those that are due, a checkpoint and the dev set's perplexity."""

  def __init__(
    self,
    trainer: Trainer,
    records: list[dict],
    log: Log,
    writer: checkpoint.Writer,
    interruption: Interruption,
  ):
    """`records`: those of the steps before."""
    config = trainer.config
    self._trainer, self._log, self._writer = trainer, log, writer
    self._interruption = interruption
    self._alone = hosts.count() == 1
    self._every, self._last = config.checkpoint_every_steps, config.train_steps
    self._device = platform.describe_device()
    rate = learning_rate(config.model.d_model, config.warmup_steps, config.rate_factor)
    every = config.log_every_steps, self._every
    skipped = sum(r['skipped'] for r in records if 'skipped' in r)
    epoch = trainer.batches.steps_per_epoch
    self._meter = Meter(rate, every, self._last, epoch, skipped)
    self._divergence = Divergence()
    for record in records:
      if 'loss' in record:
        self._divergence.add(record)
    self._skips = 0  # on end
    self._saved = time.monotonic()

  def run(
    self, state: TrainState, step: int, dev: perplexity.Perplexity, unmeasured: bool
  ) -> None:
    """`unmeasured`: `step` was saved, and its dev perplexity is still to be written."""
    measure = lambda: self._log.dev(
      step, dev(self._trainer.devices.on_this_host(state.params))
    )
    # Hosts stop together: one of several stops for no signal of its own alone.
    patience = contextlib.nullcontext if self._alone else self._interruption.deferred
    with patience():
      if unmeasured:
        measure()
      while step < self._last:
        self._meter.resume()
        goal = min(self._last, step - step % self._every + self._every)
        with self._interruption.deferred():
          state, done, stop = self._updates(state, step, goal)
          if done > step and hosts.is_first_host():
            self._writer.save(done, state.params, state.opt_state)
          step, self._saved = done, time.monotonic()
        if stop or (self._alone and self._interruption.asked):
          self._writer.finish()
          self._interruption.leave()
        if step == goal:
          measure()

  def _updates(
    self, state: TrainState, step: int, goal: int
  ) -> tuple[TrainState, int, bool]:
    """Goes on to `goal`, or to where the hosts wish to save or stop: do they stop?"""
    previous, stop, save = None, False, False
    while step < goal and not stop and not save:
      asked = self._interruption.asked
      if asked and self._alone:
        break
      due = time.monotonic() - self._saved > 60 * SAFETY_MINUTES
      batch = self._trainer.batch(step)
      state, sums = self._trainer.step(state, batch, asked, due)
      # Metrics are read one step late, while the device works on this step.
      if previous is not None:
        stop, save = self._account(step, previous)
      previous = sums
      step += 1
      self._writer.check()
    if previous is not None:
      stop = self._account(step, previous, due=True)[0] or stop
    return state, step, stop

  def _account(self, step: int, sums: Sums, due: bool = False) -> tuple[bool, bool]:
    """Writes down what a step was; do the hosts wish to stop, and to save?"""
    *values, wishes = jax.device_get(sums)
    values = Values(*values)
    self._skips = self._skips + 1 if values.skipped else 0
    if values.skipped:
      pairs = self._trainer.batch(step - 1).pairs
      self._log.skipped(step, [int(pair) for pair in pairs.flat if pair >= 0])
    if self._skips == SKIPS_ON_END:
      raise Diverged(
        f'no finite gradient in {SKIPS_ON_END} steps on end, up to step {step}. '
        f'{self._writer.newest()}'
      )
    record = self._meter.add(step, values, due)
    if record is not None:
      record['device'] = self._device
    self._log.advance(record)
    astray = self._divergence.add(record) if record else None
    if astray:
      self._log.say(astray)
    return bool(wishes[0]), bool(wishes[1])
