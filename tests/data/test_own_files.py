"""A user's own folder, and the config that is made for it."""

import gzip
import json
import pathlib

import pytest

from configs import base, my
from transformer_jax.data import card, preparing


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
  """3,000 pairs, the last line of which has no end."""
  path = tmp_path / 'a, b: c'
  path.mkdir()
  numbers = [f'{i} {i % 7}' for i in range(3000)]
  (path / 'train.cs').write_text('\n'.join(f'jedna {n}' for n in numbers))
  english = '\n'.join(f'one {n}' for n in numbers).encode()
  (path / 'train.en.gz').write_bytes(gzip.compress(english))
  return path


def test_from_files_to_a_corpus(folder: pathlib.Path, tmp_path: pathlib.Path):
  """What is not there is drawn; the corpus needs no raw text once it is made."""
  config = my.get_config(f'cs-en,{folder}')
  assert config.is_locked and config.row is None and config.model.N == 3
  assert config.files.test == ('drawn:300',) and config.files.train == ('train',)
  config.model.vocab_size = 300
  made = preparing.prepare(config, tmp_path / 'data')
  assert made.name == 'my.a, b: c.cs-en'
  splits = card.read_card(made)['splits']
  assert [splits[s]['kept'] for s in card.SPLITS] == [2400, 300, 300]
  (folder / 'train.cs').write_text('jedna\n')
  with pytest.raises(ValueError, match='is there, and .* is not what it was made from'):
    preparing.prepare(config, tmp_path / 'data')
  folder.rename(tmp_path / 'gone')
  assert preparing.prepare(config, tmp_path / 'data') == made


def test_files_of_dev(folder: pathlib.Path):
  (folder / 'dev.cs').write_text('jedna\n')
  files = my.get_config(f'cs-en,{folder}').files
  assert (files.dev, files.test) == (('dev',), ('drawn:300',))


def test_many_pairs_have_the_base_model(folder: pathlib.Path, monkeypatch):
  monkeypatch.setattr(my, 'FEW', 3000)
  config, plain = my.get_config(f'cs-en,{folder}'), base.get_config()
  assert json.loads(config.model.to_json()) == json.loads(plain.model.to_json())
  assert config.train_steps == plain.train_steps


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('', 'SOURCE-TARGET,DIR, such as my.py:de-en,texts'),
    ('cs-en', 'SOURCE-TARGET,DIR'),
    ('cs,{}', 'SOURCE-TARGET,DIR'),
    ('czech-en,{}', "'czech' is no code of a language .*: Czech is cs"),
    ('gr-en,{}', "'gr' is no code of a language"),
    ('cs-cs,{}', 'two different languages'),
    ('cs-en,{}/none', 'none is no folder'),
    ('cs-pt_BR,{}', 'has no train.pt_BR, a sentence a line'),
  ],
)
def test_what_cannot_be(argument: str, message: str, folder: pathlib.Path):
  with pytest.raises(ValueError, match=message):
    my.get_config(argument.format(folder))
