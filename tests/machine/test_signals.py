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


def started(code: str, **environment: str) -> subprocess.Popen:
  """Starts a process; returns when it is ready for a signal."""
  pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
  process = subprocess.Popen(
    [sys.executable, '-c', code],
    cwd=ROOT,
    env=os.environ | environment,
    text=True,
    **pipes,
  )
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


def test_ctrl_c_elsewhere_ends_with_one_line():
  process = started(with_main('wait(600)'))
  process.send_signal(signal.SIGINT)
  assert process.communicate(timeout=LIMIT) == ('', 'stopped by Ctrl-C\n')
  assert process.returncode == 130


def test_ctrl_c_while_a_command_imports(tmp_path: pathlib.Path):
  """The first module that all of them import waits here."""
  slow = "print('ready', flush=True); import time; time.sleep(600)"
  (tmp_path / 'absl.py').write_text(slow)
  (tmp_path / 'jax.py').write_text(slow)
  command = (
    'import os, signal, sys\n'
    'signal.signal(signal.SIGINT, signal.SIG_DFL)  # background jobs ignore it\n'
    "os.execv(sys.executable, [sys.executable, '-m', 'scripts.evalb', '--help'])"
  )
  process = started(command, PYTHONPATH=str(tmp_path))
  process.send_signal(signal.SIGINT)
  assert process.communicate(timeout=LIMIT) == ('', 'stopped by Ctrl-C\n')
  assert process.returncode == 130


@pytest.mark.parametrize('closed', ['2>&-', '0<&- 1>&- 2>&-'])
def test_closed_streams(closed: str):
  """A command does its work as with open ones."""
  line = f'exec "$PYTHON" -m scripts.describe --config=configs/base.py {closed}'
  known = os.environ | {'PYTHON': sys.executable}
  done = subprocess.run(
    ['bash', '-c', line], cwd=ROOT, env=known, capture_output=True, text=True
  )
  assert done.returncode == 0
  assert '1>' in closed or 'parameters' in done.stdout


@pytest.mark.parametrize('name', ['JAX_ENABLE_X64', 'JAX_DEFAULT_MATMUL_PRECISION'])
def test_what_jax_refuses_as_it_is_imported_is_one_line(name: str):
  done = subprocess.run(
    [sys.executable, '-m', 'scripts.evaluate', '--workdir=none'],
    cwd=ROOT,
    env=os.environ | {name: 'maybe'},
    capture_output=True,
    text=True,
  )
  lines = done.stderr.removeprefix('loading JAX\n').splitlines()
  assert done.returncode == 1 and len(lines) == 1, done.stderr
  assert lines[0].endswith(f': change or unset {name}')


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


@pytest.mark.parametrize('body', [BUSY, SAVE.format(repeated=0, save='pass')])
def test_stderr_is_closed(body: str):
  """As of `2>&1 | tee log` at Ctrl-C, which ends tee too: it still saves."""
  process = started(with_main(body))
  process.stderr.close()
  process.send_signal(signal.SIGINT)
  process.communicate(timeout=LIMIT)
  assert process.returncode == EXIT_CODE


def shell(body: str, around: str) -> tuple[int, str, str]:
  """Returns exit code, stdout and stderr of a program with this main() in a shell."""
  known = {'PYTHON': sys.executable, 'CODE': with_main(body)}
  line = around.format('"$PYTHON" -c "$CODE"')
  done = subprocess.run(
    ['bash', '-c', f'set -o pipefail; {line}'],
    env=os.environ | known | {'PYTHONPATH': str(ROOT), 'PYTHONIOENCODING': 'ascii'},
    capture_output=True,
    text=True,
    encoding='utf-8',
  )
  return done.returncode, done.stdout, done.stderr


def test_output_that_breaks():
  body = "print('x', file=sys.stderr); print('y'); sys.exit(75)"
  assert shell(body, '{{ {} 2>&1 >&3 | head -c 0; }} 3>&1') == (75, 'y\n', '')
  for body in ("print('x\\\\n' * 100_000)", "print('x')"):
    assert shell(body, '{} | head -c 0') == (0, '', '')
  assert shell("print('ä')", '{}') == (0, 'ä\n', '')
  full = '[Errno 28] No space left on device\n'
  assert shell("print('x')", '{} > /dev/full') == (1, '', full)
