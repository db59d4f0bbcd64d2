"""A signal ends a process at once or after its checkpoint, with one exit code."""

import os
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
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
from transformer_jax.machine import cli, signals
interruption = signals.Interruption()
interruption.last_words = lambda: 'The newest is 7.'
def wait(seconds):
  print('ready', flush=True)
  # In steps: a signal that comes as sleep begins is handled when it ends.
  for _ in range(100 * seconds): time.sleep(0.01)
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
      sys.stdin.readline()
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


@pytest.mark.parametrize(
  ('first', 'second', 'repeated', 'ends'),
  [
    (signal.SIGTERM, signal.SIGTERM, 600, ('saved\n', WORDS)),
    (signal.SIGXCPU, signal.SIGXCPU, 0, ('saved\n', WORDS)),
    (signal.SIGUSR1, signal.SIGTERM, 0, ('', '')),
  ],
)
def test_a_checkpoint_is_written_first(
  first: signal.Signals, second: signal.Signals, repeated: int, ends: tuple[str, str]
):
  """A second SIGTERM ends it at once, unless it comes as early as one of `timeout`.

  SIGXCPU, which the system repeats, never does.
  """
  process = started(with_main(SAVE.format(repeated=repeated)))
  process.send_signal(first)
  assert process.stdout.readline() == 'saving\n'
  process.send_signal(second)
  assert process.communicate('\n', timeout=LIMIT) == ends
  assert process.returncode == EXIT_CODE


def test_ignored_signals_stay_ignored():
  """As after nohup; the others end the process."""
  ignore = 'signal.signal(signal.SIGHUP, signal.SIG_IGN)'
  process = started(with_main(f'{ignore}\n  {BUSY}'))
  process.send_signal(signal.SIGHUP)
  process.send_signal(signal.SIGUSR2)
  assert process.communicate(timeout=LIMIT) == ('', WORDS)
  assert process.returncode == EXIT_CODE


def test_a_script_ends_in_one_line_from_its_first_import_on():
  script = [sys.executable, '-X', 'importtime', '-m', 'scripts.describe']
  process = subprocess.Popen(script, cwd=ROOT, text=True, stderr=subprocess.PIPE)
  while (line := process.stderr.readline()) and not line.endswith(' scripts\n'):
    pass
  process.send_signal(signal.SIGTERM)
  with process:
    *_, last = process.stderr
  assert (last, process.returncode) == ('stopped by a signal.\n', EXIT_CODE)


def test_a_child_ends_with_its_parent():
  """Even if nothing can tell the parent to end it."""
  child = (
    'import time; from transformer_jax.machine import signals\n'
    'signals.end_with_parent(); print("ready", flush=True); time.sleep(600)'
  )
  code = f'subprocess.Popen({[sys.executable, "-c", child]}); time.sleep(600)'
  process = started(f'import subprocess, time; {code}')
  process.kill()
  process.communicate(timeout=LIMIT)  # the child has the same pipes


WORK = """
  WRITE
  print('said', file=sys.stderr)
  open('FILE', 'w').close()
"""
PRINT, SAY = "print('x' * 70_000)", "cli.say('x' * 70_000)"
ODD = r"print('\udcff', file=sys.stderr)"
FULL = "[Errno 28] No space left on device: 'stdout'\n"


@pytest.mark.parametrize(
  ('write', 'redirect', 'code', 'stderr', 'is_finished'),
  [
    (PRINT, '| head -c 0', 141, 'said\n', True),
    (SAY, '2>&1 | head -c 0', 0, '', True),
    (f'{PRINT}; cli.check_output()', '> /dev/full', 1, FULL, False),
    (SAY, '> /dev/full', 0, 'said\n', True),
    (ODD, '', 0, '\\udcff\nsaid\n', True),
  ],
)
def test_streams(
  write: str, redirect: str, code: int, stderr: str, is_finished: bool, tmp_path
):
  """Work goes on, unless it asks; messages are dropped, and lost output is an error."""
  path = tmp_path / 'finished'
  program = with_main(WORK.replace('WRITE', write).replace('FILE', str(path)))
  command = f'set -o pipefail; "$0" -c "$1" {redirect}'
  command = ['bash', '-c', command, sys.executable, program]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert (done.returncode, done.stdout, done.stderr) == (code, '', stderr)
  assert path.exists() == is_finished


def test_output_is_utf_8_in_every_locale():
  command = [sys.executable, '-c', with_main("print('„†')")]
  env = os.environ | {'PYTHONIOENCODING': 'latin-1'}
  done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True)
  assert done.stdout == '„†\n'.encode()
