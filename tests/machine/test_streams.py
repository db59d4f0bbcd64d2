"""Whatever the standard streams are: one line, the right exit code, no traceback."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CODE = """
import sys
from transformer_jax.machine import cli, streams
FLAGS = cli.Flags('doc')
def main(argv):
  BODY
cli.run(main)
"""


def shell(body: str, around: str = '{}', **environment: str) -> tuple[int, str, str]:
  """Exit code, stdout and stderr of a program with this main(), run as a shell does."""
  script = CODE.replace('BODY', body)
  line = around.format('"$PYTHON" -c "$CODE"')
  known = {'PYTHON': sys.executable, 'CODE': script, 'PYTHONPATH': str(ROOT)}
  done = subprocess.run(
    ['bash', '-c', f'set -o pipefail; {line}'],
    env=os.environ | known | environment,
    capture_output=True,
    text=True,
    encoding='utf-8',
    errors='surrogateescape',
  )
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize('body', ["print('x')", "print('x' * 100_000); print('y')"])
@pytest.mark.parametrize(
  ('around', 'said'),
  [
    ('{} >&-', '[Errno 9] Bad file descriptor'),
    ('{} >/dev/full', '[Errno 28] No space left on device'),
  ],
)
def test_a_stdout_that_takes_nothing(body: str, around: str, said: str):
  if 'full' in around and not pathlib.Path('/dev/full').exists():
    pytest.skip('Linux has a full device to write to')
  assert shell(body, around) == (1, '', f"{said}: 'stdout'\n")


def test_an_exit_that_says_all_is_well():
  """As --help makes it."""
  said = "[Errno 9] Bad file descriptor: 'stdout'\n"
  assert shell("print('x'); sys.exit(0)", '{} >&-') == (1, '', said)
  assert shell("print('x'); sys.exit(0)", '{} | head -c 0') == (0, '', '')
  assert shell("print('x'); sys.exit(75)", '{} >&-') == (75, '', '')


def test_nothing_printed_needs_no_stdout():
  assert shell('sys.exit(75)', '{} >&-') == (75, '', '')
  assert shell('raise SystemExit("one line")', '{} >&-') == (1, '', 'one line\n')


@pytest.mark.parametrize('body', ["print('x\\\\n' * 100_000)", "print('x')"])
def test_a_reader_that_has_enough(body: str):
  assert shell(body, '{} | head -c 0') == (0, '', '')


def test_a_stderr_that_nobody_reads_any_more():
  """As of `2>&1 | tee log` at Ctrl-C: what is to be saved is saved."""
  body = "print('x', file=sys.stderr); print('y'); sys.exit(75)"
  around = '{{ {} 2>&1 >&3 | head -c 0; }} 3>&1'
  assert shell(body, around) == (75, 'y\n', '')
  if pathlib.Path('/dev/full').exists():
    assert shell(body, '{} 2>/dev/full') == (75, 'y\n', '')


def test_a_closed_stdin_is_not_an_empty_one():
  body = 'print(len(streams.read_stdin()))'
  assert shell(body, '{} </dev/null') == (0, '0\n', '')
  said = "[Errno 9] Bad file descriptor: 'stdin'\n"
  assert shell(body, '{} <&-') == (1, '', said)


def test_what_is_opened_is_not_printed_into(tmp_path: pathlib.Path):
  """Without stderr and stdout, the first file to be opened would have their numbers."""
  path = tmp_path / 'file'
  body = f"file = open('{path}', 'w'); print('lost', file=sys.stderr)"
  assert shell(body, '{} 2>&- >&- <&-')[0] == 0
  assert path.read_text() == ''


def test_what_is_printed_is_utf_8():
  """Whatever the terminal is set to; and names of files are the bytes that they are."""
  code, out, _ = shell("print('ä\\udcff')", PYTHONIOENCODING='ascii')
  assert (code, out) == (0, 'ä\udcff\n')
