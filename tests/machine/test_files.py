"""A write replaces a whole file, or leaves the old one."""

import concurrent.futures
import errno
import os
import pathlib

import pytest

from transformer_jax.machine import files


def test_a_failed_write_leaves_the_old_file(tmp_path: pathlib.Path, monkeypatch):
  path = tmp_path / 'x.json'
  files.write(path, 'old ä\n')

  def fail(descriptor: int) -> None:
    assert path.read_text(encoding='utf-8') == 'old ä\n'
    raise OSError(errno.ENOSPC, 'disk full')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match=f'disk full: .*{path}'):
      files.write(path, 'new\n')
  assert path.read_text(encoding='utf-8') == 'old ä\n'
  files.write(path, 'new\n')
  assert path.read_text() == 'new\n'
  assert [entry.name for entry in tmp_path.iterdir()] == ['x.json']


def test_a_pipe_or_link_is_not_replaced(tmp_path: pathlib.Path):
  path = tmp_path / 'pipe'
  os.mkfifo(path)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    read = pool.submit(path.read_text)
    files.write(path, 'text')
    assert read.result() == 'text'
  assert path.is_fifo() and [*tmp_path.iterdir()] == [path]
  target, link = tmp_path / 'target', tmp_path / 'link'
  target.write_text('old\n')
  link.symlink_to(target)
  files.write(link, 'new\n')
  assert link.is_symlink() and target.read_text() == 'new\n'
