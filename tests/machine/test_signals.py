"""A signal ends a process at once or after its checkpoint, with one exit code."""

import pathlib
import signal
import subprocess
import sys

import pytest

from transformer_jax.machine.signals import EXIT_CODE, SIGNALS

ROOT = pathlib.Path(__file__).parents[2]
# Programs wait for longer than tests wait for their end, however busy the machine is.
LIMIT = 120  # seconds
START = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
from transformer_jax.machine import cli, signals
interruption = signals.Interruption()
interruption.last_words = lambda: 'The newest is 7.'
def wait(seconds):
  print('ready', flush=True)
  time.sleep(seconds)
def main(argv):
  BODY
cli.run(main)
"""
BUSY = 'with interruption: wait(600)'
SAVE = """
  signals.REPEATED = {repeated}
  with interruption:
    with interruption.deferred():
      wait(0)
      while not interruption.requested: time.sleep(0.01)
      print('saving', flush=True)
      {save}
      print('saved', flush=True)
    interruption.leave()
"""
WORDS = 'stopped by a signal. The newest is 7.\n'


def started(code: str) -> subprocess.Popen:
  """Starts a process; returns when it is ready for a signal."""
  pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
  command = [sys.executable, '-c', code]
  process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
  assert process.stdout.readline() == 'ready\n'
  return process


def with_main(body: str) -> str:
  return START.replace('BODY', body)


@pytest.mark.parametrize('number', SIGNALS)
def test_a_process_without_work_to_save_exits_at_once(number: signal.Signals):
  process = started(with_main(BUSY))
  process.send_signal(number)
  assert process.communicate(timeout=LIMIT) == ('', WORDS)
  assert process.returncode == EXIT_CODE


def test_a_checkpoint_is_written_first():
  """A signal to the process and to its group, as `timeout` sends it, counts once."""
  process = started(with_main(SAVE.format(repeated=600, save='sys.stdin.readline()')))
  process.send_signal(signal.SIGTERM)
  assert process.stdout.readline() == 'saving\n'
  process.send_signal(signal.SIGTERM)
  assert process.communicate('\n', timeout=LIMIT) == ('saved\n', WORDS)
  assert process.returncode == EXIT_CODE


def test_a_second_signal_ends_it_at_once():
  process = started(with_main(SAVE.format(repeated=0, save='time.sleep(600)')))
  process.send_signal(signal.SIGUSR1)
  assert process.stdout.readline() == 'saving\n'
  process.send_signal(signal.SIGTERM)
  assert process.communicate(timeout=LIMIT) == ('', '')
  assert process.returncode == EXIT_CODE


@pytest.mark.parametrize('body', ["print('x\\n' * 100_000)", "print('x')"])
def test_a_reader_that_leaves_early(body: str):
  command = ['bash', '-c', 'set -o pipefail; "$0" -c "$1" | head -c 0']
  command += [sys.executable, with_main(body)]
  done = subprocess.run(command, cwd=ROOT, capture_output=True)
  assert (done.returncode, done.stdout, done.stderr) == (0, b'', b'')
