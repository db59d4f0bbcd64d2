"""A preparation that is stopped is no corpus; the next goes on and ends the same."""

import errno
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from toy.corpus import CORPUS, config_of, write_raw
from transformer_jax.data import (
  card,
  encoding,
  preparing,
  token_files,
  unfinished,
  vocabulary,
)
from transformer_jax.data.corpus import Corpus
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import TRANSLATION

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = [sys.executable, str(pathlib.Path(__file__).with_name('stopped.py'))]
ENVIRONMENT = os.environ | {'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}'}


def content(folder: pathlib.Path) -> dict[str, bytes]:
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def prepare(
  raw: pathlib.Path, data_dir: pathlib.Path, corpus: Corpus = CORPUS
) -> dict[str, bytes]:
  splits = TRANSLATION.splits(corpus, raw, None)
  preparing.prepare_corpus(corpus, TRANSLATION, splits, data_dir)
  return content(data_dir / corpus.name)


def stages(capsys: pytest.CaptureFixture) -> set[str]:
  """Which stages were said to be run since the last call."""
  said = capsys.readouterr().err
  return {stage for stage in ('reading', 'learning', 'encoding') if stage in said}


@pytest.fixture(scope='module')
def toy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """What all is made from."""
  return write_raw(tmp_path_factory.mktemp('unfinished') / 'raw')


@pytest.fixture(scope='module')
def whole(toy: pathlib.Path) -> dict[str, bytes]:
  """An undisturbed preparation."""
  made = prepare(toy, toy.parent / 'whole')
  assert len(made) == 18
  return made


def test_killed(toy, whole, tmp_path: pathlib.Path, capsys):
  """By SIGKILL, before each change of a folder: what has a marker is not done again."""
  command = [*COMMAND, str(toy), str(tmp_path), 'killed']
  subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
  folders = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
  seen = []
  for data_dir in folders:
    marked = lambda name, at=data_dir: (at / 'toy.partial' / name).is_file()
    left = {'reading', 'learning', 'encoding'}
    left -= {'reading'} if marked('text.json') else set()
    left -= {'learning'} if marked('pieces.json') else set()
    if (data_dir / 'toy').exists():
      card.verify(data_dir / 'toy')
      left = set()
    seen.append(len(left))
    stages(capsys)
    assert prepare(toy, data_dir) == whole
    assert stages(capsys) == left
    assert {path.name for path in data_dir.iterdir()} == {'toy', 'toy.lock'}
  assert {*seen} == {3, 2, 1, 0} and seen == sorted(seen, reverse=True)


def test_what_a_kill_left_beside_a_whole_corpus(toy, tmp_path: pathlib.Path):
  """The next program that uses the corpus deletes it, but nothing of others."""
  prepare(toy, tmp_path)
  left = tmp_path / 'toy.partial'
  (left / 'mine').mkdir(parents=True)
  config = config_of(CORPUS)
  assert preparing.prepare(config, TRANSLATION, tmp_path) == tmp_path / 'toy'
  assert (left / 'mine').is_dir()
  (left / 'corpus').mkdir()  # another preparation, of the same name, was stopped
  (left / 'begun.json').write_text('{"corpus": {}}')
  assert preparing.prepare(config, TRANSLATION, tmp_path) == tmp_path / 'toy'
  assert (left / 'mine').is_dir()
  (left / 'corpus').rmdir()
  assert preparing.prepare(config, TRANSLATION, tmp_path) == tmp_path / 'toy'
  assert {path.name for path in tmp_path.iterdir()} == {'toy', 'toy.lock'}


@pytest.mark.parametrize('unlucky', ['file', 'link', 'denied'])
def test_a_whole_corpus_is_used_beside_what_cannot_be_deleted(
  unlucky: str, toy, tmp_path: pathlib.Path, monkeypatch
):
  prepare(toy, tmp_path)
  left = tmp_path / 'toy.partial'
  if unlucky == 'file':
    left.write_bytes(b'x')
  else:
    folder = left if unlucky == 'denied' else tmp_path / 'elsewhere'
    folder.mkdir()
    (folder / 'begun.json').write_text('{"corpus": {}}')
  if unlucky == 'link':
    left.symlink_to(folder)
  if unlucky == 'denied':
    monkeypatch.setattr(unfinished, 'remove', mock.Mock(side_effect=PermissionError))
  assert preparing.prepare(config_of(CORPUS), TRANSLATION, tmp_path) == tmp_path / 'toy'
  assert os.path.lexists(left)


@pytest.mark.parametrize('error', [KeyboardInterrupt, ValueError, OSError])
def test_a_failed_preparation_is_no_corpus(error, toy, whole, tmp_path, monkeypatch):
  def stop(*_: object) -> None:
    raise error('no')

  with monkeypatch.context() as patch:
    patch.setattr(card, 'write_card', stop)
    with pytest.raises(error, match='no'):
      prepare(toy, tmp_path)
  assert {path.name for path in tmp_path.iterdir()} == {'toy.partial', 'toy.lock'}
  with pytest.raises(UserError, match=r'card\.json: not there; run scripts'):
    card.read_card(tmp_path / 'toy')
  assert prepare(toy, tmp_path) == whole


# Begun anew


def touch(raw: pathlib.Path) -> None:
  os.utime(raw / 'dev.de', ns=(0, 1))


def longer(raw: pathlib.Path) -> None:
  for language, line in (('en', b'one\n'), ('de', b'eins\n')):
    with (raw / f'train.{language}').open('ab') as file:
      file.write(line)


@pytest.mark.parametrize(
  ('change', 'anew'),
  [
    (None, False),
    (touch, True),
    (longer, True),
    ({'max_length': 63}, True),
    ({'cleaning': CORPUS.cleaning._replace(max_ratio=8.0)}, True),
    ({'vocab_size': 59}, True),
    ({'train_pairs': 199}, True),
    ({'seed': 2}, True),
    ({'files': CORPUS.files | {'train': ('train', 'train')}}, True),
  ],
)
def test_another_input_or_corpus_is_begun_anew(
  change: dict | Callable | None, anew: bool, raw, tmp_path, monkeypatch, capsys
):
  """After a preparation that ended when its vocabulary was learnt."""
  with monkeypatch.context() as patch:
    patch.setattr(encoding, 'encode', None)
    with pytest.raises(TypeError):
      prepare(raw, tmp_path / 'data')
  assert stages(capsys) == {'reading', 'learning'}
  corpus = CORPUS
  if isinstance(change, dict):
    corpus = CORPUS._replace(**change)
  elif change is not None:
    change(raw)
  made = prepare(raw, tmp_path / 'data', corpus)
  assert stages(capsys) >= {'encoding'} | ({'reading', 'learning'} if anew else set())
  assert made == prepare(raw, tmp_path / 'straight', corpus)


def test_other_content_of_the_folder_to_work_in(toy, whole, tmp_path: pathlib.Path):
  """Of another version of this code: it is not taken over."""
  (tmp_path / 'toy.partial' / 'corpus').mkdir(parents=True)
  (tmp_path / 'toy.partial' / 'corpus' / 'notes').write_bytes(b'x')
  (tmp_path / 'toy.partial' / 'text.json').write_bytes(b'{}')
  (tmp_path / 'toy.partial' / 'begun.json').write_bytes(b'{}')
  assert prepare(toy, tmp_path) == whole


@pytest.mark.parametrize('marker', ['begun.json', 'text.json', 'pieces.json'])
def test_a_damaged_marker(marker: str, toy, whole, tmp_path, monkeypatch):
  """What it stood for is made again."""
  with monkeypatch.context() as patch:
    patch.setattr(encoding, 'encode', None)
    with pytest.raises(TypeError):
      prepare(toy, tmp_path)
  (tmp_path / 'toy.partial' / marker).write_bytes(b'{"kept": 2\xff')
  assert prepare(toy, tmp_path) == whole


# What no preparation has made


def everything(folder: pathlib.Path) -> dict[pathlib.Path, bytes | None]:
  return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob('*')}


def make_folder(path: pathlib.Path) -> None:
  (path / 'corpus').mkdir(parents=True)
  (path / 'corpus' / 'thesis').write_bytes(b'years')


def make_link(path: pathlib.Path) -> None:
  make_folder(path.parent / 'elsewhere')
  path.symlink_to('elsewhere')


def make_file(path: pathlib.Path) -> None:
  path.parent.mkdir()
  path.write_bytes(b'years')


def make_dangling_link(path: pathlib.Path) -> None:
  path.parent.mkdir()
  path.symlink_to('elsewhere')


@pytest.mark.parametrize('end', ['', '.partial'])
@pytest.mark.parametrize(
  'make', [make_folder, make_link, make_file, make_dangling_link]
)
def test_what_is_not_ours_stays(make: Callable, end: str, raw, tmp_path, capsys):
  data_dir = tmp_path / 'data'
  make(data_dir / f'toy{end}')
  (data_dir / 'toy.lock').write_bytes(b'not ours either')
  before = everything(data_dir)
  config = config_of(CORPUS)
  with pytest.raises(UserError, match=rf'toy{end} is (no|not what a) prep.*move it'):
    preparing.prepare(config, TRANSLATION, data_dir, raw)
  assert everything(data_dir) == before and not stages(capsys)
  config.data.name = 'other'
  assert preparing.prepare(config, TRANSLATION, data_dir, raw) == data_dir / 'other'


@pytest.mark.parametrize(
  'name',
  ['', '.', '..', '../x', '/tmp/x', 'a/b', 'a/', './a', 'a\\b', 'a\nb', '\udc80', 'a\0']
  + ['a.partial', 'a.lock', '.partial', '.lock'],
)
def test_a_name_that_leaves_the_folder(name: str, raw, tmp_path: pathlib.Path):
  """Or is that of another corpus's unfinished work."""
  config = config_of(CORPUS._replace(name=name))
  before = everything(tmp_path)
  with pytest.raises(UserError, match=r'that is no name of a folder in --data_dir'):
    preparing.prepare(config, TRANSLATION, tmp_path / 'data', raw)
  with pytest.raises(UserError, match=r'that is no name of a folder in --data_dir'):
    prepare(raw, tmp_path / 'data', CORPUS._replace(name=name))
  assert everything(tmp_path) == before


def test_stopped_while_tidying_up_then_removed(toy, whole, tmp_path, monkeypatch):
  """All its stages are marked as done, and what they made is gone."""
  with monkeypatch.context() as patch:
    patch.setattr(pathlib.Path, 'unlink', None)
    with pytest.raises(TypeError):
      prepare(toy, tmp_path)
  assert {path.name for path in tmp_path.iterdir()} > {'toy', 'toy.partial'}
  shutil.rmtree(tmp_path / 'toy')
  assert prepare(toy, tmp_path) == whole


def test_a_prepared_corpus_is_left_alone(toy, whole, tmp_path, capsys):
  assert prepare(toy, tmp_path) == whole
  stages(capsys)
  assert prepare(toy, tmp_path) == whole
  assert not stages(capsys)


# Two at once


def test_two_processes_at_once(toy, whole, tmp_path: pathlib.Path):
  """The second waits and takes what the first has made."""
  with (tmp_path / 'toy.lock').open('w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    second = subprocess.Popen(
      [*COMMAND, str(toy), str(tmp_path)],
      env=ENVIRONMENT,
      stderr=subprocess.PIPE,
      text=True,
    )
    waiting = second.stderr.readline()
    shutil.copytree(toy.parent / 'whole' / 'toy', tmp_path / 'toy')
  assert waiting == 'waiting for another process that prepares toy\n'
  assert second.communicate()[1] == '' and second.returncode == 0
  assert content(tmp_path / 'toy') == whole


def test_where_there_are_no_locks_it_says_so(toy, whole, tmp_path, monkeypatch, capsys):
  def unsupported(*_: object) -> None:
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(fcntl, 'flock', unsupported)
  assert prepare(toy, tmp_path) == whole
  assert 'toy.lock: no lock (' in capsys.readouterr().err


# No room

# Many short pairs: their offsets take more room than their text.
SHORT = b'one\n' * 3000, b'eins\n' * 3000
# Runs a command that may write files of so many bytes.
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), -1))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize(
  ('most', 'file'),
  [
    (100, 'begun.json'),
    (9000, 'toy.partial'),
    (20_000, 'train.source.offsets'),
  ],
)
def test_a_full_disk(most: int, file: str, raw: pathlib.Path, tmp_path: pathlib.Path):
  """Where no file may have more bytes: it is said where; with room it goes on."""
  for language, lines in zip(('en', 'de'), SHORT, strict=True):
    with (raw / f'train.{language}').open('ab') as train:
      train.write(lines)
  done = subprocess.run(
    [sys.executable, '-c', LIMITED, str(most), *COMMAND, raw, tmp_path / 'data'],
    env=ENVIRONMENT,
    capture_output=True,
    text=True,
  )
  message = done.stderr.splitlines()[-1]
  assert message.startswith(f'OSError: [Errno {errno.EFBIG}]')
  assert f'while preparing {tmp_path}/data/toy: make room and start again' in message
  assert message.endswith(f"{file}'")
  assert not (tmp_path / 'data' / 'toy').exists()
  assert prepare(raw, tmp_path / 'data') == prepare(raw, tmp_path / 'straight')


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_told_with_what_to_do(number: int, raw, tmp_path, monkeypatch):
  def full(*_: object) -> None:
    raise OSError(number, 'No room')

  monkeypatch.setattr(token_files.TokenWriter, 'append', full)
  with pytest.raises(OSError, match='No room while preparing .*make room') as caught:
    prepare(raw, tmp_path / 'data')
  assert caught.value.filename == f'{tmp_path}/data/toy.partial'


def test_other_errors_of_the_system_are_left_as_they_are(raw, tmp_path, monkeypatch):
  def denied(*_: object) -> None:
    raise PermissionError(errno.EACCES, 'Permission denied', 'x')

  monkeypatch.setattr(vocabulary, 'train', denied)
  with pytest.raises(PermissionError, match=r"\] Permission denied: 'x'$"):
    prepare(raw, tmp_path / 'data')


def test_all_is_on_the_disk_before_it_has_its_name(raw, tmp_path, monkeypatch):
  synced, rename = [], pathlib.Path.rename

  def fsync(file: int) -> None:
    synced.append(os.fstat(file).st_ino)

  def named(path: pathlib.Path, target: pathlib.Path) -> None:
    if target.name == 'toy':
      assert {made.stat().st_ino for made in path.iterdir()} <= {*synced}
      synced.append('all')
    rename(path, target)

  monkeypatch.setattr(os, 'fsync', fsync)
  monkeypatch.setattr(pathlib.Path, 'rename', named)
  prepare(raw, tmp_path)
  assert synced[-1] == 'all'
