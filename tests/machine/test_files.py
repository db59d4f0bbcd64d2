"""A file is the old one or the new one, whenever its writing ends."""

import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

import pytest

from transformer_jax.machine import files


def test_a_failed_write_leaves_the_old_file(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  path = tmp_path / 'x.json'
  files.write(path, 'old ä\n')

  def fail(descriptor: int) -> None:
    assert path.read_text(encoding='utf-8') == 'old ä\n'
    raise OSError('disk full')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match='disk full'):
      files.write(path, 'new\n')
  assert path.read_text(encoding='utf-8') == 'old ä\n'
  files.write(path, 'new\n')
  assert path.read_text() == 'new\n'
  assert [found.name for found in tmp_path.iterdir()] == ['x.json']


def test_what_is_no_file_stays_what_it_is(tmp_path: pathlib.Path):
  """A pipe, or a device such as /dev/stdout: neither replaced nor written beside."""
  path = tmp_path / 'pipe'
  os.mkfifo(path)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    read = pool.submit(path.read_text)
    files.write(path, 'text')
    assert read.result() == 'text'
  assert path.is_fifo() and [*tmp_path.iterdir()] == [path]


def test_stdout_is_written_to_wherever_it_goes(tmp_path: pathlib.Path):
  """Even where it goes to a file: that is no file to be replaced."""
  program = (
    'import pathlib; from transformer_jax.machine import files; print(1);'
    'files.write(pathlib.Path("/dev/stdout"), "2\\n"); print(3)'
  )
  path = tmp_path / 'out'
  with path.open('w') as file:
    subprocess.run([sys.executable, '-c', program], stdout=file, check=True)
  assert path.read_text() == '1\n2\n3\n'


def test_a_shells_substitution(tmp_path: pathlib.Path):
  """Such as --output=>(gzip > x.gz): a pipe that has no name but /dev/fd/N."""
  reading, writing = os.pipe()
  files.write(pathlib.Path(f'/dev/fd/{writing}'), 'text')
  os.close(writing)
  with open(reading) as file:
    assert file.read() == 'text'


def test_a_link_stays_a_link(tmp_path: pathlib.Path):
  target, link = tmp_path / 'there' / 'x', tmp_path / 'link'
  target.parent.mkdir()
  target.write_text('old\n')
  link.symlink_to(target)
  files.write(link, 'new\n')
  assert link.is_symlink() and target.read_text() == 'new\n'
  assert [*target.parent.iterdir()] == [target]


def test_sum(tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  assert files.sha256(path) == hashlib.sha256(b'abc').hexdigest()
