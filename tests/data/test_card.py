"""The card vouches for its folder: any damage is named."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

import toy.corpus
from transformer_jax.data import card, held_out, token_files
from transformer_jax.data.card import SPLITS
from transformer_jax.data.lines import SIDES
from transformer_jax.machine.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
  'vocabulary.model',
  *(
    f'{split}.{side}.{end}'
    for split in SPLITS
    for side in SIDES
    for end in ('tokens', 'offsets')
  ),
  *(f'{split}.{side}.txt' for split in ('dev', 'test') for side in SIDES),
}


@pytest.fixture(scope='module')
def prepared(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  raw = toy.corpus.write_raw(tmp_path_factory.mktemp('card') / 'raw')
  toy.corpus.prepare(raw)
  return raw.parent / 'data' / 'toy'


@pytest.fixture
def folder(prepared: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  """A copy to be spoilt."""
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


def test_a_good_folder(folder: pathlib.Path):
  card.verify(folder)
  written = card.read_card(folder)
  sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
  del sums['card.json']
  assert written['sha256'] == sums
  assert written['vocabulary']['sha256'] == sums['vocabulary.model']
  assert sums.keys() == FILES


def test_the_identity_is_that_of_the_content(folder: pathlib.Path):
  """Of vocabulary, tokens and text alone, by a command that is everywhere."""
  names = 'dev.* test.* train.* vocabulary.model'
  command = f'LC_ALL=C; sha256sum {names} | sha256sum'
  done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
  expected = done.stdout.split()[0]
  assert json.loads((folder / 'card.json').read_bytes())['identity'] == expected
  rewrite(folder, lambda content: content['splits']['train'].update({'from': []}))
  assert card.read_card(folder)['identity'] == expected
  rewrite(folder, lambda content: content.pop('identity'))
  card.verify(folder)
  assert card.read_card(folder)['identity'] == expected  # of a card of an older version
  rewrite(folder, lambda content: content.update(identity='0' * 64))
  assert 'the identity on the card.json is not that of its sums' in refused(folder)


@pytest.mark.parametrize('name', sorted(FILES))
def test_any_other_content_is_another_corpus(name: str, folder: pathlib.Path):
  before = card.read_card(folder)
  with (folder / name).open('ab') as file:
    file.write(b'x')
  card.write_card(folder, before)
  assert card.read_card(folder)['identity'] != before['identity']


@pytest.mark.parametrize('name', sorted(FILES))
def test_each_file_is_watched(name: str, folder: pathlib.Path):
  """A bit at either end or in the middle, a byte more, the file gone."""
  path = folder / name
  whole = path.read_bytes()
  for place in {0, len(whole) // 2, len(whole) - 1}:
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert f'{name} is not as it was written. Delete' in refused(folder)
  path.write_bytes(whole + b'\0')
  assert f'{name} is not as it was written' in refused(folder)
  path.unlink()
  assert f': {name} is missing. Delete' in refused(folder)
  path.write_bytes(whole)
  card.verify(folder)


def test_all_that_is_wrong_is_told(folder: pathlib.Path):
  (folder / 'dev.source.txt').unlink()
  (folder / 'dev.target.txt').write_bytes(b'')
  (folder / 'notes').write_bytes(b'mine')
  (folder / 'more').mkdir()
  assert refused(folder) == (
    f'{folder}: dev.source.txt is missing; more is not on the card; notes is not on '
    f'the card; dev.target.txt is not as it was written. Delete the folder and prepare '
    f'it again'
  )


def test_no_card(folder: pathlib.Path):
  (folder / 'card.json').unlink()
  with pytest.raises(UserError, match=r'card\.json: not there; run scripts'):
    card.verify(folder)


@pytest.mark.parametrize('split', SPLITS)
@pytest.mark.parametrize('count', ['kept', 'source', 'target'])
def test_counts(split: str, count: str, folder: pathlib.Path):
  def change(content: dict) -> None:
    about = content['splits'][split]
    (about if count == 'kept' else about['tokens'])[count] += 1

  rewrite(folder, change)
  side = 'target' if count == 'target' else 'source'
  assert f'{split}.{side} has ' in (message := refused(folder))
  assert 'the card says' in message


def test_size_of_the_vocabulary(folder: pathlib.Path):
  rewrite(folder, lambda content: content['vocabulary'].update(pieces=61))
  assert 'the vocabulary has 60 pieces, the card says 61' in refused(folder)


@pytest.mark.parametrize('token', [60, 65535, 0, 1, 2])
def test_tokens_are_of_the_vocabulary(token: int, folder: pathlib.Path):
  """Though the sums be right: what another vocabulary had encoded."""
  side = token_files.Side(folder / 'test.target')
  ids = [
    side.tokens[a:b].tolist() for a, b in zip(side.offsets, side.ends, strict=False)
  ]
  ids[3][0] = token
  token_files.write_tokens(folder / 'test.target', ids)
  sums = {p.name: card.sha256(p) for p in folder.iterdir() if p.name != 'card.json'}
  anew = {'sha256': sums, 'identity': card.identity(sums)}
  rewrite(folder, lambda content: content.update(anew))
  message = refused(folder)
  assert f'sentence 4 has id {token}, which stands for no text' in message
  assert 'test.target.tokens' in message


def test_a_damaged_card(folder: pathlib.Path):
  """No bit of it leads to anything but a message; where it tells of files it counts."""
  path = folder / 'card.json'
  whole = path.read_bytes()
  noticed = 0
  for place in range(0, len(whole), 11):
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    try:
      card.verify(folder)
    except UserError as error:
      noticed += 1
      assert str(folder) in str(error)
  assert noticed > len(whole) / 11 / 2
  for content in (b'', whole[:-9], b'[]', b'{}', b'{"sha256": 3}', b'\xff'):
    path.write_bytes(content)
    assert 'card.json: damaged' in refused(folder)


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    (key, value)
    for key in ('vocabulary', 'sha256', 'splits')
    for value in (None, 5, [], {}, 'x', {'sha256': 5})
    if (key, value) not in (('sha256', {}), ('splits', {}))  # which are right
  ],
)
def test_a_card_of_other_types(key: str, value: object, folder: pathlib.Path):
  rewrite(folder, lambda content: content.update({key: value}))
  with pytest.raises(UserError, match=r'card.json: damaged \('):
    card.read_card(folder)


def test_card_is_utf8_whatever_the_locale(tmp_path: pathlib.Path):
  raw = toy.corpus.write_raw(tmp_path / 'rohe Dateien für Übung')
  toy.corpus.prepare(raw, toy.corpus.CORPUS._replace(name='übung'))
  path = tmp_path / 'data' / 'übung' / 'card.json'
  assert json.loads(path.read_bytes().decode('utf-8'))['name'] == 'übung'
  assert 'übung'.encode() in path.read_bytes()


def test_held_out(folder: pathlib.Path):
  sources, targets = held_out.text(folder, 'dev')
  given = toy.corpus.number_lines(5, 1)
  assert [[line.encode() for line in side] for side in (sources, targets)] == [*given]
  assert len(sources) == len(targets) == 5


def test_by_the_command(folder: pathlib.Path):
  """Fine: 0 and a line. Not: another status and the message."""
  command = [sys.executable, '-m', 'scripts.prepare_data', f'--verify={folder}']
  run = lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  done = run()
  assert (done.returncode, done.stdout) == (0, f'{folder} is as its card says\n')
  with (folder / 'train.source.tokens').open('r+b') as file:
    file.write(b'\xff')
  done = run()
  assert done.returncode != 0 and done.stdout == ''
  assert 'train.source.tokens is not as it was written. Delete' in done.stderr
