"""Records of a training's steps, a warning if it diverges, and its log."""

import contextlib
import math
import socket
import sys
import time
from collections.abc import Iterable, Sequence

import numpy as np
from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter
from tqdm import tqdm

from transformer_jax.machine import files
from transformer_jax.runs.records import Record
from transformer_jax.runs.run import Run
from transformer_jax.training.step import Schedule, Sums

# Short enough to show steps, time left, loss and speed in 80 columns.
BAR = '{percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}<{remaining}{postfix}]'
TIMED = 20  # updates that are timed before the total is estimated
# A run has diverged if DIVERGED_RECORDS in a row lie DIVERGED_NATS above the best loss:
# the right tokens are e times less probable there. Otherwise a record's loss, a mean
# over many batches, varies by hundredths of a nat.
DIVERGED_NATS = 1.0  # per target token
DIVERGED_RECORDS = 5
# The loss gets worse if its mean over WINDOW updates exceeds the second window's by
# WORSE_NATS. Chance makes a smaller difference, even with small batches.
WINDOW, WORSE_NATS = 100, 0.1


def perplexity(nats: float) -> float:
  """Returns exp(nats) of a mean per token, capped so that its square is finite."""
  return math.exp(min(nats, 300.0))


class Meter:
  """Makes records, each of the steps since the one before.

  Args:
    rate: the learning rate of an update, counted from 0; skipped steps do not count.
    every: intervals in steps; a record is due at every multiple of each. One is the
      checkpoint interval, so a run resumed from a checkpoint has all earlier records.
    last: the last step, which has a record too.
    epoch: the number of steps of an epoch.
    records: of the steps before the first one added.
  """

  def __init__(
    self,
    rate: Schedule,
    every: tuple[int, ...],
    last: int,
    epoch: int,
    records: Sequence[Record],
  ):
    self._rate, self._every, self._last, self._epoch = rate, every, last, epoch
    skipped = [r['step'] for r in records if 'skipped_pairs' in r]
    self._skipped_in_all = len(skipped)
    self._clear()
    # Steps that were skipped since the last record belong to the next one.
    recorded = max((r['step'] for r in records if 'loss' in r), default=0)
    self._steps = self._skipped = sum(step > recorded for step in skipped)
    self.resume()

  def _clear(self) -> None:
    self._sums, self._steps, self._skipped, self._seconds = np.zeros(3), 0, 0, 0.0

  def resume(self) -> None:
    """Starts the clock: the time since the last add() does not count."""
    self._since = time.perf_counter()

  def add(self, step: int, sums: Sums, due: bool = False) -> Record | None:
    """Adds a step's sums; returns a record if one is due at this step, or by `due`.

    It returns none while all steps since the last record were skipped.
    """
    if sums.skipped:
      self._skipped += 1
      self._skipped_in_all += 1
    else:
      self._sums += [sums.loss, sums.negative_log_likelihood, sums.tokens]
    self._steps += 1
    now = time.perf_counter()
    self._seconds += now - self._since
    self._since = now
    due = due or step == self._last or not all(step % every for every in self._every)
    smoothed, plain, tokens = self._sums
    if not due or not tokens:
      return None
    record: Record = {
      'step': step,
      'epoch': round(step / self._epoch, 3),
      'loss': smoothed / tokens,
      'perplexity': perplexity(plain / tokens),
      'learning_rate': float(self._rate(step - 1 - self._skipped_in_all)),
      'gradient_norm': float(sums.gradient_norm),
      'target_tokens': int(tokens),
      'steps': self._steps,
      'skipped': self._skipped,
      'seconds': self._seconds,
    }
    if sums.skipped:
      del record['gradient_norm']  # it is not finite
    self._clear()
    return record


class Divergence:
  """Notices a loss that is finite, and yet worse than before or than guessing.

  Args:
    pieces: the size of the target vocabulary.

  Attributes:
    message: what is wrong now; '' if nothing is.
  """

  def __init__(self, pieces: int):
    self.message = ''
    self._best, self._best_step, self._high_records = math.inf, 0, 0
    self._guess, self._pieces = math.log(pieces), pieces
    self._means: list[float] = []  # of each WINDOW
    self._sum, self._steps = 0.0, 0  # of the window that is not full

  def add(self, record: Record) -> str | None:
    """Returns a warning if the run begins to diverge with this record, else None."""
    loss, steps = record['loss'], record.get('steps', 1)
    if loss < self._best:
      self._best, self._best_step = loss, record['step']
    is_high = loss > self._best + DIVERGED_NATS
    self._high_records = self._high_records + 1 if is_high else 0
    self._sum, self._steps = self._sum + loss * steps, self._steps + steps
    if self._steps >= WINDOW:
      self._means.append(self._sum / self._steps)
      self._sum, self._steps = 0.0, 0
    before, reason = self.message, self._find_reason()
    self.message = reason and f'step {record["step"]}: {reason}: this run has diverged'
    return self.message if self.message and not before else None

  def _find_reason(self) -> str:
    """Returns why the run has diverged; '' if it has not."""
    if self._high_records >= DIVERGED_RECORDS:
      return (
        f'the loss has been more than {DIVERGED_NATS} nats above its best, '
        f'{self._best:.3f} at step {self._best_step}, for {self._high_records} records'
      )
    _, *means = self._means or [0.0]  # without the first hundred updates
    if means and means[-1] > self._guess + DIVERGED_NATS:
      return (
        f'the loss, {means[-1]:.3f}, is worse than guessing {self._pieces:,} pieces'
      )
    if means and means[-1] > means[0] + WORSE_NATS:
      return (
        f'the loss, {means[-1]:.3f}, is worse than after the first {WINDOW} updates, '
        f'{means[0]:.3f}'
      )
    return ''


class Log:
  """Writes metrics.jsonl and TensorBoard events, and shows a progress bar."""

  def __init__(self, run: Run, start: int, train_steps: int, enabled: bool = True):
    """Opens the files of a training that goes on from step `start`.

    Records of later steps, which a killed process left, are removed.

    Args:
      enabled: whether to write and print: False on a host that is not the first.
    """
    self._run, self._start, self._total = run, start, train_steps
    self._enabled, self._files = enabled, contextlib.ExitStack()
    self._bar = tqdm(disable=True)
    self._begin = time.perf_counter()
    self._times: list[float] = []  # of the first updates
    if enabled:
      if run.metrics.is_file():
        earlier = [r for r in run.records() if r['step'] <= start]
        if start and not any(r['step'] == start and 'saved' in r for r in earlier):
          # A signal ended the process before it noted this checkpoint.
          earlier.append({'step': start, 'saved': True})
        lines = (files.as_json(record) + '\n' for record in earlier)
        files.write(run.metrics, ''.join(lines))
      self._file = self._files.enter_context(run.metrics.open('a'))
      self._events = _open_events(run, start)
      self._files.callback(self._events.close)

  def __enter__(self) -> 'Log':
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.close()
    with contextlib.suppress(OSError):  # writing has raised it already
      self._files.close()

  def say(self, message: str) -> None:
    """Prints a line, above a progress bar; any thread may call it."""
    if self._enabled:
      tqdm.write(message, file=sys.stderr)

  def begin(self) -> None:
    """Starts the progress bar; call it when the first step is compiled."""
    seconds = time.perf_counter() - self._begin
    origin = f'going on from step {self._start}: ' if self._start else ''
    self.say(f'{origin}the first step begins after {seconds:.0f} s')
    self._bar = tqdm(
      initial=self._start,
      total=self._total,
      bar_format=BAR,
      disable=None if self._enabled else True,  # None: where stderr is no terminal
    )

  def advance(self, record: Record | None) -> None:
    """Counts one step, and writes the record of the last steps, unless it is None."""
    self._bar.update()
    if len(self._times) <= TIMED:
      self._times.append(time.perf_counter())
      if len(self._times) > TIMED:
        # The median, since some updates wait for their programs.
        seconds = np.median(np.diff(self._times)) * (self._total - self._start)
        self.say(f'the updates will take about {seconds / 60:,.0f} min in all')
    if record is None:
      return
    speed = record['target_tokens'] / record['seconds']
    self.write(record)
    loss, rate = f'loss {record["loss"]:.4f}', f'{speed:,.0f} target tokens/s'
    self._bar.set_postfix_str(f'{loss}, {rate}')
    if self._bar.disable:
      step_seconds = record['seconds'] / record['steps']
      minutes = (self._total - record['step']) * step_seconds / 60
      self.say(
        f'step {record["step"]}/{self._total} {loss} {rate}, {minutes:.0f} min left'
      )

  def write(self, record: Record) -> None:
    """Writes a record; its numbers are an event as well."""
    if not self._enabled:
      return
    numbers = {k: v for k, v in record.items() if isinstance(v, int | float)}
    del numbers['step']
    if 'target_tokens' in record:
      speed = record['target_tokens'] / record['seconds']
      numbers['target_tokens_per_second'] = speed
    values = [Summary.Value(tag=k, simple_value=v) for k, v in numbers.items()]
    self._append(record)
    self._write_event(record['step'], Summary(value=values))

  def show(self, step: int, samples: Iterable[tuple[str, str, str]]) -> None:
    """Prints sources, translations and references; they are a text event as well."""
    if not self._enabled:
      return
    names = 'source', 'translation', 'reference'
    texts = [
      '\n'.join(f'  {name}: {line}' for name, line in zip(names, sample, strict=True))
      for sample in samples
    ]
    self.say('\n\n'.join(texts))
    self._write_event(step, summary.text('dev_translations', '\n\n'.join(texts)))

  def log_checkpoint(self, step: int) -> None:
    """Notes that a step's checkpoint is finished."""
    self._append({'step': step, 'saved': True})
    self.say(f'step {step}: checkpoint saved')

  def _append(self, record: Record) -> None:
    with files.with_filename(self._run.metrics):
      self._file.write(files.as_json(record) + '\n')
      self._file.flush()

  def _write_event(self, step: int, shown: Summary) -> None:
    event = Event(wall_time=time.time(), step=step, summary=shown)
    with files.with_filename(self._run.workdir / 'events'):
      self._events.write(event.SerializeToString())
      self._events.flush()


def _open_events(run: Run, start: int) -> RecordWriter:
  """Opens a new file of events for TensorBoard.

  Not tensorboardX's SummaryWriter: it writes in a thread, and once a full disk has
  ended that, add_scalar waits for ever.
  """
  folder = run.workdir / 'events'
  folder.mkdir(exist_ok=True)
  now = time.time()
  name = f'events.out.tfevents.{now:.0f}.{socket.gethostname()}.step-{start}'
  # At START TensorBoard drops what an earlier process logged from that step on.
  restart = SessionLog(status=SessionLog.START)
  events = [
    Event(wall_time=now, file_version='brain.Event:2'),
    Event(wall_time=now, step=start + 1, session_log=restart),
  ]
  writer = RecordWriter(str(folder / name))
  for event in events:
    writer.write(event.SerializeToString())
  return writer
