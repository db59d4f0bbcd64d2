"""A write replaces a whole file, or leaves the old one; JSON, sums and locks."""

import concurrent.futures
import errno
import json
import math
import os
import pathlib
import time

import pytest

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError


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


def test_json_is_strict_and_an_object(tmp_path: pathlib.Path):
  """A number that is not finite is null; a file with another value is damaged."""
  path = tmp_path / 'x.json'
  files.write_json(path, {'a': [1.5, (math.nan, math.inf)], 'b': {'c': -math.inf}})
  finite = {'a': [1.5, [None, None]], 'b': {'c': None}}
  assert path.read_text() == json.dumps(finite, indent=1) + '\n'
  assert files.read_json_object(path) == finite
  assert files.as_json({'a': 1, 'b': math.nan}) == '{"a": 1, "b": null}'
  for content in b'[1]', b'{', b'', b'\xff':
    path.write_bytes(content)
    with pytest.raises(UserError, match=f'^{path}: damaged .*put back a copy'):
      files.read_json_object(path)


def test_a_block_has_one_process_at_a_time(tmp_path: pathlib.Path, capsys):
  """Another one waits and says so, or finds out that it would."""
  path = tmp_path / 'new.lock'
  with concurrent.futures.ThreadPoolExecutor() as pool:
    with files.exclusive(path, 'prepares toy'), path.open('a') as file:
      assert not files.lock(file)
      order = ['first']
      other = pool.submit(wait_for, path, order)
      while 'process that prepares toy' not in capsys.readouterr().err:
        time.sleep(0.01)
      order.append('first ends')
    other.result()
  assert order == ['first', 'first ends', 'second'] and path.exists()


def wait_for(path: pathlib.Path, order: list[str]) -> None:
  with files.exclusive(path, 'prepares toy'):
    order.append('second')


def test_a_folder_that_takes_files(tmp_path: pathlib.Path):
  files.ensure_writable(tmp_path / 'a' / 'b')
  assert not [*(tmp_path / 'a' / 'b').iterdir()]
  with pytest.raises(OSError):
    files.ensure_writable(pathlib.Path('/proc'))
