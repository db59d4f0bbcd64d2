"""Metrics are never double; events are the same; the bar and a full disk are seen."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tensorboardX.proto.event_pb2 import Event

from toy.runs import Toy
from transformer_jax.runs.run import Run
from transformer_jax.training.log import Log, Silent, Unlogged


def records(run: Run) -> list[dict]:
  return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def record(step: int) -> dict:
  return {'step': step, 'loss': 1.5, 'target_tokens': 10, 'steps': 1, 'seconds': 0.5}


def log_steps(run: Run, start: int, end: int) -> None:
  with Log(run, start, 9) as log:
    log.note_start()
    log.compiling(2)
    log.started()
    for step in range(start + 1, end + 1):
      log.advance(record(step))
      log.advance(None)


@pytest.mark.parametrize('checkpoint', [3, 0])
def test_metrics_are_cut_back_on_resume(checkpoint: int, tmp_path, capsys):
  """Killed after step 5, and after the last checkpoint or before the first."""
  run = Run(tmp_path)
  assert run.records() == []
  log_steps(run, 0, 5)
  log_steps(run, checkpoint, 9)
  steps = [r['step'] for r in records(run) if 'saved' not in r]
  assert steps == list(range(1, 10)) and run.newest_saved() == checkpoint
  assert not list(tmp_path.glob('metrics.to-*'))
  assert ('going on from step 3' in capsys.readouterr().err) == (checkpoint == 3)


@pytest.mark.parametrize(
  'torn', ['{"step": 4, "lo', '{', '{"step": 2', '\x00\x00\n', '\n']
)
def test_a_torn_last_line_is_left_out(torn: str, tmp_path: pathlib.Path):
  run = Run(tmp_path)
  log_steps(run, 0, 3)
  with run.metrics.open('a') as file:
    file.write(torn)
  log_steps(run, 3, 5)
  assert [r['step'] for r in records(run)] == [1, 2, 3, 3, 4, 5]


def test_dev_perplexity_is_logged(tmp_path: pathlib.Path, capsys):
  run = Run(tmp_path)
  with Log(run, 0, 2) as log:
    log.dev(2, 3.5)
  assert records(run) == [{'step': 2, 'dev_perplexity': 3.5}]
  assert 'step 2: dev perplexity 3.500' in capsys.readouterr().err
  assert [scalars(e) for e in events(run)[1:]] == [{'step': 2, 'dev_perplexity': 3.5}]


def test_tensorboard_gets_the_config_bleu_and_speed(tmp_path: pathlib.Path):
  run = Run(tmp_path)
  (tmp_path / 'config.json').write_text('{"beam": 4}')
  with Log(run, 0, 2) as log:
    log.advance(record(1))
    log.dev_bleu(1, 20.5, 0.25)
  _, config, steps, bleu = events(run)
  (text,) = config.summary.value
  assert text.tag == 'config' and text.metadata.plugin_data.plugin_name == 'text'
  assert text.tensor.string_val[0] == b'    {"beam": 4}\n'
  assert scalars(steps)['target_tokens_per_second'] == 20
  assert scalars(bleu) == {'step': 1, 'dev_bleu': 20.5, 'bleu_seconds': 0.25}
  assert records(run)[1] == {'step': 1, 'dev_bleu': 20.5, 'bleu_seconds': 0.25}


def test_metrics_of_a_checkpoint_that_is_gone_are_kept(tmp_path: pathlib.Path, capsys):
  """What the newest one explains is never cut; from another thread as well."""
  run = Run(tmp_path)
  with Log(run, 0, 9) as log:
    for step in range(1, 7):
      log.advance(record(step))
      if step in (2, 4):
        saving = threading.Thread(target=log.saved, args=(step,))
        saving.start()
        saving.join()
  whole = run.metrics.read_text()
  assert run.newest_saved() == 4
  log_steps(run, 4, 6)
  assert (
    not list(tmp_path.glob('metrics.to-*')) and 'gone' not in capsys.readouterr().out
  )
  log_steps(run, 2, 3)
  (copy,) = tmp_path.glob('metrics.to-4.*.jsonl')
  assert copy.read_text() == whole and run.newest_saved() == 2
  said = capsys.readouterr().out
  assert f'the checkpoint of step 4 is gone; its metrics are kept as {copy}' in said


def test_metrics_are_json(tmp_path: pathlib.Path):
  """Which has neither NaN nor infinity: they are null there."""
  run = Run(tmp_path)
  with Log(run, 0, 9) as log:
    log.advance(record(1) | {'learning_rate': math.inf})
    log.dev(1, math.nan)
  log_steps(run, 2, 2)
  assert 'NaN' not in run.metrics.read_text()
  first, dev = (r for r in records(run) if 'saved' not in r)
  assert first['learning_rate'] is dev['dev_perplexity'] is None


# TensorBoard


def events(run: Run) -> list[Event]:
  """Of all files in the order in which TensorBoard reads them, by their names."""
  found = []
  for path in sorted((run.workdir / 'events').glob('*tfevents*')):
    content = path.read_bytes()
    while content:
      (length,) = struct.unpack('<Q', content[:8])
      found.append(Event.FromString(content[12 : 12 + length]))
      content = content[16 + length :]
  return found


def scalars(event: Event) -> dict[str, float]:
  return {'step': event.step} | {v.tag: v.simple_value for v in event.summary.value}


def test_events_are_the_records(tmp_path: pathlib.Path):
  """And those after the checkpoint that is gone on from are not shown."""
  run = Run(tmp_path)
  log_steps(run, 0, 5)
  first, *rest = events(run)
  assert first.file_version == 'brain.Event:2'
  shown = lambda step: record(step) | {'target_tokens_per_second': 20}
  assert [scalars(event) for event in rest] == [shown(step) for step in range(1, 6)]
  assert all(abs(event.wall_time - time.time()) < 60 for event in rest)
  log_steps(run, 3, 7)
  version, begin, *rest = events(run)[6:]
  assert version.file_version and (begin.step, begin.session_log.status) == (4, 1)
  assert [scalars(event) for event in rest] == [shown(step) for step in range(4, 8)]


# A full disk


def fill(folder: pathlib.Path, name: str) -> None:
  """From now on there is no room for what this process writes to a file there."""
  full = os.open('/dev/full', os.O_WRONLY)
  for link in pathlib.Path('/proc/self/fd').iterdir():
    if link.is_symlink() and os.readlink(link).startswith(str(folder / name)):
      os.dup2(full, int(link.name))
      os.close(full)
      return
  raise FileNotFoundError(name)


@pytest.mark.parametrize('name', ['metrics.jsonl', 'events/'])
@pytest.mark.parametrize('what', ['record', 'dev', 'skipped'])
def test_a_full_disk_is_loud(name: str, what: str, tmp_path: pathlib.Path):
  run = Run(tmp_path)
  with pytest.raises(Unlogged) as caught, Log(run, 0, 9) as log:
    log.last_words = lambda: 'The newest checkpoint: 4'
    log.advance(record(1))
    fill(tmp_path, name)
    if what == 'record':
      log.advance(record(2))
    elif what == 'dev':
      log.dev(2, 3.5)
    else:
      log.skipped(2, [7])
      log.advance(record(2))
  message = str(caught.value)
  assert message.startswith(f'{tmp_path}: metrics.jsonl or events could not be written')
  assert message.endswith('No space left on device. The newest checkpoint: 4')
  assert run.records()[0] == record(1)


@pytest.mark.slow
def test_a_full_disk_ends_training(tmp_path: pathlib.Path):
  """In one line, with the checkpoint to go on from."""
  toy = Toy(tmp_path, train_steps=5)
  begun = toy.train()
  assert begun.code() == 0, begun.said
  metrics = toy.workdir / 'metrics.jsonl'
  metrics.rename(tmp_path / 'metrics.jsonl')
  metrics.symlink_to('/dev/full')
  full = Toy(tmp_path, train_steps=10).train()
  assert full.code() == 1 and 'Traceback' not in full.said, full.said
  assert full.said.splitlines()[-1] == (
    f'{toy.workdir}: metrics.jsonl or events could not be written: [Errno 28] No space '
    f'left on device. The newest checkpoint: {toy.checkpoints / "5"}'
  )


# On a terminal


@contextlib.contextmanager
def terminal() -> Iterator[Callable[[], str]]:
  """Makes stderr a terminal of 80 columns; what came there since it was last asked."""
  ours, theirs = pty.openpty()
  fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('4H', 24, 80, 0, 0))

  def shown() -> str:
    found = b''
    while select.select([ours], [], [], 0.5)[0]:  # it comes piece by piece
      found += os.read(ours, 10_000)
    return found.decode()

  with os.fdopen(theirs, 'w', encoding='utf-8') as file:
    with contextlib.redirect_stderr(file):
      yield shown
  os.close(ours)


def test_a_bar_on_a_terminal(tmp_path: pathlib.Path):
  """Steps, time left, loss and speed, all within the line of the longest of runs."""
  row = {'loss': 1.5, 'target_tokens': 2_345_678, 'steps': 1, 'seconds': 1.0}
  with terminal() as shown, Log(Run(tmp_path), 123_450, 300_000) as log:
    log.compiling(2)
    assert 'compiling for 2 shapes of batches; a step waits for its own' in shown()
    log.started()
    assert 'going on from step 123450' in shown()
    log.advance(None)
    assert '123451/300000' in shown()
    log.advance(row | {'step': 123_452})
    line = shown().split('\r')[-1]
    assert re.fullmatch(
      r' 41%\|.+\| 123452/300000 \[00:\d\d<\d+:\d\d(:\d\d)?, loss 1\.500, '
      r'2,345,678 target tokens/s\]',
      line,
    )
    assert len(line) <= 80
    log.say('a word')
    assert 'a word\r\n' in shown()


def test_no_bar_but_lines_elsewhere(tmp_path: pathlib.Path, capsys):
  log_steps(Run(tmp_path), 0, 1)
  said = capsys.readouterr().err
  assert 'step 1/9 loss 1.5000 20 target tokens/s, 0 min left' in said
  assert '%|' not in said and '\r' not in said


def test_an_error_before_the_first_step_is_not_hidden(tmp_path: pathlib.Path):
  with pytest.raises(MemoryError, match='of the device'), Log(Run(tmp_path), 0, 2):
    raise MemoryError('of the device')


def test_a_skipped_update_stands_in_the_metrics(tmp_path: pathlib.Path, capsys):
  run = Run(tmp_path)
  with Log(run, 0, 2) as log:
    log.skipped(1, [7, 8, 9, 10, 11, 12])
  assert run.records() == [{'step': 1, 'skipped_pairs': [7, 8, 9, 10, 11, 12]}]
  said = capsys.readouterr().err
  assert 'step 1: loss or gradient is not finite, so it is skipped; its' in said
  assert 'pairs 7, 8, 9, 10, 11 ... (6 in' in said


def test_other_hosts_are_silent(capsys):
  with Silent() as log:
    log.note_start()
    log.compiling(2)
    log.started()
    log.advance(record(1))
    log.dev(1, 2.0)
    log.saved(1)
    log.skipped(1, [1])
    log.say('a word')
    log.measuring('dev BLEU')
    log.dev_bleu(1, 3.0, 0.1)
  assert capsys.readouterr() == ('', '')
  own = {name for name in vars(Log) if not name.startswith('_')}
  assert own <= vars(Silent).keys(), 'another host would have no file to write to'
