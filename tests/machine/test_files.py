"""A file is the old one or the new one, whenever its writing ends."""

import concurrent.futures
import hashlib
import os
import pathlib

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


def test_sum(tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(b'abc')
  assert files.sha256(path) == hashlib.sha256(b'abc').hexdigest()
