"""Which door for which folder; what fits none is refused before anything is read."""

import pathlib

import pytest

import toy.corpus
from transformer_jax.data import (
  archives,
  card,
  parquet,
  readers,
  text_files,
  wmt14_tfds,
)
from transformer_jax.data.embedded import InMemoryBitext
from transformer_jax.machine.errors import UserError

CORPUS = toy.corpus.CORPUS
WMT14 = CORPUS._replace(reader='wmt14')


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
  """Which door was opened, and with what."""
  seen = []
  for door in (archives, parquet, wmt14_tfds):
    name = door.__name__.split('.')[-1]
    monkeypatch.setattr(
      door, 'bitexts', lambda *given, name=name: seen.append((name, *given)) or {}
    )
  return seen


def put(folder: pathlib.Path, *names: str) -> pathlib.Path:
  for name in names:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
  return folder


def test_files(raw: pathlib.Path):
  """Of both readers, for a folder with nothing else."""
  for corpus in (CORPUS, WMT14):
    found = readers.bitexts(corpus, raw, None)
    assert tuple(found) == card.SPLITS
    for split, [part] in found.items():
      assert isinstance(part, text_files.FileBitext)
      assert part.paths == (raw / f'{split}.en', raw / f'{split}.de')


def test_names_of_files(tmp_path: pathlib.Path):
  """Stem, suffix, language, compression; stems in the order of the config."""
  names = ('b', 'a', 'val', 't1', 't2')
  for language, end in (('de', '.gz'), ('en', '')):
    put(tmp_path, *(f'{name}.lc.tok.{language}{end}' for name in names))
  stems = {'train': ('b', 'a'), 'dev': ('val',), 'test': ('t1', 't2')}
  corpus = CORPUS._replace(files=stems, suffix='.lc.tok')
  corpus = corpus._replace(source_language='de', target_language='en')
  found = readers.bitexts(corpus, tmp_path, None)
  assert {split: [part.name for part in parts] for split, parts in found.items()} == {
    split: [f'{stem}.lc.tok.de.gz and {stem}.lc.tok.en' for stem in some]
    for split, some in stems.items()
  }


def test_no_folder(asked, tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='toy is not prepared: give --raw_dir'):
    readers.bitexts(CORPUS, None, tmp_path)
  for corpus in (CORPUS, WMT14):
    for folder in (tmp_path / 'none', put(tmp_path, 'file') / 'file'):
      with pytest.raises(UserError, match=rf'{folder}: no such folder \(--raw'):
        readers.bitexts(corpus, folder, None)
  assert asked == []


def test_tfds_without_a_folder(asked, tmp_path: pathlib.Path):
  for tfds_data_dir in (None, tmp_path):
    readers.bitexts(WMT14, None, tfds_data_dir)
    assert asked.pop() == ('wmt14_tfds', 'en', 'de', tfds_data_dir)


@pytest.mark.parametrize('name', archives.ARCHIVES)
def test_archives(name: str, asked, tmp_path: pathlib.Path):
  """Any of them will do: the door says which are missing."""
  readers.bitexts(WMT14, put(tmp_path, name, 'train.en'), None)
  assert asked == [('archives', tmp_path, 'en', 'de')]


@pytest.mark.parametrize('folder', ['', 'de-en/', 'en-de/'])
def test_parquet(folder: str, asked, tmp_path: pathlib.Path):
  put(tmp_path, f'{folder}train-00000-of-00001.parquet', 'README.md')
  readers.bitexts(WMT14, tmp_path, tmp_path)
  assert asked == [('parquet', tmp_path, 'en', 'de')]


def test_archives_and_parquet_at_once(asked, tmp_path: pathlib.Path):
  put(tmp_path, 'dev.tgz', 'de-en/test-00000-of-00001.parquet')
  with pytest.raises(UserError, match=f'{tmp_path} holds archives and Parquet: give a'):
    readers.bitexts(WMT14, tmp_path, None)
  assert asked == []


def test_plain_files_are_read_whatever_lies_beside_them(asked, raw: pathlib.Path):
  """If it is they that the config asks for."""
  put(raw, 'dev.tgz', 'x.parquet')
  assert readers.bitexts(CORPUS, raw, None)['dev'][0].name == 'dev.en and dev.de'
  assert asked == []


def test_a_folder_without_any_of_wmt14(tmp_path: pathlib.Path):
  """All three ways in are named, not one file of the last."""
  (tmp_path / 'README').touch()
  with pytest.raises(UserError) as caught:
    readers.bitexts(WMT14, tmp_path, None)
  for name in ('training-parallel-europarl-v7.tgz', 'Parquet', 'train.en'):
    assert name in str(caught.value)


def test_a_missing_split(raw: pathlib.Path):
  for language in ('en', 'de'):
    (raw / f'test.{language}').unlink()
  for corpus in (CORPUS, WMT14):
    with pytest.raises(UserError, match=r'test\.en: no such file, nor .*--raw'):
      readers.bitexts(corpus, raw, None)


@pytest.mark.parametrize('reader', ['wmt', 'WMT14', 'tfds', 'file', '', 'none'])
def test_a_reader_misspelt(reader: str, raw: pathlib.Path):
  message = f"reader={reader!r}: 'wmt14', 'files' or 'embedded'"
  with pytest.raises(UserError, match=message):
    readers.bitexts(CORPUS._replace(reader=reader), raw, raw)


def test_embedded(monkeypatch: pytest.MonkeyPatch):
  """Needs no folder, and looks into none."""
  seen = []
  made = {split: [InMemoryBitext('x', [], {})] for split in card.SPLITS}
  monkeypatch.setattr(
    readers.embedded, 'bitexts', lambda *given: seen.append(given) or made
  )
  corpus = CORPUS._replace(reader='embedded', corpus_seed=5)
  assert readers.bitexts(corpus, None, None) == made
  assert readers.bitexts(corpus, pathlib.Path('nowhere'), None) == made
  assert seen == [('en', 'de', 5)] * 2
