"""What a training tells: metrics.jsonl, TensorBoard events and a progress bar."""

import contextlib
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

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


class Unlogged(UserError):
  """Metrics or events could not be written: the disk is full, for example."""


class Log:
  """The log of a training process, which goes on from step `start`.

  A record is a line of metrics.jsonl. The numbers of training and dev records are also
  TensorBoard events. Any method that writes a record may raise Unlogged, but saved()
  raises OSError: checkpoint.Writer reports that.
  """

  def __init__(self, run: Run, start: int, train_steps: int):
    self._run, self._start, self._total = run, start, train_steps
    # Makes the sentence that Unlogged ends with.
    self.last_words: Callable[[], str] = str
    self._bar = tqdm(disable=True)
    self._terminal = sys.stderr.isatty()
    self._measured: set[str] = set()
    self._lock = threading.Lock()  # checkpoints are finished in another thread
    with self._writing():
      self._cut_back()
      self._file = run.metrics.open('a')
      self._events = _events(run, start)
    self._begin = time.perf_counter()

  def __enter__(self) -> 'Log':
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.close()
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

  def note_start(self) -> None:
    """Notes that the checkpoint of `start` is finished, if a kill came before that."""
    if self._run.newest_saved() < self._start:
      with self._writing():
        self._append({'step': self._start, 'saved': True})

  def compiling(self, shapes: int) -> None:
    self.say(f'compiling for {shapes} shapes of batches; a step waits for its own')

  def started(self) -> None:
    """Begins the progress bar of the steps, when the first one is compiled."""
    if self._start:
      print(f'going on from step {self._start}', file=sys.stderr)
    seconds = time.perf_counter() - self._begin
    print(f'the first step begins after {seconds:.0f} s', file=sys.stderr, flush=True)
    self._bar = tqdm(
      initial=self._start,
      total=self._total,
      bar_format=BAR,
      disable=not self._terminal,
    )

  def advance(self, record: dict | None) -> None:
    """Counts one step; `record` is about the last steps, if there is to be one."""
    self._bar.update()
    if record is None:
      return
    self._write(record)
    speed = record['target_tokens'] / record['seconds']
    self._bar.set_postfix_str(
      f'loss {record["loss"]:.3f}, {speed:,.0f} target tokens/s'
    )
    if not self._terminal:
      each = record['seconds'] / record['steps']
      left = (self._total - record['step']) * each / 60
      print(
        f'step {record["step"]}/{self._total} loss {record["loss"]:.4f} '
        f'{speed:,.0f} target tokens/s, {left:.0f} min left',
        file=sys.stderr,
        flush=True,
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
    """Notes that a step's checkpoint is finished; any thread may call it."""
    with files.named(self._run.metrics):
      self._append({'step': step, 'saved': True})
    self.say(f'step {step}: checkpoint saved')

  def skipped(self, step: int, pairs: list[int]) -> None:
    """Tells of a step that changed nothing, and lists its batch's sentence pairs."""
    with self._writing():
      self._append({'step': step, 'skipped_pairs': pairs})
    some = ', '.join(str(pair) for pair in pairs[:5])
    self.say(
      f'step {step}: loss or gradient is not finite, so it is skipped; its batch: '
      f'pairs {some} ... ({len(pairs)} in {self._file.name})'
    )

  def say(self, message: str) -> None:
    tqdm.write(message, file=sys.stderr)

  def _append(self, record: dict) -> None:
    with self._lock:
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
      print(f'the checkpoint of step {saved} is gone; its metrics are kept as {copy}')
    kept = [r for r in self._run.records() if r['step'] <= self._start]
    files.write(path, ''.join(files.as_json(record) + '\n' for record in kept))

  def _write(self, record: dict) -> None:
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


class Silent(Log):
  """The log of a host that is not the first: it neither writes nor prints."""

  def __init__(self) -> None:
    pass

  def __exit__(self, *_: object) -> None:
    pass

  def note_start(self) -> None:
    pass

  def compiling(self, shapes: int) -> None:
    pass

  def started(self) -> None:
    pass

  def advance(self, record: dict | None) -> None:
    pass

  def measuring(self, what: str) -> None:
    pass

  def dev(self, step: int, perplexity: float) -> None:
    pass

  def dev_bleu(self, step: int, bleu: float, seconds: float) -> None:
    pass

  def saved(self, step: int) -> None:
    pass

  def skipped(self, step: int, pairs: list[int]) -> None:
    pass

  def say(self, message: str) -> None:
    pass


def _events(run: Run, start: int) -> RecordWriter:
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
  """A text as TensorBoard shows it: Markdown, of which this is a block of code."""
  block = ''.join(f'    {line}\n' for line in text.splitlines())
  plugin = SummaryMetadata.PluginData(plugin_name='text')
  return Summary.Value(
    tag=tag,
    metadata=SummaryMetadata(plugin_data=plugin),
    tensor=TensorProto(dtype='DT_STRING', string_val=[block.encode()]),
  )
