"""Which reader takes which folder. What fits none is refused before it is read."""

import pathlib

import pytest

import toy.corpus
from transformer_jax.data import archives, card, readers, text_files, wmt14_tfds
from transformer_jax.machine.errors import UserError

CORPUS = toy.corpus.CORPUS
WMT14 = CORPUS._replace(reader='wmt14')


def put(folder: pathlib.Path, *names: str) -> pathlib.Path:
  for name in names:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
  return folder


def test_files(raw: pathlib.Path):
  """Both readers take them from a folder with nothing else."""
  for corpus in (CORPUS, WMT14):
    found = readers.bitexts(corpus, raw, None)
    assert tuple(found) == card.SPLITS
    for split, [bitext] in found.items():
      assert isinstance(bitext, text_files.FileBitext)
      assert bitext.paths == (raw / f'{split}.en', raw / f'{split}.de')
  put(raw, 'dev.tgz', 'x.parquet')  # which are nothing to a corpus of files
  assert readers.bitexts(CORPUS, raw, None)['dev'][0].name == 'dev.en and dev.de'


def test_names_of_files(tmp_path: pathlib.Path):
  """Stem, suffix, language, compression; stems in the order of the config."""
  names = ('b', 'a', 'val', 't1', 't2')
  for language, end in (('de', '.gz'), ('en', '')):
    put(tmp_path, *(f'{name}.lc.tok.{language}{end}' for name in names))
  stems = {'train': ('b', 'a'), 'dev': ('val',), 'test': ('t1', 't2')}
  corpus = CORPUS._replace(files=stems, suffix='.lc.tok')
  corpus = corpus._replace(source_language='de', target_language='en')
  found = readers.bitexts(corpus, tmp_path, None)
  assert {split: [bitext.name for bitext in some] for split, some in found.items()} == {
    split: [f'{stem}.lc.tok.de.gz and {stem}.lc.tok.en' for stem in some]
    for split, some in stems.items()
  }


def test_tfds_without_a_folder(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(wmt14_tfds, 'bitexts', lambda *given: given)
  for folder in (None, tmp_path):
    assert readers.bitexts(WMT14, None, folder) == ('en', 'de', folder)


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
    (['dev.tgz', 'de-en/x.parquet'], 'holds archives and Parquet: give a folder'),
    (
      ['README'],
      f'{next(iter(archives.ARCHIVES))}, no Parquet files, and no .*train.en',
    ),
    (['train.en', 'train.de', 'dev.en'], r'dev\.de: no such file, nor .*--raw_dir'),
  ],
)
def test_what_a_folder_of_wmt14_lacks(names, message: str, tmp_path: pathlib.Path):
  """The reader that was chosen says it."""
  with pytest.raises(UserError, match=f'{tmp_path}.*{message}'):
    readers.bitexts(WMT14, put(tmp_path, *names), tmp_path)


def test_no_folder(tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='toy is not prepared: give --raw_dir'):
    readers.bitexts(CORPUS, None, tmp_path)
  for corpus in (CORPUS, WMT14):
    for folder in (tmp_path / 'none', put(tmp_path, 'file') / 'file'):
      with pytest.raises(UserError, match=rf'{folder}: no such folder \(--raw'):
        readers.bitexts(corpus, folder, None)


@pytest.mark.parametrize('reader', ['wmt', 'WMT14', 'tfds', 'file', '', 'none'])
def test_a_reader_misspelt(reader: str, raw: pathlib.Path):
  message = f"reader={reader!r}: 'wmt14', 'files' or 'embedded'"
  with pytest.raises(UserError, match=message):
    readers.bitexts(CORPUS._replace(reader=reader), raw, raw)


def test_embedded(monkeypatch: pytest.MonkeyPatch):
  """Needs no folder, and looks into none."""
  sizes = {'train': 40, 'dev': 5, 'test': 5}
  monkeypatch.setattr(readers.embedded.embedded_corpus, 'SIZES', sizes)
  corpus = CORPUS._replace(reader='embedded', corpus_seed=5)
  for folder in (None, pathlib.Path('nowhere')):
    found = readers.bitexts(corpus, folder, None)
    assert tuple(found) == card.SPLITS
    assert found['dev'][0].name == 'embedded corpus, seed 5'
