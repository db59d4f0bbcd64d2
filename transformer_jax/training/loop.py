"""A whole training: from a config, a corpus and a folder to the last checkpoint."""

import contextlib
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import ml_collections
import numpy as np
from jaxtyping import PyTree

from transformer_jax.data import batches
from transformer_jax.data.corpus import Card, Corpus
from transformer_jax.machine import cli, hosts, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.records import Record, best_step, patience_has_ended
from transformer_jax.runs.run import Run, find_parent
from transformer_jax.scoring.translations import perplexity_text
from transformer_jax.training import checkpoint
from transformer_jax.training.metrics import Divergence, Log, Meter
from transformer_jax.training.perplexity import Perplexity
from transformer_jax.training.step import Sums, TrainState
from transformer_jax.training.trainer import Trainer

SAFETY_MINUTES = 10  # between two checkpoints at most; the paper's interval
MAX_SKIPS = 10  # this many skipped steps in a row end a run
# Functions of parameters on this host's devices. The second returns BLEU in percent,
# and a few sources, translations and references.
MeasurePerplexity = Callable[[PyTree], float]
MeasureBleu = Callable[[PyTree], tuple[float, Sequence[tuple[str, str, str]]]]


def train(
  config: ml_collections.ConfigDict,
  workdir: pathlib.Path,
  corpus: Corpus,
  interruption: Interruption | None = None,
  bleu: MeasureBleu | None = None,
) -> None:
  """Trains to config.train_steps, from the newest checkpoint in `workdir` if any.

  The first host alone reads and writes `workdir`.

  Args:
    interruption: handles signals. None: they do what they do in any program.
    bleu: measures dev BLEU, such as decoding.evaluate.DevBleu. None: nothing does.

  Raises:
    SystemExit: a signal came; the newest step has a checkpoint.
    UserError: `workdir` is in use or holds another config's run, no checkpoint can be
      written there, or the training diverges.
    OSError: the system refuses, such as a full disk.
  """
  first, run = hosts.is_first_host(), Run(workdir)
  interruption = interruption or Interruption()
  with contextlib.ExitStack() as stack:
    if first:
      stack.enter_context(run.locked())
    trainer, state, changes = _open_run(run, config, corpus)
    start = int(state.step)
    records = [r for r in run.records() if r['step'] <= start] if first else []
    needs_dev_eval = _needs_dev_eval(config, start, records)
    has_ended = _is_out_of_patience(records, config)
    # A dev score that is still missing may be the best, so that patience goes on.
    must_train = start < config.train_steps and (needs_dev_eval or not has_ended)
    if not must_train and not needs_dev_eval:
      if first:
        steps = f'{start} of {config.train_steps} steps'
        end = f'; patience={config.patience} ended it' if has_ended else ''
        cli.say(f'{workdir} has {steps}{end}: nothing to do')
      return
    log = stack.enter_context(Log(run, start, config.train_steps, enabled=first))
    for line in (*_introduce_run(config, trainer, corpus.card, start), *changes):
      log.say(line)
    writer = None
    if first:
      writer = stack.enter_context(_open_writer(config, run, log))
      again = 'To resume, give the same command again.'
      interruption.last_words = lambda: f'{again} {writer.newest()}'
    dev = Perplexity(config, trainer.graph, *corpus.split('dev'))
    for line in dev.warnings:
      log.say(line)
    if must_train:
      stack.enter_context(_compile_while_training(trainer, state, log))
      log.begin()
    loop = Loop(trainer, config, records, log, writer, interruption, dev, bleu)
    loop.run(state, start, needs_dev_eval)


def _open_run(
  run: Run, config: ml_collections.ConfigDict, corpus: Corpus
) -> tuple[Trainer, TrainState, list[str]]:
  """Makes the model and opens the run's folder, or makes it.

  Returns the trainer, the state to go on from, and what has changed since the run was
  last opened.
  """
  first, changes = hosts.is_first_host(), []
  if first:
    print('making the model', file=sys.stderr, flush=True)
  hosts.check_same(config.to_json_best_effort() + corpus.card.identity)
  trainer = Trainer(config, corpus.split('train'))
  # Before Run.open() writes to the folder, which may be another model's.
  state = trainer.restore(run.checkpoints)
  if first:
    if not run.is_started:
      checkpoint.try_folder(run.checkpoints)
    changes = run.changes(config)
    Run.open(run.workdir, config, corpus)
    before = run.training_so_far(int(state.step))['training_device']
    if before and before != platform.describe_device():
      changes.append(f'the steps so far were made on {before}')
  return trainer, state, changes


def _open_writer(
  config: ml_collections.ConfigDict, run: Run, log: Log
) -> checkpoint.Writer:
  """Returns the writer of the run's checkpoints, which keeps those of the config."""
  best = lambda: best_step(run.records(), config.best_by)
  every, keep = config.checkpoint_every_steps, config.keep_checkpoints
  return checkpoint.Writer(run.checkpoints, every, keep, log.log_checkpoint, best)


@contextlib.contextmanager
def _compile_while_training(
  trainer: Trainer, state: TrainState, log: Log
) -> Iterator[None]:
  """Compiles steps for all shapes. The context begins when training can."""
  start = int(state.step)
  shapes = trainer.batches.shapes_from(start)
  plural = 's' if len(shapes) > 1 else ''
  log.say(f'compiling the step for {len(shapes)} shape{plural} of batches')
  with trainer.compile(state, shapes, log.say):
    if jax.process_count() == 1 and trainer.devices.platform != 'gpu':
      trainer.wait_for_program(trainer.batch(start))
    else:
      # Collectives time out sooner than a host may compile, so all compile first. On a
      # GPU XLA times products while it compiles. That takes memory, and it loads and
      # unloads modules, which can stop a collective.
      trainer.wait_for_all_programs()
      hosts.wait_for_all('compiled')
    yield


def _is_out_of_patience(
  records: list[Record], config: ml_collections.ConfigDict
) -> bool:
  """Returns True if patience has ended on the first host, which has all records."""
  if not config.patience:
    return False
  return bool(hosts.from_first_host(np.int32(patience_has_ended(records, config))))


def _needs_dev_eval(
  config: ml_collections.ConfigDict, step: int, records: list[Record]
) -> bool:
  """Returns True if a stop left the checkpoint of `step` without dev perplexity."""
  due = step == config.train_steps or step and step % config.checkpoint_every_steps == 0
  measured = any(r['step'] == step and 'dev_perplexity' in r for r in records)
  return bool(hosts.from_first_host(np.int32(due and not measured)))


def _introduce_run(
  config: ml_collections.ConfigDict, trainer: Trainer, card: Card, start: int
) -> Iterator[str]:
  """Yields what a user should know before the first step."""
  yield f'training on {platform.describe_device()}'
  if config.init_from.run and not start and hosts.is_first_host():
    parent, data = config.init_from, find_parent(config.init_from)[0].config().data
    yield (
      f'from step {parent.step} of {parent.run}, a model from {data.source_language} '
      f'to {data.target_language}'
    )
  source, target = trainer.batches.mean_tokens
  yield (
    f'a batch is {source:,.0f} source and {target:,.0f} target tokens on average, '
    f"{100 * max(source, target) / batches.PAPER_TOKENS:.0f} % of the paper's "
    f'{batches.PAPER_TOKENS:,}'
  )
  epoch = trainer.batches.steps_per_epoch
  updates = f'{config.train_steps:,} updates'
  if start:
    updates = f'{config.train_steps - start:,} more updates, of {updates} in all'
  yield f'{updates}: {config.train_steps / epoch:,.1f} epochs of {epoch:,} updates'
  if config.warmup_steps > config.train_steps:
    yield (
      f'warmup_steps={config.warmup_steps} is more than train_steps='
      f'{config.train_steps}: the learning rate never reaches its highest value'
    )
  if (numpy := card.versions.get('numpy', np.__version__)) != np.__version__:
    yield (
      f'NumPy is {np.__version__}, and was {numpy} when the corpus was prepared: if '
      'its random numbers changed, so does the order of batches'
    )


class Loop:
  """Makes updates, one from each batch in turn.

  It saves and measures dev at multiples of `checkpoint_every_steps` and at the end, and
  saves after SAFETY_MINUTES, too. Metrics are read one step late, so that the devices
  never wait for the host.
  """

  def __init__(
    self,
    trainer: Trainer,
    config: ml_collections.ConfigDict,
    records: list[Record],
    log: Log,
    writer: checkpoint.Writer | None,
    interruption: Interruption,
    perplexity: MeasurePerplexity,
    bleu: MeasureBleu | None,
  ):
    """Continues a run; `records` are of the steps so far, from metrics.jsonl.

    `writer` is None on a host that is not the first.
    """
    self._trainer, self._config = trainer, config
    self._log, self._writer, self._interruption = log, writer, interruption
    self._perplexity, self._bleu = perplexity, bleu
    self._is_one_host = jax.process_count() == 1
    self._records = [*records]
    self._device, self._commit = platform.describe_device(), platform.commit()
    self._meter = Meter(
      trainer.learning_rate,
      (config.log_every_steps, config.checkpoint_every_steps),
      config.train_steps,
      trainer.batches.steps_per_epoch,
      records,
    )
    self._divergence = Divergence(trainer.pieces)
    for record in records:
      if 'loss' in record:
        self._divergence.add(record)
    self._skips = 0  # in a row, in this process
    self._last_save = time.monotonic()

  def run(self, state: TrainState, step: int, needs_dev_eval: bool) -> None:
    """Makes the steps after `step`, up to the last one or until patience ends.

    With `needs_dev_eval`, `step` has a checkpoint but no perplexity, and gets one.
    """
    every, last = self._config.checkpoint_every_steps, self._config.train_steps
    # A single host may be stopped while it measures. Several hosts stop together, after
    # a step, so none of them stops at a signal of its own.
    defer = contextlib.nullcontext if self._is_one_host else self._interruption.deferred
    with defer():
      if needs_dev_eval:
        self._measure(step, state)
      while step < last and not _is_out_of_patience(self._records, self._config):
        self._meter.resume()
        goal = min(last, step - step % every + every)
        with self._interruption.deferred():
          state, new_step, stop = self._update(state, step, goal)
          if new_step > step and self._writer:
            self._writer.save(new_step, state.params, state.opt_state)
          step, self._last_save = new_step, time.monotonic()
          if stop or self._may_stop_now():
            if self._writer:
              self._writer.finish()
            self._interruption.leave()
        if step == goal:
          self._measure(step, state)
    if step < last:
      self._log.say(
        f'step {step}: no better dev {self._config.best_by or "perplexity"} in '
        f'{self._config.patience} measurements (patience): the training ends'
      )
    if self._writer:
      with self._interruption.deferred():
        self._writer.finish()
    if self._divergence.message:
      self._log.say(self._divergence.message)

  def _update(
    self, state: TrainState, step: int, goal: int
  ) -> tuple[TrainState, int, bool]:
    """Makes updates up to `goal`, or until a host has to save or to stop.

    Returns the state, the number of its steps, and whether to stop.
    """
    previous, stop, save = None, False, False
    while step < goal and not stop and not save:
      requested = self._interruption.requested
      batch = self._trainer.batch(step)
      self._trainer.wait_for_program(batch, self._may_stop_now)
      if self._may_stop_now():
        break
      due = time.monotonic() - self._last_save > 60 * SAFETY_MINUTES
      state, sums = self._trainer.step(state, batch, requested, due)
      if previous is not None:
        stop, save = self._log_step(step, previous)
      previous = sums
      step += 1
      if self._writer:
        self._writer.check()
    if previous is not None:
      stop = self._log_step(step, previous, due=True)[0] or stop
    return state, step, stop

  def _log_step(self, step: int, sums: Sums, due: bool = False) -> tuple[bool, bool]:
    """Logs a step's sums; returns whether any host has to stop, and any to save."""
    sums = jax.device_get(sums)
    self._skips = self._skips + 1 if sums.skipped else 0
    if sums.skipped:
      batch = self._trainer.batch(step - 1)
      pairs = [int(pair) for pair in batch.pairs.flat if pair >= 0]
      self._log.write({'step': step, 'skipped_pairs': pairs})
      self._log.say(
        f'step {step}: loss or gradient is not finite, so it is skipped; '
        'metrics.jsonl lists the pairs of its batch'
      )
    if self._skips == MAX_SKIPS:
      newest = self._writer.newest() if self._writer else ''
      raise UserError(
        f'{MAX_SKIPS} steps in a row had no finite update, up to step {step}. {newest}'
      )
    record = self._meter.add(step, sums, due)
    if record:
      record['device'] = self._device
      if self._commit:
        record['commit'] = self._commit
    self._log.advance(record)
    if record and (warning := self._divergence.add(record)):
      self._log.say(warning)
    return bool(sums.requests[0]), bool(sums.requests[1])

  def _measure(self, step: int, state: TrainState) -> None:
    """Measures dev BLEU, if it is due, and dev perplexity.

    The record of perplexity comes last: it tells a resumed run that dev is measured.
    """
    params = self._trainer.devices.on_this_host(state.params)
    every = self._config.bleu_every_checkpoints * self._config.checkpoint_every_steps
    if self._bleu and (step == self._config.train_steps or step % every == 0):
      self._log.say(f'step {step}: measuring dev BLEU')
      begin = time.monotonic()
      bleu, samples = self._bleu(params)
      seconds = time.monotonic() - begin
      bleu_record: Record = {'step': step, 'dev_bleu': bleu, 'bleu_seconds': seconds}
      self._log.write(bleu_record)
      self._records.append(bleu_record)
      self._log.say(f'step {step}: dev BLEU {bleu:.2f}, greedy, in {seconds:.1f} s')
      self._log.show(step, samples)
    perplexity = self._perplexity(params)
    record: Record = {'step': step, 'dev_perplexity': perplexity}
    self._log.write(record)
    self._records.append(record)
    text = perplexity_text(perplexity, self._trainer.pieces, 3)
    self._log.say(f'step {step}: dev perplexity {text}')

  def _may_stop_now(self) -> bool:
    """Returns True if a signal came and no other hosts have to agree."""
    return self._is_one_host and self._interruption.requested
