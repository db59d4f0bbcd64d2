"""A prepared corpus is used with a word on what it was made from, or refused."""

import gzip
import os
import pathlib

import pytest

import toy.corpus
from toy.corpus import CORPUS, config_of
from transformer_jax import quickstart_corpus
from transformer_jax.data import card, origin, preparing
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import TRANSLATION


def prepare(raw: pathlib.Path, corpus=CORPUS) -> None:
  preparing.prepare(config_of(corpus), TRANSLATION, raw.parent / 'data', raw)


@pytest.fixture
def made(raw: pathlib.Path, capsys: pytest.CaptureFixture) -> pathlib.Path:
  """The folder of the toy corpus, prepared from `raw`."""
  prepare(raw)
  capsys.readouterr()
  return raw.parent / 'data' / 'toy'


def test_it_is_always_said_what_is_used(raw: pathlib.Path, capsys):
  for given in (raw, raw, None):
    preparing.prepare(config_of(CORPUS), TRANSLATION, raw.parent / 'data', given)
    folder = raw.parent / 'data' / 'toy'
    identity = card.read_card(folder)['identity'][:12]
    assert capsys.readouterr().err.endswith(
      f'using {folder} ({identity}), made from train.en and train.de, dev.en and '
      'dev.de, test.en and test.de\n'
    )


def test_few_names_are_said(made: pathlib.Path):
  about = card.read_card(made)
  about['splits']['train']['from'] = [{'name': str(n)} for n in range(30)]
  assert origin.describe(about) == '0, 1, 2, 3, 4, 5, 6, 7, 8, 23 more'


def test_files_that_have_not_changed_are_not_read(made, raw, monkeypatch):
  monkeypatch.setattr(origin, 'sha256', None)
  prepare(raw)
  os.utime(raw / 'dev.de', ns=(0, 1))
  with pytest.raises(TypeError):
    prepare(raw)


@pytest.mark.parametrize('stamps', [True, False])
def test_files_are_what_they_hold(stamps: bool, made, raw, capsys):
  """Not when they were written; nor does a card have to tell their times."""
  for path in raw.iterdir():
    os.utime(path, ns=(0, 1))
  if not stamps:
    about = card.read_card(made)
    del about['stamps']
    card.write_card(made, about)
  prepare(raw)
  assert f'using {made} (' in capsys.readouterr().err


WAY_OUT = r'Leave out --raw_dir to use it, or give --config.data.name=NAME to pre'


@pytest.mark.parametrize('name', ['train.en', 'train.de', 'dev.en', 'test.de'])
@pytest.mark.parametrize('longer', [True, False])
def test_another_file(name: str, longer: bool, made, raw, capsys):
  """Refused by name, be it of the same size or not; another name prepares it."""
  before = {path.name: path.read_bytes() for path in made.iterdir()}
  path = raw / name
  content = path.read_bytes()
  path.write_bytes(content.replace(b'e', b'an' if longer else b'a'))
  message = (
    rf'toy is there, .*: .*{name} \(.{{12}}\) is not the {name} \(.{{12}}\) that'
  )
  with pytest.raises(UserError, match=f'{message} it was made from. {WAY_OUT}'):
    prepare(raw)
  assert {path.name: path.read_bytes() for path in made.iterdir()} == before
  assert capsys.readouterr().err == ''
  prepare(raw, CORPUS._replace(name='another'))
  preparing.prepare(config_of(CORPUS), TRANSLATION, made.parent)  # without --raw_dir


def test_through_another_door(made: pathlib.Path, raw: pathlib.Path):
  """The same text, but it takes a preparation to know that."""
  for path in [*raw.iterdir()]:
    path.with_name(f'{path.name}.gz').write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
  message = 'it was made from train.en and train.de, .*; for train there is train.en.gz'
  with pytest.raises(UserError, match=f'{message} and train.de.gz. {WAY_OUT}'):
    prepare(raw)
  prepare(raw, CORPUS._replace(name='another'))
  identities = {card.read_card(made.parent / n)['identity'] for n in ('toy', 'another')}
  assert len(identities) == 1


def test_no_files(made: pathlib.Path, raw: pathlib.Path):
  (raw / 'dev.de').unlink()
  with pytest.raises(UserError, match=f'dev.de: no such file, .*{WAY_OUT}'):
    prepare(raw)
  with pytest.raises(UserError, match=rf'no such folder \(--raw_dir\). {WAY_OUT}'):
    preparing.prepare(config_of(CORPUS), TRANSLATION, made.parent, raw / 'none')


def test_a_reader_that_reads_no_files(raw, monkeypatch, capsys):
  """It is given a folder in vain, whatever that holds."""
  sizes = {'train': 400, 'dev': 5, 'test': 5}
  monkeypatch.setattr(quickstart_corpus, 'SIZES', sizes)
  corpus = CORPUS._replace(reader='embedded', vocab_size=150)
  for _ in range(2):
    prepare(raw, corpus)
    assert 'made from embedded corpus, seed 1\n' in capsys.readouterr().err


def test_settings_of_another_process(made, raw, monkeypatch):
  """Which made the folder while this one waited for it."""
  with pytest.raises(UserError, match='prepared with train_pairs=1000000000'):
    prepare(raw, CORPUS._replace(train_pairs=9))
  there = os.path.lexists
  monkeypatch.setattr(os.path, 'lexists', lambda path: path != made and there(path))
  monkeypatch.setattr(preparing, 'prepare_corpus', lambda *_: None)
  with pytest.raises(UserError, match='prepared with train_pairs=1000000000'):
    prepare(raw, CORPUS._replace(train_pairs=9))


def test_the_card_has_what_begun_with(made: pathlib.Path, raw: pathlib.Path):
  splits = TRANSLATION.splits(CORPUS, raw, None)
  assert card.read_card(made)['stamps'] == origin.stamps(splits)
  size = (raw / 'dev.de').stat().st_size
  assert card.read_card(made)['stamps']['dev'][0][1][:2] == ['dev.de', size]
  assert toy.corpus.prepare(raw)['stamps'] == origin.stamps(splits)
