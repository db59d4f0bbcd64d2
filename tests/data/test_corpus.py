"""A corpus has its own folder and name; its card names any damage to the folder."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

import toy.corpus
from toy.config import tiny
from transformer_jax.config import Tag, keys_of
from transformer_jax.data import corpus
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError
from transformer_jax.runs import flags

ROOT = pathlib.Path(__file__).parents[2]


def name(*changes: str, config: str = 'multi30k.py:en-de') -> str:
  table = Flags('')
  holder = flags.config_flag(table, '')
  words = (f'--config.{change}' for change in changes)
  table.parse(['x', f'--config={ROOT}/configs/{config}', *words])
  return holder.value.data.name


# Keys and values of data and model, as flags have them.
CHANGES = """
  data.train_pairs=20000 data.train_pairs=20001 data.vocabulary_pairs=9 data.seed=2
  data.files.train=('a','b') data.files.dev=('a',) data.files.test=('a',)
  data.reader=wmt14 data.suffix=.tok data.source_language=fr data.target_language=fr
  data.max_length=100 data.cleaning.max_ratio=3.0 data.cleaning.off=True
  data.character_coverage=0.99 data.byte_fallback=True model.vocab_size=9000
  model.target_vocab_size=50 data.tags=False data.numbers=True data.whole_words=True
  data.nfc=True data.lowercase=True data.vocabulary=x
  data.cleaning.max_characters=9 data.cleaning.drop_untranslated=False
  data.cleaning.min_alphanumeric=0.5
""".split()
# What changes no corpus, or is as it was.
SAME = """
  seed=5 model.N=2 tokens_per_batch=9 train_steps=1 data.max_length=256
  data.train_pairs=1000000000 model.vocab_size=10000
""".split()


def test_each_change_of_a_corpus_has_another_name():
  """Other overrides and their order do not matter; a name that is given stays."""
  assert {name(change) for change in SAME} == {'multi30k.en-de'}
  named = {'data.name', 'init_from.vocabulary'}
  keys = {change.partition('=')[0] for change in CHANGES}
  assert keys == {*keys_of(Tag.CORPUS)} - named
  names = [name(change) for change in CHANGES]
  assert len({*names}) == len(names)
  assert all(re.fullmatch(r'multi30k\.en-de\.[0-9a-f]{8}', chosen) for chosen in names)
  first, second = 'data.train_pairs=20000', 'data.max_length=100'
  assert name(first, 'seed=2') == names[0]
  assert name(first, second) == name(second, first) not in names
  assert name(first, config='big.py:en-de').startswith('wmt14.en-de.')
  assert name(first, 'data.name=multi30k.en-de') == 'multi30k.en-de'


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
  with pytest.raises(UserError, match=str(folder)) as caught:
    corpus.Corpus.open(folder).verify()
  return str(caught.value)


def test_the_identity_is_that_of_the_content(folder: pathlib.Path):
  """It is the sum of vocabulary, tokens and text, as sha256sum prints it."""
  corpus.Corpus.open(folder).verify()
  assert len(corpus.read_card(folder).sha256) == 1 + 3 * 2 * 2 + 2 * 2
  names = 'dev.* test.* train.* vocabulary.model'
  command = f'LC_ALL=C; sha256sum {names} | sha256sum'
  done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
  assert corpus.read_card(folder).identity == done.stdout.split()[0]
  card = json.loads((folder / corpus.CARD).read_bytes())
  card['splits']['train']['sources'] = []
  (folder / corpus.CARD).write_text(json.dumps(card))
  corpus.Corpus.open(folder).verify()
  (folder / corpus.CARD).write_text(json.dumps(card | {'identity': '0' * 64}))
  assert 'not on the card: card.json. Delete' in refused(folder)


def test_a_file_that_is_missing_or_too_many(folder: pathlib.Path):
  (folder / 'train.source.tokens').unlink()
  (folder / 'notes').write_bytes(b'mine')
  assert ': notes, train.source.tokens. ' in refused(folder)


def test_a_damaged_card(folder: pathlib.Path):
  path = folder / corpus.CARD
  for content in (path.read_bytes()[:-9], b'[]', b'\xff'):
    path.write_bytes(content)
    # Whoever deletes the folder of a run loses its checkpoints.
    assert re.search('card.json: damaged .* of a run, put back a copy', refused(folder))
  path.unlink()
  assert 'card.json: no such file; run scripts' in refused(folder)


def test_other_settings(folder: pathlib.Path):
  ours, same = corpus.Corpus.open(folder), {'data.name': 'b', 'data.raw_dir': 'else'}
  ours.check_settings(tiny(**same))
  for key, value in {'data.max_length': 9, 'model.target_vocab_size': 40}.items():
    with pytest.raises(UserError, match=f'prepared with {key}=.*config says {value}:'):
      ours.check_settings(tiny(**{key: value}))


def test_what_is_damaged_is_not_read(folder: pathlib.Path):
  """Training or scores would be of another text, or of other lines."""
  ours = corpus.Corpus.open(folder)
  raw = [toy.corpus.number_lines(5, seed)[1] for seed in (1, 2)]
  written = [[line.decode() for line in lines] for lines in raw]
  assert [ours.text(split)[1] for split in ('dev', 'test')] == written
  readers = {
    'dev.source.txt': lambda: ours.text('dev'),
    'dev.target.txt': lambda: ours.text('dev'),
    'train.target.tokens': lambda: ours.split('train'),
    'train.source.offsets': lambda: ours.split('train'),
    'vocabulary.model': ours.vocabularies,
  }
  for name, read in readers.items():
    path = folder / name
    whole = path.read_bytes()
    assert read()
    for content in (whole[:-1] + b'?', whole[:-8], b''):
      path.write_bytes(content)
      with pytest.raises(UserError, match=f'not on the card: {name}. Delete'):
        read()
    path.write_bytes(whole)
