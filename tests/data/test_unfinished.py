"""A preparation that is stopped is no corpus; the next goes on and ends the same."""

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections import Counter

import pytest
import stopped

import toy.corpus
from transformer_jax.data import (
  card,
  encoding,
  preparing,
  readers,
  token_files,
  vocabulary,
)
from transformer_jax.data.encoding import Progress
from transformer_jax.data.lines import SIDES

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = toy.corpus.CORPUS


def command(*arguments: object) -> list[str]:
  return [sys.executable, stopped.__file__, *map(str, arguments)]


ENVIRONMENT = os.environ | {'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}'}


def run(*arguments: object) -> list | dict:
  done = subprocess.run(
    command(*arguments), env=ENVIRONMENT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


def content(folder: pathlib.Path) -> dict[str, bytes]:
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def prepare(
  raw: pathlib.Path, data_dir: pathlib.Path, corpus=CORPUS
) -> dict[str, bytes]:
  preparing.prepare_corpus(corpus, readers.bitexts(corpus, raw, None), data_dir)
  return content(data_dir / corpus.name)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return tmp_path_factory.mktemp('unfinished')


@pytest.fixture(scope='module')
def toy(folder: pathlib.Path) -> pathlib.Path:
  """What it is all made from."""
  return toy.corpus.write_raw(folder / 'raw')


@pytest.fixture(scope='module')
def whole(toy: pathlib.Path) -> dict[str, bytes]:
  """An undisturbed preparation."""
  return prepare(toy, toy.parent / 'whole')


@pytest.fixture(scope='module')
def killed(toy: pathlib.Path) -> dict[str, int]:
  """How processes ended that were killed at each place, in the folder `killed`."""
  return run('everywhere', toy, toy.parent / 'killed')


def count_stages(monkeypatch: pytest.MonkeyPatch) -> Counter:
  """What is done from now on: calls of each stage, pairs that are encoded."""
  done = Counter()

  def counted(owner: object, name: str, stage: str) -> None:
    real = getattr(owner, name)

    def stage_function(*arguments: object) -> object:
      done[stage] += len(arguments[1][0]) if stage == 'pairs' else 1
      return real(*arguments)

    monkeypatch.setattr(owner, name, stage_function)

  counted(preparing, '_text', 'text')
  counted(vocabulary, 'train', 'learning')
  counted(encoding, '_encode', 'pairs')
  return done


# What is left to do after a kill at each place: stages, and pairs to be encoded.
# 5 blocks of 10 had been written, 4 of them noted, when `append` was called 11 times.
EVERYTHING, LEARNT = {'text': 1, 'learning': 1, 'pairs': 200}, {'pairs': 200}
LEFT = {
  'begun': EVERYTHING,
  'before text': EVERYTHING,
  'in text': EVERYTHING,
  'after text': EVERYTHING,
  'in noting the text': EVERYTHING,
  'before learning': {'learning': 1, 'pairs': 200},
  'in learning': {'learning': 1, 'pairs': 200},
  'after learning': {'learning': 1, 'pairs': 200},
  'before encoding': LEARNT,
  'in encoding': {'pairs': 160},
  'between sides': {'pairs': 160},
  'in syncing': {'pairs': 160},
}


@pytest.mark.parametrize('place', stopped.PLACES)
def test_killed(place: str, toy, whole, killed, monkeypatch):
  """By SIGKILL: no folder has the name before it is whole; what was done stays done."""
  assert killed[place] == -9
  data_dir = toy.parent / 'killed' / place
  ended = place == 'after the end'
  assert (data_dir / 'toy').exists() == ended
  if ended:
    card.verify(data_dir / 'toy')
  else:
    with pytest.raises(FileNotFoundError, match=r'card\.json: not there; run scripts'):
      card.read_card(data_dir / 'toy')
  monkeypatch.setattr(encoding, 'BLOCK', stopped.BLOCK)
  done = count_stages(monkeypatch)
  assert prepare(toy, data_dir) == whole
  assert done == LEFT.get(place, {})
  assert {path.name for path in data_dir.iterdir()} == {'toy', 'toy.lock'}


def test_killed_at_random(toy, whole, tmp_path: pathlib.Path):
  """A dozen times, each going on from what the one before has left."""
  ends = run('at_random', toy, tmp_path)
  assert {ended for ended, _ in ends} <= {-9, 0}
  assert [ended for ended, _ in ends].count(-9) >= 3
  assert prepare(toy, tmp_path) == whole == content(tmp_path / 'whole' / 'toy')


@pytest.mark.parametrize(
  'place',
  ['data.vocabulary.train', 'data.held_out.write', 'data.preparing.write_card'],
)
@pytest.mark.parametrize('error', [KeyboardInterrupt, ValueError, OSError])
def test_a_failed_preparation_is_no_corpus(
  place, error, toy, whole, tmp_path, monkeypatch
):
  def stop(*_: object, **__: object):
    raise error('no')

  with monkeypatch.context() as patch:
    patch.setattr(f'transformer_jax.{place}', stop)
    with pytest.raises(error, match='no'):
      prepare(toy, tmp_path)
  assert {path.name for path in tmp_path.iterdir()} == {'toy.partial', 'toy.lock'}
  assert prepare(toy, tmp_path) == whole


# Begun anew


def leave_half(raw: pathlib.Path, data_dir: pathlib.Path, monkeypatch) -> None:
  """A preparation that ends when its vocabulary is learnt."""
  with monkeypatch.context() as patch:
    patch.setattr(encoding, 'encode', None)
    with pytest.raises(TypeError):
      prepare(raw, data_dir)


def touch(raw: pathlib.Path) -> None:
  os.utime(raw / 'dev.de', ns=(0, 1))


def longer(raw: pathlib.Path) -> None:
  for language, line in (('en', b'one\n'), ('de', b'eins\n')):
    with (raw / f'train.{language}').open('ab') as file:
      file.write(line)


@pytest.mark.parametrize('change', [touch, longer])
def test_changed_input_is_begun_anew(change, raw, tmp_path, monkeypatch):
  leave_half(raw, tmp_path / 'data', monkeypatch)
  change(raw)
  done = count_stages(monkeypatch)
  made = prepare(raw, tmp_path / 'data')
  assert (done['text'], done['learning']) == (1, 1)
  assert made == prepare(raw, tmp_path / 'straight')


@pytest.mark.parametrize(
  'change',
  [
    {'max_length': 63},
    {'cleaning': CORPUS.cleaning._replace(max_ratio=8.0)},
    {'vocab_size': 59},
    {'train_pairs': 199},
    {'corpus_seed': 2},
    {'files': CORPUS.files | {'train': ('train', 'train')}},
  ],
)
def test_another_corpus_is_begun_anew(change: dict, raw, tmp_path, monkeypatch):
  leave_half(raw, tmp_path / 'data', monkeypatch)
  done = count_stages(monkeypatch)
  corpus = CORPUS._replace(**change)
  made = prepare(raw, tmp_path / 'data', corpus)
  assert (done['text'], done['learning']) == (1, 1)
  assert made == prepare(raw, tmp_path / 'straight', corpus)


def test_the_same_is_gone_on_with(raw, tmp_path, monkeypatch):
  leave_half(raw, tmp_path / 'data', monkeypatch)
  done = count_stages(monkeypatch)
  assert prepare(raw, tmp_path / 'data') == prepare(raw, tmp_path / 'straight')
  assert (done['text'], done['learning']) == (1, 1)  # those of the second


def test_rubbish_in_the_folder_to_work_in(raw, whole, toy, tmp_path: pathlib.Path):
  """Of another version, or by hand: not taken over."""
  (tmp_path / 'toy.partial' / 'corpus').mkdir(parents=True)
  (tmp_path / 'toy.partial' / 'corpus' / 'notes').write_bytes(b'x')
  (tmp_path / 'toy.partial' / 'text.json').write_bytes(b'{}')
  assert prepare(toy, tmp_path) == whole


def test_stopped_while_tidying_up_then_removed(toy, whole, tmp_path, monkeypatch):
  """All its stages are marked as done, and what they made is gone."""
  with monkeypatch.context() as patch:
    patch.setattr(preparing.shutil, 'rmtree', None)
    with pytest.raises(TypeError):
      prepare(toy, tmp_path)
  assert {path.name for path in tmp_path.iterdir()} > {'toy', 'toy.partial'}
  shutil.rmtree(tmp_path / 'toy')
  assert prepare(toy, tmp_path) == whole


def test_a_prepared_corpus_is_left_alone(toy, whole, tmp_path, monkeypatch):
  assert prepare(toy, tmp_path) == whole
  done = count_stages(monkeypatch)
  assert prepare(toy, tmp_path) == whole
  assert not done


# Two at once


def test_two_processes_at_once(toy, whole, tmp_path, monkeypatch, capsys):
  """The second waits and takes what the first has made."""
  first = subprocess.Popen(
    command('waits', toy, tmp_path),
    env=ENVIRONMENT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  with first:
    while 'learning\n' != first.stdout.readline():
      assert first.poll() is None
    real, flock = preparing.fcntl.flock, []

    def lets_the_first_go_on(file: object, operation: int) -> None:
      flock.append(operation)
      if len(flock) == 2:  # the first tells that another has the lock
        assert not (tmp_path / 'toy').exists()
        first.stdin.write('\n')
        first.stdin.flush()
      real(file, operation)

    monkeypatch.setattr(preparing.fcntl, 'flock', lets_the_first_go_on)
    done = count_stages(monkeypatch)
    assert prepare(toy, tmp_path) == whole
  assert first.returncode == 0 and len(flock) == 2 and not done
  assert 'waiting for another process that prepares toy\n' in capsys.readouterr().err
  assert {path.name for path in tmp_path.iterdir()} == {'toy', 'toy.lock'}


def test_where_there_are_no_locks_it_says_so(toy, whole, tmp_path, monkeypatch, capsys):
  def unsupported(*_: object):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(preparing.fcntl, 'flock', unsupported)
  assert prepare(toy, tmp_path) == whole
  assert 'toy.lock: no lock (' in capsys.readouterr().err


# No room

# Many short pairs: offsets take more room than text does.
SHORT = b'one\n' * 3000, b'eins\n' * 3000


@pytest.mark.parametrize(
  ('most', 'file'),
  [
    (100, 'begun.json.partial'),
    (9000, 'toy.partial'),
    (20_000, 'train.source.offsets'),
  ],
)
def test_a_full_disk(most: int, file: str, raw: pathlib.Path, tmp_path: pathlib.Path):
  """It is said where; nothing passes for whole; with room it is gone on with."""
  for language, lines in zip(('en', 'de'), SHORT, strict=True):
    with (raw / f'train.{language}').open('ab') as train:
      train.write(lines)
  code, message = run('limited', raw, tmp_path / 'data', most)
  assert code == errno.EFBIG
  assert f'while preparing {tmp_path}/data/toy: make room and start again' in message
  assert message.endswith(f"{file}'")
  assert not (tmp_path / 'data' / 'toy').exists()
  assert prepare(raw, tmp_path / 'data') == prepare(raw, tmp_path / 'straight')


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_told_with_what_to_do(number: int, raw, tmp_path, monkeypatch):
  def full(*_: object) -> None:
    raise OSError(number, 'No room')

  with monkeypatch.context() as patch:
    patch.setattr(token_files.TokenWriter, 'append', full)
    with pytest.raises(OSError, match='No room while preparing .*make room') as caught:
      prepare(raw, tmp_path / 'data')
    assert caught.value.filename == f'{tmp_path}/data/toy.partial'
  assert Progress.load(tmp_path / 'data/toy.partial/train.journal').read == 0
  assert len(prepare(raw, tmp_path / 'data')) == 18


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


def test_files_made_are_all_there_is(whole: dict[str, bytes]):
  assert len(whole) == 18
  assert {f'train.{side}.tokens' for side in SIDES} < whole.keys()
