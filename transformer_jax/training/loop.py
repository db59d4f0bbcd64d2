"""The loop over the steps: when it saves, measures, logs and stops."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.machine import environment, hosts, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.metrics import Patience
from transformer_jax.training import checkpoint
from transformer_jax.training.log import Log
from transformer_jax.training.metrics import Divergence, Meter, Values
from transformer_jax.training.step import Sums, TrainState
from transformer_jax.training.trainer import Trainer

SAFETY_MINUTES = 10  # training goes unsaved for no longer; the paper's interval
MAX_SKIPS = 10  # so many steps in a row without a finite update end a run

Tree = Any


class Diverged(UserError):
  """Nothing can be learnt any more: no update is finite."""


class Cadence(NamedTuple):
  """In steps, but for `bleu_every` and `patience`, which are in checkpoints."""

  last: int  # the step that ends the training
  checkpoint_every: int
  log_every: int
  bleu_every: int = 0  # 0: never
  patience: int = 0  # without a better dev perplexity; 0: any number


class Dev(NamedTuple):
  """What is measured on dev, by parameters on this host's devices."""

  perplexity: Callable[[Tree], float]
  bleu: Callable[[Tree], float] | None = None


class Loop:
  """Makes updates, one from each batch in turn.

  At every multiple of `checkpoint_every` steps it saves and measures dev. Metrics are
  read one step late, so that the devices never wait for the host.
  """

  def __init__(
    self,
    trainer: Trainer,
    cadence: Cadence,
    records: list[dict],
    log: Log,
    writer: checkpoint.Writer,
    interruption: Interruption,
  ):
    """`records` are those that the steps before have left in metrics.jsonl."""
    self._trainer, self._log, self._writer = trainer, log, writer
    self._interruption = interruption
    self._alone = hosts.count() == 1
    self._every, self._last = cadence.checkpoint_every, cadence.last
    self._bleu_every = cadence.bleu_every * cadence.checkpoint_every
    self._patience = Patience.of(records, cadence.patience)
    self._made_by = {'device': platform.describe_device()}
    if commit := environment.commit():
      self._made_by['commit'] = commit
    every = cadence.log_every, cadence.checkpoint_every
    skipped = {r['step'] for r in records if 'skipped_pairs' in r}
    recorded = max((r['step'] for r in records if 'skipped' in r), default=0)
    unrecorded = sum(step > recorded for step in skipped)
    epoch = trainer.batches.steps_per_epoch
    self._meter = Meter(
      trainer.learning_rate, every, cadence.last, epoch, len(skipped), unrecorded
    )
    self._divergence = Divergence()
    for record in records:
      if 'loss' in record:
        self._divergence.add(record)
    self._skipped = skipped
    self._skips = 0  # in a row
    self._saved = time.monotonic()

  def run(
    self,
    state: TrainState,
    step: int,
    dev: Dev,
    unmeasured: bool,
  ) -> None:
    """Goes on from `step` to the last one, or until patience ends.

    Args:
      state: after `step` steps.
      step: the number of steps made, with those that were skipped.
      unmeasured: whether `step` is saved and its perplexity still to be measured.

    Raises:
      SystemExit: a signal asked for it; all is saved.
      Diverged: MAX_SKIPS steps in a row had no finite update.
      Unsaved, Unlogged: a checkpoint or the log could not be written.
    """
    # How many of the last steps in a row were skipped before this process took over.
    while step - self._skips in self._skipped:
      self._skips += 1

    # One host alone may be stopped while it measures. Several stop together, after a
    # step, so none of them obeys a signal by itself.
    defer = contextlib.nullcontext if self._alone else self._interruption.deferred
    with defer():
      if unmeasured:
        self._measure(step, state, dev)
      while step < self._last and not self._ended(step):
        self._meter.resume()
        goal = min(self._last, step - step % self._every + self._every)
        with self._interruption.deferred():
          state, done, stop = self._updates(state, step, goal)
          if done > step and hosts.is_first_host():
            self._writer.save(done, state.params, state.opt_state)
          step, self._saved = done, time.monotonic()
        if stop or self._leaves_alone():
          self._writer.finish()
          self._interruption.leave()
        if step == goal:
          self._measure(step, state, dev)

  def _measure(self, step: int, state: TrainState, dev: Dev) -> None:
    """Measures BLEU, if due, then perplexity: its record marks the step as measured."""
    params = self._trainer.devices.on_this_host(state.params)
    due = step == self._last or (self._bleu_every and step % self._bleu_every == 0)
    if dev.bleu and due:
      self._log.measuring('dev BLEU')
      begin = time.monotonic()
      self._log.dev_bleu(step, dev.bleu(params), time.monotonic() - begin)
    self._log.measuring('dev perplexity')
    perplexity = dev.perplexity(params)
    self._log.dev(step, perplexity)
    self._patience.add(perplexity)

  def _ended(self, step: int) -> bool:
    """Whether the first host's patience has ended: only there all records are known."""
    if not self._patience.most:
      return False
    if ended := bool(hosts.from_first_host(np.int32(self._patience.ended))):
      self._log.say(
        f'step {step}: no better dev perplexity in {self._patience.most} checkpoints '
        '(patience): the training ends'
      )
    return ended

  def _leaves_alone(self) -> bool:
    """Whether a signal asks this host to stop, and no other host has to agree."""
    return self._alone and self._interruption.requested

  def _updates(
    self, state: TrainState, step: int, goal: int
  ) -> tuple[TrainState, int, bool]:
    """Makes updates up to `goal`, or until a host has to save or to stop.

    Returns:
      The state, the number of its steps, and whether to stop.
    """
    previous, stop, save = None, False, False
    while step < goal and not stop and not save:
      requested = self._interruption.requested
      batch = self._trainer.batch(step)
      self._trainer.wait_for_program(batch, self._leaves_alone)
      if self._leaves_alone():
        break
      due = time.monotonic() - self._saved > 60 * SAFETY_MINUTES
      state, sums = self._trainer.step(state, batch, requested, due)
      if previous is not None:
        stop, save = self._account(step, previous)
      previous = sums
      step += 1
      self._writer.check()
    if previous is not None:
      stop = self._account(step, previous, due=True)[0] or stop
    return state, step, stop

  def _account(self, step: int, sums: Sums, due: bool = False) -> tuple[bool, bool]:
    """Waits for a step's sums and logs them.

    Returns:
      Whether any host has to stop, and whether any has to save.
    """
    *values, requests = jax.device_get(sums)
    values = Values(*values)
    self._skips = self._skips + 1 if values.skipped else 0
    if values.skipped:
      pairs = self._trainer.batch(step - 1).pairs
      self._log.skipped(step, [int(pair) for pair in pairs.flat if pair >= 0])
    if self._skips == MAX_SKIPS:
      raise Diverged(
        f'no finite update in {MAX_SKIPS} steps on end, up to step {step}. '
        f'{self._writer.newest()}'
      )
    record = self._meter.add(step, values, due)
    if record is not None:
      record |= self._made_by
    self._log.advance(record)
    astray = self._divergence.add(record) if record else None
    if astray:
      self._log.say(astray)
    return bool(requests[0]), bool(requests[1])
