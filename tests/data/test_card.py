"""The card names any damage to its folder."""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

import toy.corpus
from transformer_jax.data import card
from transformer_jax.data.corpus import SIDES, SPLITS
from transformer_jax.machine.errors import UserError

FILES = sorted(
  ['vocabulary.model']
  + [f'{a}.{b}.{c}' for a in SPLITS for b in SIDES for c in ('tokens', 'offsets')]
  + [f'{a}.{b}.txt' for a in ('dev', 'test') for b in SIDES]
)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  raw = toy.corpus.write_raw(tmp_path_factory.mktemp('Übung') / 'raw')
  toy.corpus.prepare(raw)
  return raw.parent / 'data' / 'toy'


@pytest.fixture
def folder(prepared: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  """Returns a copy that a test may damage."""
  return shutil.copytree(prepared, tmp_path / 'toy')


def refused(folder: pathlib.Path) -> str:
  with pytest.raises(UserError) as caught:
    card.verify(folder)
  assert str(folder) in str(caught.value)
  return str(caught.value)


def rewrite(folder: pathlib.Path, change: Callable[[dict], None]) -> None:
  path = folder / card.CARD
  content = json.loads(path.read_bytes())
  change(content)
  path.write_text(json.dumps(content))


def test_the_identity_is_that_of_the_content(folder: pathlib.Path):
  """It is the sum of vocabulary, tokens and text, as sha256sum prints it."""
  card.verify(folder)
  assert sorted(card.read_card(folder).sha256) == FILES
  names = 'dev.* test.* train.* vocabulary.model'
  command = f'LC_ALL=C; sha256sum {names} | sha256sum'
  done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
  assert card.read_card(folder).identity == done.stdout.split()[0]
  rewrite(folder, lambda content: content['splits']['train'].update(sources=[]))
  card.verify(folder)
  rewrite(folder, lambda content: content.update(identity='0' * 64))
  assert 'the identity on the card.json is not that of its sums' in refused(folder)


@pytest.mark.parametrize('name', FILES)
def test_each_file_is_watched(name: str, folder: pathlib.Path):
  """verify() notices a flipped bit, another byte, and a missing file."""
  path, about = folder / name, card.read_card(folder)
  whole = path.read_bytes()
  for place in {0, len(whole) // 2, len(whole) - 1}:
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert f'{name} is not as it was written. Delete' in refused(folder)
  path.write_bytes(whole + b'\0')
  assert f'{name} is not as it was written' in refused(folder)
  path.unlink()
  assert f': {name} is missing. Delete' in refused(folder)
  path.write_bytes(whole + b'x')
  card.write_card(folder, about)
  assert card.read_card(folder).identity != about.identity


def test_all_faults_of_a_folder_are_named(folder: pathlib.Path):
  (folder / 'dev.source.txt').unlink()
  (folder / 'dev.target.txt').write_bytes(b'')
  (folder / 'notes').write_bytes(b'mine')
  assert refused(folder) == (
    f'{folder}: dev.source.txt is missing; notes is not on the card; dev.target.txt is '
    'not as it was written. Delete the folder and prepare it again'
  )
  (folder / 'card.json').unlink()
  assert 'card.json: no such file; run scripts' in refused(folder)


def test_a_damaged_card(folder: pathlib.Path):
  path = folder / 'card.json'
  for content in (b'', path.read_bytes()[:-9], b'[]', b'{"sha256": 3}', b'\xff'):
    path.write_bytes(content)
    message = refused(folder)
    assert 'card.json: damaged' in message
    # Whoever deletes the folder of a run loses its checkpoints.
    assert 'In the folder of a run, put back a copy' in message


@pytest.mark.parametrize(
  ('key', 'value'), [('max_length', 9), ('seed', 2), ('target_vocab_size', 40)]
)
def test_other_settings(key: str, value: int, folder: pathlib.Path):
  card.check_settings(folder, replace(toy.corpus.CORPUS, name='b', raw_dir='elsewhere'))
  with pytest.raises(UserError, match=f'prepared with {key}=.*config says {value}:'):
    card.check_settings(folder, replace(toy.corpus.CORPUS, **{key: value}))


@pytest.mark.parametrize('side', SIDES)
def test_changed_text_is_not_read(side: str, folder: pathlib.Path):
  """Scores and samples would be of another text, or of other lines."""
  source, target = card.read_text(folder, 'dev')
  assert len(source) == len(target) > 0
  path = folder / f'dev.{side}.txt'
  whole = path.read_bytes()
  for text in (whole[:-9], whole.replace(b'e', b'o', 1), whole + whole[-9:], b''):
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
      card.read_text(folder, 'dev')
    assert str(caught.value).startswith(f'{path} is not as it was written')
  card.read_text(folder, 'test')
