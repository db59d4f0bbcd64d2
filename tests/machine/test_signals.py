"""A signal ends a process at once, or when it has saved; always with one exit code."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from transformer_jax.machine.signals import EXIT_CODE, SAME, SIGNALS

ROOT = pathlib.Path(__file__).parents[2]

START = """
import hashlib, sys, threading, time
from transformer_jax.machine.signals import Interruption
told = Interruption().install()
told.last_words = lambda: 'The newest is 7.'
"""
READY = "print('ready', flush=True)\n"
# In C from end to end: no bytecode is run, so no handler of Python's.
BUSY = READY + 'hashlib.pbkdf2_hmac("sha256", b"", b"", 400_000_000)\n'
SAVE = """
with told.deferred():
  print('ready', flush=True)
  while not told.asked:
    time.sleep(0.01)
  print('saving', flush=True)
  time.sleep({seconds})
  print('saved', flush=True)
told.leave()
"""


def started(code: str) -> subprocess.Popen:
  process = subprocess.Popen(
    [sys.executable, '-c', START + code],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'ready\n'
  return process


@pytest.mark.parametrize('number', SIGNALS)
def test_a_process_in_a_long_call_is_gone_at_once(number: signal.Signals):
  """As while compiling: what the main thread does need not come to an end."""
  process = started(BUSY)
  time.sleep(0.1)
  begin = time.monotonic()
  process.send_signal(number)
  _, err = process.communicate(timeout=30)
  assert time.monotonic() - begin < 2
  assert process.returncode == EXIT_CODE
  assert err == 'stopped by a signal. The newest is 7.\n'


def test_what_is_to_be_saved_is_saved_first():
  process = started(SAVE.format(seconds=0.2))
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=30)
  assert out == 'saving\nsaved\n'
  assert err == 'stopped by a signal. The newest is 7.\n'
  assert process.returncode == EXIT_CODE


def test_a_second_signal_ends_it_at_once():
  process = started(SAVE.format(seconds=60))
  process.send_signal(signal.SIGUSR1)
  assert process.stdout.readline() == 'saving\n'
  time.sleep(SAME + 0.1)
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=5)
  assert (out, err, process.returncode) == ('', '', EXIT_CODE)


def test_the_same_signal_sent_twice_is_one():
  """To the process and to its group, as `timeout` does it."""
  process = started(SAVE.format(seconds=0.3))
  process.send_signal(signal.SIGTERM)
  assert process.stdout.readline() == 'saving\n'
  process.send_signal(signal.SIGTERM)
  out, _ = process.communicate(timeout=30)
  assert out == 'saved\n' and process.returncode == EXIT_CODE


def test_the_end_waits_for_what_may_not_be_cut_off():
  """And a second signal does not."""
  wait = "told.last_words = lambda: time.sleep({}) or 'Written.'\n" + BUSY
  process = started(wait.format(0.4))
  process.send_signal(signal.SIGTERM)
  assert process.communicate(timeout=30)[1] == 'stopped by a signal. Written.\n'
  process = started(wait.format(60))
  process.send_signal(signal.SIGTERM)
  time.sleep(SAME + 0.3)
  process.send_signal(signal.SIGTERM)
  assert process.communicate(timeout=5)[1] == ''
  assert process.returncode == EXIT_CODE


def test_its_words_come_out_while_standard_error_is_elsewhere():
  """As while a vocabulary is learnt."""
  elsewhere = 'import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n'
  process = started(elsewhere + BUSY)
  process.send_signal(signal.SIGTERM)
  err = process.communicate(timeout=30)[1]
  assert err == 'stopped by a signal. The newest is 7.\n'


@pytest.mark.parametrize('code', [BUSY, SAVE.format(seconds=0)])
def test_nobody_reads_its_words(code: str):
  """As of `2>&1 | tee log` at Ctrl-C, which ends tee too."""
  process = started(code)
  process.stderr.close()
  process.send_signal(signal.SIGINT)
  process.communicate(timeout=30)
  assert process.returncode == EXIT_CODE


def test_no_signal_no_difference():
  process = started(READY + 'with told.deferred():\n  pass\nsys.exit(told.asked)')
  assert process.communicate(timeout=30) == ('', '')
  assert process.returncode == 0


# Our commands, from their first moments on


def mapped(process: subprocess.Popen, library: str) -> bool:
  return library in pathlib.Path(f'/proc/{process.pid}/maps').read_text()


def listens(process: subprocess.Popen) -> bool:
  status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
  caught = next(line for line in status.splitlines() if line.startswith('SigCgt'))
  return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)


@pytest.mark.parametrize(
  ('script', 'after'),
  [(script, '') for script in ('train', 'evaluate', 'translate', 'sweep')]
  + [('train', library) for library in ('numpy', 'jaxlib', 'tensorstore')]
  + [('evaluate', 'jaxlib'), ('translate', 'jaxlib')],
)
def test_a_signal_is_heard_before_the_imports(
  script: str, after: str, tmp_path: pathlib.Path
):
  """As soon as a library is there, of which numpy is the first, or before any."""
  command = [sys.executable, '-m', f'scripts.{script}', f'--workdir={tmp_path}/run']
  if script == 'train':
    command += ['--config=configs/quickstart.py', f'--data_dir={tmp_path}/data']
  process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
  heard = False
  while not (mapped(process, after) if after else heard):
    assert process.poll() is None
    # In this order: a process that goes on between the two can only begin to listen.
    loading, heard = mapped(process, 'numpy'), listens(process)
    assert heard or not loading
    time.sleep(0.002)
  process.terminate()
  _, err = process.communicate(timeout=30)
  last = err.removeprefix('loading JAX\n')
  assert (process.returncode, last) == (EXIT_CODE, 'stopped by a signal.\n')
  assert not [*tmp_path.iterdir()]
