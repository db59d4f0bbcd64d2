"""A user's own folder, and the config that is made for it."""

import gzip
import json
import pathlib
import random

import pytest

from configs import base, my
from transformer_jax.data import card, preparing
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import TRANSLATION


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
  assert config.data.files.test == ('drawn:300',) and config.data.files.train == (
    'train',
  )
  config.model.vocab_size = 300
  made = preparing.prepare(config, TRANSLATION, tmp_path / 'data')
  assert made.name == 'my.a, b: c.cs-en'
  splits = card.read_card(made)['splits']
  assert [splits[s]['kept'] for s in card.SPLITS] == [2400, 300, 300]
  (folder / 'train.cs').write_text('jedna\n')
  with pytest.raises(UserError, match='is there, and .* is not what it was made from'):
    preparing.prepare(config, TRANSLATION, tmp_path / 'data')
  assert preparing.prepare(config, TRANSLATION, tmp_path / 'data', begun=True) == made
  with pytest.raises(UserError, match='Leave out --raw_dir to use it'):
    preparing.prepare(config, TRANSLATION, tmp_path / 'data', folder, begun=True)
  with pytest.raises(UserError, match='Give --config.data.raw_dir= to use it'):
    preparing.prepare(config, TRANSLATION, tmp_path / 'data')
  with config.unlocked():
    config.data.raw_dir = ''
  assert preparing.prepare(config, TRANSLATION, tmp_path / 'data') == made
  with config.unlocked():
    config.data.raw_dir = str(folder)
  folder.rename(tmp_path / 'gone')
  assert preparing.prepare(config, TRANSLATION, tmp_path / 'data') == made


@pytest.mark.parametrize(
  'damage', [lambda packed: packed[:-9], lambda packed: b'jedna']
)
@pytest.mark.parametrize('language', ['cs', 'en'])
def test_a_damaged_file_is_named(damage, language: str, tmp_path: pathlib.Path):
  for name in ('cs', 'en'):
    content = gzip.compress(b'jedna dva\n' * 99)
    whole = damage(content) if name == language else content
    (tmp_path / f'train.{name}.gz').write_bytes(whole)
  message = f'train.{language}.gz: truncated or damaged .*get it'
  with pytest.raises(UserError, match=message):
    my.get_config(f'cs-en,{tmp_path}')


def test_a_script_without_spaces(tmp_path: pathlib.Path, capsys):
  """Its sentences are not dropped as one word beside many; what is dropped is said."""
  (tmp_path / 'train.en').write_text(
    ''.join(
      f'On day {i} we went and read two long books on rivers .\n' for i in range(99)
    )
    + 'Yes.\n'
  )
  chinese = (
    ''.join(f'第{i}天我们去读了两本关于河流的长篇书。\n' for i in range(99)) + '\n'
  )
  (tmp_path / 'train.zh').write_text(chinese)
  config = my.get_config(f'en-zh,{tmp_path}')
  config.model.vocab_size = 330
  made = preparing.prepare(config, TRANSLATION, tmp_path / 'data')
  splits = card.read_card(made)['splits']
  assert [splits[s]['kept'] for s in card.SPLITS] == [79, 10, 10]
  assert 'training has 79 of 80 pairs; left out: 1 empty' in capsys.readouterr().err


def test_text_in_another_encoding(tmp_path: pathlib.Path):
  for language in ('cs', 'en'):
    (tmp_path / f'train.{language}').write_text('jedna dva\n' * 9, encoding='utf-16')
  with pytest.raises(UserError, match='left out: .* not UTF-8'):
    preparing.prepare(
      my.get_config(f'cs-en,{tmp_path}'), TRANSLATION, tmp_path / 'data'
    )


LETTERS = {'cs': 'abcdefghijklmno', 'zh': [chr(0x4E00 + n) for n in range(1500)]}


@pytest.mark.parametrize('pairs', [30, 150, 700])
@pytest.mark.parametrize('source', LETTERS)
def test_few_pairs_have_fewer_pieces(source: str, pairs: int, tmp_path: pathlib.Path):
  """As many as can be found in so little text, and one for each character."""
  rng = random.Random(1)
  for language in (source, 'en'):
    letters = LETTERS['cs' if language == 'en' else source]
    words = [''.join(rng.choices(letters, k=6)) for _ in range(300)]
    lines = (' '.join(rng.choices(words, k=9)) + '\n' for _ in range(pairs))
    (tmp_path / f'train.{language}').write_text(''.join(lines))
  config = my.get_config(f'{source}-en,{tmp_path}')
  preparing.prepare(config, TRANSLATION, tmp_path / 'data')
  assert config.model.vocab_size < 4000


@pytest.mark.parametrize('name', ['valid', 'val', 'validation'])
def test_other_names_of_dev(name: str, folder: pathlib.Path):
  (folder / f'{name}.cs').write_text('jedna\n')
  with pytest.raises(UserError, match=rf'has {name}\..* and no dev.*: call them dev'):
    my.get_config(f'cs-en,{folder}')
  for language in ('cs', 'en'):
    (folder / f'dev.{language}').write_text('jedna\n')
  assert my.get_config(f'cs-en,{folder}').data.files.dev == ('dev',)


def test_files_of_dev(folder: pathlib.Path):
  """Of both languages: of one alone they are neither taken nor passed over."""
  (folder / 'dev.cs').write_text('jedna\n')
  with pytest.raises(UserError, match='has dev.cs and no dev.en: add that, or rename'):
    my.get_config(f'cs-en,{folder}')
  (folder / 'dev.en.gz').write_bytes(gzip.compress(b'one\n'))
  files = my.get_config(f'cs-en,{folder}').data.files
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
    ('ces-en,{}', "'ces': this language has a code of two letters, cs"),
    ('cs-jpn_JP,{}', "'jpn_JP': this language has a code of two letters, ja"),
    ('cs-cs,{}', 'two different languages'),
    ('cs-en,{}/none', 'none is no folder'),
    ('cs-pt_BR,{}', 'has no train.pt_BR, a sentence a line'),
  ],
)
def test_what_cannot_be(argument: str, message: str, folder: pathlib.Path):
  with pytest.raises(UserError, match=message):
    my.get_config(argument.format(folder))
