"""What a training tells: records of its steps, a watch on the loss, and the log."""

import contextlib
import math
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.record_writer import RecordWriter
from tqdm import tqdm

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run

# Short enough to show steps, time left, loss and speed in 80 columns.
BAR = '{percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}<{remaining}{postfix}]'


def perplexity(nats: float) -> float:
  """exp(nats) of a mean per token, capped where math.exp() would overflow."""
  return math.exp(min(nats, 700.0))


class Values(NamedTuple):
  """One step's sums over its target tokens, as numbers of the host."""

  loss: float  # nats, label-smoothed
  negative_log_likelihood: float  # nats
  tokens: int
  gradient_norm: float
  skipped: int  # 1 if loss or gradient's norm was not finite: nothing was changed


class Meter:
  """Makes records, each about the steps since the one before.

  Args:
    rate: the learning rate of an update, counted from 0; skipped steps do not count.
    every: intervals in steps; a record is due at every multiple of each. One is the
      checkpoint interval, so a run resumed from a checkpoint has all earlier records.
    last: the last step, which has a record too.
    epoch: the number of steps of an epoch.
    skipped: how many steps have been skipped before the first one added.
    unrecorded: how many of these no record has counted yet.
  """

  def __init__(
    self,
    rate: Callable[[int], float],
    every: tuple[int, ...],
    last: int,
    epoch: int,
    skipped: int,
    unrecorded: int,
  ):
    self._skipped_in_all = skipped
    self._rate, self._every, self._last, self._epoch = rate, every, last, epoch
    self._clear()
    self._steps = self._skipped = unrecorded
    self.resume()

  def _clear(self) -> None:
    self._sums, self._steps, self._skipped, self._seconds = np.zeros(3), 0, 0, 0.0

  def resume(self) -> None:
    """Starts the clock: the time since the last add() does not count."""
    self._since = time.perf_counter()

  def add(self, step: int, values: Values, due: bool = False) -> dict | None:
    """Adds a step; returns a record when there is one at this step, or it is `due`.

    While all steps since the last record were skipped, there is none.
    """
    if values.skipped:
      self._skipped += 1
      self._skipped_in_all += 1
    else:
      self._sums += [values.loss, values.negative_log_likelihood, values.tokens]
    self._steps += 1
    now = time.perf_counter()
    self._seconds += now - self._since
    self._since = now
    due = due or step == self._last or not all(step % every for every in self._every)
    smoothed, plain, tokens = self._sums
    if not due or not tokens:
      return None
    record = {
      'step': step,
      'epoch': round(step / self._epoch, 3),
      'loss': smoothed / tokens,
      'perplexity': perplexity(plain / tokens),
      'learning_rate': float(self._rate(step - 1 - self._skipped_in_all)),
      'gradient_norm': float(values.gradient_norm),
      'target_tokens': int(tokens),
      'steps': self._steps,
      'skipped': self._skipped,
      'seconds': self._seconds,
    }
    if values.skipped:
      del record['gradient_norm']  # JSON has neither NaN nor infinity
    self._clear()
    return record


class Divergence:
  """Notices a loss that has risen and stays high, though it is finite.

  A record's loss is a mean over many batches, which varies by hundredths of a nat. One
  that is `far` above the best gives the right words exp(far) times less probability.
  """

  def __init__(self, far: float = 1.0, records: int = 5):
    """The run has diverged if `records` losses in a row are `far` nats above the best.

    Losses are in nats per token.
    """
    self._far, self._records = far, records
    self._best, self._at, self._above = math.inf, 0, 0

  def add(self, record: dict) -> str | None:
    """A sentence when the run has diverged, else None; once per `records` records."""
    if record['loss'] < self._best:
      self._best, self._at = record['loss'], record['step']
    self._above = self._above + 1 if record['loss'] > self._best + self._far else 0
    if not self._above or self._above % self._records:
      return None
    return (
      f'step {record["step"]}: the loss, {record["loss"]:.3f}, has been more than '
      f'{self._far} nats above its best, {self._best:.3f} at step {self._at}, for '
      f'{self._above} records: this run has diverged'
    )


class Unlogged(UserError):
  """Metrics or events could not be written: the disk is full, for example."""


class Log:
  """What a training process tells: metrics.jsonl, TensorBoard events, a progress bar.

  A record is a line of metrics.jsonl (runs/metrics.py). The numbers of training and dev
  records are also TensorBoard events. Any method that writes a record may raise
  Unlogged, but saved() raises OSError: checkpoint.Writer reports that.

  Attributes:
    last_words: makes the sentence that Unlogged ends with.
  """

  def __init__(self, run: Run, start: int, train_steps: int, enabled: bool = True):
    """Opens the files of a training that goes on from step `start`.

    `enabled`: else nothing is written or printed, as on a host that is not the first.
    """
    self._run, self._start, self._total, self._enabled = (
      run,
      start,
      train_steps,
      enabled,
    )
    self.last_words: Callable[[], str] = str
    self._bar = tqdm(disable=True)
    self._terminal = sys.stderr.isatty()
    self._measured: set[str] = set()
    self._begin = time.perf_counter()
    if enabled:
      with self._writing():
        self._cut_back()
        self._file = run.metrics.open('a')
        self._events = _open_events(run, start)

  def __enter__(self) -> 'Log':
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.close()
    if self._enabled:
      with contextlib.suppress(OSError):  # Unlogged has told of it
        self._file.close()
      with contextlib.suppress(OSError):
        self._events.close()

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      raise Unlogged(
        f'{self._run.workdir}: metrics.jsonl or events could not be written: {error}. '
        f'{self.last_words()}'
      ) from error

  def say(self, message: str) -> None:
    """Prints a line, above the progress bar if there is one; any thread may call it."""
    if self._enabled:
      tqdm.write(message, file=sys.stderr)

  def begin(self) -> None:
    """Begins the progress bar of the steps, when the first one is compiled."""
    seconds = time.perf_counter() - self._begin
    on = f'going on from step {self._start}: ' if self._start else ''
    self.say(f'{on}the first step begins after {seconds:.0f} s')
    self._bar = tqdm(
      initial=self._start,
      total=self._total,
      bar_format=BAR,
      disable=not (self._terminal and self._enabled),
    )

  def advance(self, record: dict | None) -> None:
    """Counts one step; `record` is about the last steps, if there is to be one."""
    self._bar.update()
    if record is None:
      return
    self._write(record)
    speed = record['target_tokens'] / record['seconds']
    loss, rate = f'loss {record["loss"]:.4f}', f'{speed:,.0f} target tokens/s'
    self._bar.set_postfix_str(f'{loss}, {rate}')
    if not self._terminal:
      each = record['seconds'] / record['steps']
      left = (self._total - record['step']) * each / 60
      self.say(
        f'step {record["step"]}/{self._total} {loss} {rate}, {left:.0f} min left'
      )

  def measuring(self, what: str) -> None:
    """Says that `what` is measured, and is compiled for, the first time it is."""
    if what not in self._measured:
      self._measured.add(what)
      self.say(f'measuring {what} for the first time: compiling')

  def dev(self, step: int, perplexity: float) -> None:
    self._write({'step': step, 'dev_perplexity': perplexity})
    self.say(f'step {step}: dev perplexity {perplexity:.3f}')

  def dev_bleu(self, step: int, bleu: float, seconds: float) -> None:
    self._write({'step': step, 'dev_bleu': bleu, 'bleu_seconds': seconds})
    self.say(f'step {step}: dev BLEU {bleu:.2f}, greedy, in {seconds:.1f} s')

  def saved(self, step: int) -> None:
    """Notes that a step's checkpoint is finished."""
    with files.named(self._run.metrics):
      self._append({'step': step, 'saved': True})
    self.say(f'step {step}: checkpoint saved')

  def note_start(self) -> None:
    """Notes that the checkpoint of `start` is finished, if a kill came before that."""
    if self._enabled and self._run.newest_saved() < self._start:
      with self._writing():
        self._append({'step': self._start, 'saved': True})

  def skipped(self, step: int, pairs: list[int]) -> None:
    """Tells of a step that changed nothing, and lists its batch's sentence pairs."""
    with self._writing():
      self._append({'step': step, 'skipped_pairs': pairs})
    some = ', '.join(str(pair) for pair in pairs[:5])
    self.say(
      f'step {step}: loss or gradient is not finite, so it is skipped; its batch: '
      f'pairs {some} ... ({len(pairs)} in {self._run.metrics})'
    )

  def _append(self, record: dict) -> None:
    if self._enabled:
      self._file.write(files.as_json(record) + '\n')
      self._file.flush()

  def _cut_back(self) -> None:
    """Removes the records of steps after `start`, which a killed process left.

    If one of them notes a saved checkpoint, that checkpoint is now gone or damaged. A
    copy of the whole file is then kept.
    """
    path, saved = self._run.metrics, self._run.newest_saved()
    if not path.is_file():
      return
    if saved > self._start:
      copy = path.with_name(f'metrics.to-{saved}.{time.time():.0f}.jsonl')
      shutil.copy(path, copy)
      self.say(f'the checkpoint of step {saved} is gone; its metrics: {copy}')
    kept = [r for r in self._run.records() if r['step'] <= self._start]
    files.write(path, ''.join(files.as_json(record) + '\n' for record in kept))

  def _write(self, record: dict) -> None:
    """Writes a record, and its numbers as events."""
    if not self._enabled:
      return
    words = 'step', 'device', 'commit'
    scalars = {key: value for key, value in record.items() if key not in words}
    if 'target_tokens' in record:
      speed = record['target_tokens'] / record['seconds']
      scalars['target_tokens_per_second'] = speed
    values = [Summary.Value(tag=k, simple_value=v) for k, v in scalars.items()]
    summary = Summary(value=values)
    event = Event(wall_time=time.time(), step=record['step'], summary=summary)
    with self._writing():
      self._append(record)
      self._events.write(event.SerializeToString())
      self._events.flush()


def _open_events(run: Run, start: int) -> RecordWriter:
  """Opens a new file of events for TensorBoard, which begins with the run's config.

  Not by tensorboardX's SummaryWriter: it writes in a thread, and once a full disk has
  ended that, add_scalar waits for ever.
  """
  folder = run.workdir / 'events'
  folder.mkdir(exist_ok=True)
  now = time.time()
  name = f'events.out.tfevents.{now:.0f}.{socket.gethostname()}.step-{start}'
  file = RecordWriter(str(folder / name))
  heads = [Event(wall_time=now, file_version='brain.Event:2')]
  if start:  # TensorBoard drops what an earlier process logged after this step
    begin = SessionLog(status=SessionLog.START)
    heads.append(Event(wall_time=now, step=start + 1, session_log=begin))
  config = run.workdir / 'config.json'
  if config.is_file():
    about = Summary(value=[_text('config', config.read_text())])
    heads.append(Event(wall_time=now, step=start, summary=about))
  for head in heads:
    file.write(head.SerializeToString())
  return file


def _text(tag: str, text: str) -> Summary.Value:
  """Returns a text for TensorBoard, which shows Markdown: a block of code."""
  block = ''.join(f'    {line}\n' for line in text.splitlines())
  plugin = SummaryMetadata.PluginData(plugin_name='text')
  return Summary.Value(
    tag=tag,
    metadata=SummaryMetadata(plugin_data=plugin),
    tensor=TensorProto(dtype='DT_STRING', string_val=[block.encode()]),
  )
