"""Which reader takes which folder. What fits none is refused before it is read."""

import json
import pathlib
import zipfile

import pytest

import toy.corpus
from configs import base
from transformer_jax import quickstart_corpus
from transformer_jax.data import (
  archives,
  card,
  readers,
  text_files,
  wmt14_tfds,
)
from transformer_jax.data.corpus import TREES_ALONE
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import TRANSLATION

CORPUS = toy.corpus.CORPUS
WMT14 = CORPUS._replace(reader='wmt14', files=readers.WMT14_FILES)


def put(folder: pathlib.Path, *names: str) -> pathlib.Path:
  for name in names:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
  return folder


def test_files(raw: pathlib.Path):
  """Both readers take them from a folder with nothing else."""
  for corpus in (CORPUS, CORPUS._replace(reader='wmt14')):
    found = TRANSLATION.splits(corpus, raw, None)
    assert tuple(found) == card.SPLITS
    for split, [bitext] in found.items():
      assert isinstance(bitext, text_files.FileBitext)
      assert bitext.paths == (raw / f'{split}.en', raw / f'{split}.de')
  put(raw, 'dev.tgz', 'x.parquet')  # which are nothing to a corpus of files
  assert TRANSLATION.splits(CORPUS, raw, None)['dev'][0].name == 'dev.en and dev.de'


def test_names_of_files(tmp_path: pathlib.Path):
  """Stem, suffix, language, compression; stems in the order of the config."""
  names = ('b', 'a', 'val', 't1', 't2')
  for language, end in (('de', '.gz'), ('en', '')):
    put(tmp_path, *(f'{name}.lc.tok.{language}{end}' for name in names))
  stems = {'train': ('b', 'a'), 'dev': ('val',), 'test': ('t1', 't2')}
  corpus = CORPUS._replace(files=stems, suffix='.lc.tok')
  corpus = corpus._replace(source_language='de', target_language='en')
  found = TRANSLATION.splits(corpus, tmp_path, None)
  assert {split: [bitext.name for bitext in some] for split, some in found.items()} == {
    split: [f'{stem}.lc.tok.de.gz and {stem}.lc.tok.en' for stem in some]
    for split, some in stems.items()
  }


def test_a_zip_file(raw: pathlib.Path):
  """In place of two files; not beside them."""
  with zipfile.ZipFile(raw / 'train.zip', 'w') as zipped:
    for language in ('en', 'de'):
      zipped.writestr(f'News.de-en.{language}', f'{language}\n')
  with pytest.raises(UserError, match=f'{raw} has train.zip and train.en: keep one'):
    TRANSLATION.splits(CORPUS, raw, None)
  for language in ('en', 'de'):
    (raw / f'train.{language}').unlink()
  for corpus in (CORPUS, CORPUS._replace(reader='wmt14')):
    [train] = TRANSLATION.splits(corpus, raw, None)['train']
    assert [*train.pairs()] == [('en', 'de')]


def test_files_in_another_folder(raw: pathlib.Path, tmp_path: pathlib.Path):
  """An absolute name, whatever the reader."""
  files = CORPUS.files | {'train': (str(raw / 'train'),)}
  elsewhere = put(tmp_path / 'more', 'dev.en', 'dev.de', 'test.en', 'test.de')
  for corpus in (CORPUS, WMT14):
    found = TRANSLATION.splits(corpus._replace(files=files), elsewhere, None)
    assert found['train'][0].paths == (raw / 'train.en', raw / 'train.de')


def test_what_is_drawn_stands_alone(raw: pathlib.Path):
  files = CORPUS.files | {'dev': ('drawn:5', 'dev')}
  message = r"files.dev=\('drawn:5', 'dev'\): what is drawn stands alone"
  with pytest.raises(UserError, match=message):
    TRANSLATION.splits(CORPUS._replace(files=files), raw, None)


def test_sets_of_sacrebleu(raw: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """As any of the files, whatever the suffix of the others."""
  monkeypatch.setattr(readers.sacrebleu_sets, 'bitext', lambda *given: given)
  (raw / 'train.en').rename(raw / 'train.tok.en')
  (raw / 'train.de').rename(raw / 'train.tok.de')
  stems = CORPUS.files | {
    'dev': ('sacrebleu:wmt13',),
    'test': ('sacrebleu:wmt14/full',),
  }
  found = TRANSLATION.splits(CORPUS._replace(files=stems, suffix='.tok'), raw, None)
  assert found['dev'] == [('sacrebleu:wmt13', 'en', 'de')]
  assert found['test'] == [('sacrebleu:wmt14/full', 'en', 'de')]


def test_tfds_without_a_folder(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(wmt14_tfds, 'bitexts', lambda *given: given)
  for folder in (None, tmp_path):
    assert TRANSLATION.splits(WMT14, None, folder) == ('en', 'de', folder)


ARCHIVES = [
  ([name, 'train.en'], 'lacks archives of WMT14') for name in archives.ARCHIVES
]
PARQUET = [
  ([f'{folder}train-00000-of-00001.parquet', 'README.md'], 'lacks validation-00000')
  for folder in ('', 'de-en/', 'en-de/')
]


@pytest.mark.parametrize(
  ('names', 'message'),
  [
    *ARCHIVES,
    *PARQUET,
    (
      ['dev.tgz', 'de-en/train-00000-of-00001.parquet'],
      'holds archives and Parquet: give a folder',
    ),
    (['train.en', 'old/x/train-00000-of-00001.parquet'], r'train\.de: no such file'),
    (
      ['README', 'data/train-00000-of-00001.parquet'],
      f'{next(iter(archives.ARCHIVES))}, no train-00000-of-00003.parquet .there or '
      'in a folder en-de., and no text train.en',
    ),
    (
      ['train.en', 'train.de', 'newstest2013.en'],
      r'newstest2013\.de: no such file, nor .*--raw_dir',
    ),
  ],
)
def test_what_a_folder_of_wmt14_lacks(names, message: str, tmp_path: pathlib.Path):
  """The reader that was chosen says it."""
  with pytest.raises(UserError, match=f'{tmp_path}.*{message}'):
    TRANSLATION.splits(WMT14, put(tmp_path, *names), tmp_path)


@pytest.mark.parametrize('name', ['dev.tgz', 'de-en/train-00000-of-00001.parquet', ''])
def test_files_that_would_not_be_read(name: str, tmp_path: pathlib.Path, monkeypatch):
  """Other corpora beside WMT14's, say: it has its own, wherever it comes from."""
  assert base.get_config().data.files.to_dict() == readers.WMT14_FILES
  raw = put(tmp_path, name) if name else None
  monkeypatch.setattr(readers.wmt14_tfds, 'bitexts', lambda *_: 'tfds')
  kept = json.loads(json.dumps(WMT14.files))  # as a run's own config has them
  try:
    TRANSLATION.splits(WMT14._replace(files=kept), raw, tmp_path)
  except UserError as error:
    assert 'choose' not in str(error)
  more = WMT14.files | {'train': ('train', 'paracrawl')}
  for other in (WMT14._replace(files=more), WMT14._replace(suffix='.tok')):
    with pytest.raises(UserError, match='config.data.files and config.data.suffix'):
      TRANSLATION.splits(other, raw, tmp_path)


def test_no_folder(tmp_path: pathlib.Path):
  with pytest.raises(
    UserError, match='toy is not prepared in --data_dir: give --raw_dir'
  ):
    TRANSLATION.splits(CORPUS, None, tmp_path)
  for corpus in (CORPUS, WMT14):
    for folder in (tmp_path / 'none', put(tmp_path, 'file') / 'file'):
      with pytest.raises(UserError, match=rf'{folder}: no such folder \(--raw'):
        TRANSLATION.splits(corpus, folder, None)


@pytest.mark.parametrize('reader', ['wmt', 'WMT14', 'tfds', 'file', '', 'none'])
def test_a_reader_misspelt(reader: str, raw: pathlib.Path):
  message = f"reader={reader!r}: 'wmt14' or 'files' or 'embedded'"
  with pytest.raises(UserError, match=message):
    TRANSLATION.splits(CORPUS._replace(reader=reader), raw, raw)


def test_embedded(monkeypatch: pytest.MonkeyPatch):
  """Needs no folder, and looks into none."""
  sizes = {'train': 40, 'dev': 5, 'test': 5}
  monkeypatch.setattr(quickstart_corpus, 'SIZES', sizes)
  corpus = CORPUS._replace(reader='embedded', seed=5)
  for folder in (None, pathlib.Path('nowhere')):
    found = TRANSLATION.splits(corpus, folder, None)
    assert tuple(found) == card.SPLITS
    assert found['dev'][0].name == 'embedded corpus, seed 5'


def test_settings_of_trees():
  for key, plain in TREES_ALONE.items():
    asked = {key: not plain}
    with pytest.raises(UserError, match=f'{key}={asked[key]}: only trees have'):
      TRANSLATION.target(CORPUS._replace(**asked))
