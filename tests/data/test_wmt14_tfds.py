"""WMT14 through tfds itself: its builder, downloader, unpacker and reader, small files.

A server on this machine stands in for WMT's, with archives made here under the true
names of archives and members.
"""

import collections
import concurrent.futures
import fcntl
import gzip
import html
import importlib.abc
import importlib.machinery
import io
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import types
from collections.abc import Iterator

import pytest
from tensorflow_datasets import download
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.translate import wmt, wmt14

import toy.host
from transformer_jax.data import downloads, newstest, tfds_preparing, wmt14_tfds
from transformer_jax.data.lines import Pair
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

Sides = tuple[list[str], list[str]]  # of the other language and of English

ROOT = pathlib.Path(__file__).parents[2]

# The subsets of each language's training split. tfds knows their archives and members.
_SHARED = ['europarl_v7', 'commoncrawl', 'newscommentary_v9']
TRAIN = {'de': _SHARED, 'fr': [*_SHARED, 'multiun', 'gigafren']}


class Host(toy.host.Host):
  """A host of archives that tfds is sent to."""

  def __init__(self, folder: pathlib.Path, patch: pytest.MonkeyPatch):
    super().__init__(folder)
    self._patch = patch
    self.urls: dict[str, str] = {}

  def url(self, archive: str) -> str:
    # tfds downloads one after another what has this name in its address.
    return super().url(f'www.statmt.org/{archive}')

  def offer(self, subset: str, archive: str, members: dict[str, bytes]) -> None:
    path = self.folder / 'www.statmt.org' / archive
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, 'w' if archive.endswith('.tar') else 'w:gz') as tar:
      for name, content in members.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    self.urls[subset] = self.url(archive)
    self._patch.setattr(wmt.DATASET_MAP[subset], '_urls', (self.urls[subset],))


def lines(count: int, seed: int, word: str) -> list[str]:
  """Different lines, and two that are the same."""
  rng = random.Random(seed)
  made = [f'{word} {n}: {rng.random()}' for n in range(count)]
  return made[:-1] + made[:1]


def small(other: str) -> dict[str, Sides]:
  """Train by subsets, dev and test, with what is bad in real files."""
  splits = {
    subset: (lines(40, seed, f'{other} {subset}'), lines(40, seed, f'en {subset}'))
    for seed, subset in enumerate(TRAIN[other])
  }
  europarl = splits['europarl_v7']
  europarl[0][3:9] = ['', 'x', '   ', 'A &amp; B &quot;c&quot;', 'one\rtwo', 'end\r']
  europarl[1][3:9] = ['no other side', '', 'blank', 'A & B', 'one two', 'end\r']
  europarl[1][9] = 'trailing\r'
  europarl[0][10] = 'tab\there\u2028there\x85\xa0é日本\U0001f600 '
  splits['dev'] = lines(30, 10, f'{other} dev & "so"'), lines(30, 10, 'en dev <s>')
  splits['test'] = (
    lines(33, 11, f"{other} d'été\xa0! & <b>"),
    lines(33, 11, 'en test &'),
  )
  return splits


def sgm(sentences: list[str], kind: str) -> bytes:
  """As WMT wraps them; & is also written bare, white space doubled, lines end CRLF."""
  marked_up = [html.escape(s) if n % 2 else s for n, s in enumerate(sentences)]
  marked_up[5] = marked_up[5].replace(' ', '  ', 1) + ' '
  segments = [f'<seg id="{n}">{s}</seg>' for n, s in enumerate(marked_up, 1)]
  document = ['<doc docid="x">', *segments, '</doc>']
  return '\r\n'.join([f'<{kind}>', *document, f'</{kind}>', '']).encode()


def offer(host: Host, other: str, splits: dict[str, Sides]) -> None:
  languages = other, 'en'
  for subset in TRAIN[other]:
    about = wmt.DATASET_MAP[subset]
    archive = about.get_url(other)[0].split('/')[-1]
    members = {
      name: ''.join(s + '\n' for s in side).encode()
      for name, side in zip(about.get_path(other), splits[subset], strict=True)
    }
    if archive.endswith('.tar'):
      members = {name: gzip.compress(content) for name, content in members.items()}
    host.offer(subset, archive, members)
  members = {
    f'dev/newstest2013.{language}': ''.join(s + '\r\n' for s in side).encode()
    for language, side in zip(languages, splits['dev'], strict=True)
  }
  stem = f'dev/newstest2014-{other}en'
  members[f'{stem}-src.{other}.sgm'] = sgm(splits['test'][0], 'srcset')
  members[f'{stem}-ref.en.sgm'] = sgm(splits['test'][1], 'refset')
  for subset in ('newstest2013', 'newstest2014'):
    host.offer(subset, 'dev.tgz', members)


def publish(
  host: Host, patch: pytest.MonkeyPatch, other: str, splits: dict[str, Sides]
) -> None:
  """On the host; and the counts and the orders expected are those of these splits."""
  offer(host, other, splits)
  expect(patch, host.folder.parent / 'orders', other, splits)


def expect(
  patch: pytest.MonkeyPatch, orders: pathlib.Path, other: str, splits: dict[str, Sides]
) -> None:
  orders.mkdir(exist_ok=True)
  patch.setattr(newstest, 'ORDERS', orders)
  for split, name in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    pairs = list(zip(*splits[split], strict=True))
    newstest.write_order(name, pairs, (other, 'en'))
  train = sum(
    bool(a and b) for s in TRAIN[other] for a, b in zip(*splits[s], strict=True)
  )
  counts = {
    'train': train,
    'dev': len(splits['dev'][0]),
    'test': len(splits['test'][0]),
  }
  patch.setitem(wmt14_tfds.COUNTS, f'{other}-en', counts)


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
  """A host with the small corpus en-de."""
  monkeypatch.setattr(tfds_preparing, 'RETRIES', 0)
  monkeypatch.setattr(downloads, 'LIMIT', 1)
  monkeypatch.setattr(downloads, 'STALLED', 1)
  folder = tmp_path / 'www'
  folder.mkdir()
  host = Host(folder, monkeypatch)
  publish(host, monkeypatch, 'de', small('de'))
  yield host
  host.close()


@pytest.fixture
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
  """Importing it fails, be it there or not, if nothing has imported it before."""

  class Refusal(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
      found = name == 'tensorflow'
      return importlib.machinery.ModuleSpec(name, self) if found else None

    def exec_module(self, module: types.ModuleType) -> None:
      raise AssertionError('TensorFlow was imported')

  monkeypatch.setattr(sys, 'meta_path', [Refusal(), *sys.meta_path])


@pytest.fixture(scope='module')
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """The small corpus en-de, prepared once, to be copied."""
  folder = tmp_path_factory.mktemp('whole')
  with pytest.MonkeyPatch.context() as patch:
    (folder / 'www').mkdir()
    host = Host(folder / 'www', patch)
    offer(host, 'de', small('de'))
    builder = wmt14.Wmt14Translate(config='de-en', data_dir=folder / 'data')
    tfds_preparing.prepare(builder)
    host.close()
  return folder / 'data'


@pytest.fixture
def prepared(
  whole: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
  """A copy of the small corpus en-de, and none to download from."""
  data = tmp_path / 'data'
  shutil.copytree(whole / wmt14_tfds.NAME, data / wmt14_tfds.NAME)
  expect(monkeypatch, tmp_path / 'orders', 'de', small('de'))
  monkeypatch.setattr(wmt14.Wmt14Translate, 'download_and_prepare', None)
  return data


def version(data: pathlib.Path, config: str = 'de-en') -> pathlib.Path:
  return data / wmt14_tfds.NAME / config / '1.0.0'


def shard(data: pathlib.Path, split: str = 'test') -> pathlib.Path:
  name = f'{wmt14_tfds.NAME}-{split}.array_record-00000-of-00001'
  return version(data) / name


def read(
  data: pathlib.Path, source: str = 'en', target: str = 'de'
) -> dict[str, list[Pair]]:
  splits = wmt14_tfds.bitexts(source, target, data)
  assert list(splits) == ['train', 'dev', 'test']
  return {split: list(part.pairs()) for split, (part,) in splits.items()}


def directed(sides: Sides, source: str) -> list[Pair]:
  return list(zip(*(sides[::-1] if source == 'en' else sides), strict=True))


def train_pairs(
  splits: dict[str, Sides], other: str, source: str
) -> collections.Counter:
  """Without those that lack a side, which tfds drops; CR at the end is off."""
  pairs = [p for subset in TRAIN[other] for p in directed(splits[subset], source)]
  return collections.Counter(
    (a.removesuffix('\r'), b.removesuffix('\r')) for a, b in pairs if a and b
  )


# What comes through


@pytest.mark.usefixtures('no_tensorflow')
@pytest.mark.parametrize('other', ['de', 'fr'])
def test_downloaded_prepared_and_read(
  other: str, host: Host, tmp_path: pathlib.Path, monkeypatch
):
  """Without TensorFlow: train as its files have it, dev and test in order, plain."""
  splits = small(other)
  publish(host, monkeypatch, other, splits)
  texts = read(tmp_path / 'data', 'en', other)
  assert texts['dev'] == directed(splits['dev'], 'en')
  assert texts['test'] == directed(splits['test'], 'en')
  assert collections.Counter(texts['train']) == train_pairs(splits, other, 'en')
  # Then again from what has been prepared, in both directions.
  host.faults[''] = '503'
  assert read(tmp_path / 'data', 'en', other) == texts
  assert read(tmp_path / 'data', other, 'en') == {
    split: [pair[::-1] for pair in pairs] for split, pairs in texts.items()
  }


def test_tfds_mixes_and_marks_up(prepared: pathlib.Path):
  """What the reader undoes is there to be undone."""
  builder = wmt14.Wmt14Translate(config='de-en', data_dir=prepared)
  given = [row['de'].decode() for row in builder.as_data_source('test')]
  official = small('de')['test'][0]
  assert sum(a == b for a, b in zip(given, official, strict=True)) < 5
  assert any('&amp;' in line for line in given) and any('  ' in line for line in given)
  plain = [newstest.plain(line) for line in given]
  assert plain != official and sorted(plain) == sorted(official)
  dev = [row['de'].decode() for row in builder.as_data_source('validation')]
  assert all(line.endswith('\r') for line in dev)


@pytest.mark.usefixtures('no_tensorflow')
def test_more_than_memory_holds(host: Host, tmp_path: pathlib.Path, monkeypatch):
  """tfds then shuffles through a thousand files; fewer may be open as a rule."""
  splits = small('de')
  splits['commoncrawl'] = lines(3000, 5, 'viel'), lines(3000, 5, 'much')
  publish(host, monkeypatch, 'de', splits)
  in_memory = read(tmp_path / 'memory')
  monkeypatch.setattr(shuffle, 'MAX_MEM_BUFFER_SIZE', 1000)
  limits = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
  try:
    assert read(tmp_path / 'disk') == in_memory
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, limits[1])
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
  (made,) = {p.name for p in version(tmp_path / 'disk').parent.iterdir()}
  assert made == '1.0.0'


def test_several_shards(host: Host, tmp_path: pathlib.Path, monkeypatch):
  """In small bites; nothing is read twice or left out."""
  make = wmt14.Wmt14Translate.download_and_prepare

  def in_five(builder, file_format: str, download_config: download.DownloadConfig):
    make(
      builder,
      file_format=file_format,
      download_config=download_config.replace(num_shards=5),
    )

  monkeypatch.setattr(wmt14.Wmt14Translate, 'download_and_prepare', in_five)
  monkeypatch.setattr(wmt14_tfds, '_BATCH', 7)
  texts = read(tmp_path / 'data')
  assert len(list(version(tmp_path / 'data').glob('*train*-of-00005'))) == 5
  splits = small('de')
  assert collections.Counter(texts['train']) == train_pairs(splits, 'de', 'en')
  assert texts['test'] == directed(splits['test'], 'en')


def test_origin_and_stamp(prepared: pathlib.Path):
  splits = wmt14_tfds.bitexts('en', 'de', prepared)
  train, test = splits['train'][0], splits['test'][0]
  assert train.name == 'wmt14_translate/de-en/1.0.0 train'
  assert json.loads(json.dumps(train.stamp())) == train.stamp()
  pairs = list(train.pairs())
  origin = train.origin()
  path = shard(prepared, 'train')
  assert origin['files'] == {path.name: sha256(path)}
  about = {'file': train.name, 'lines': len(pairs), 'carriage_returns_taken_off': 1}
  assert origin['target'] == about | {'field': 'de'}
  assert origin['source'] == about | {'field': 'en', 'carriage_returns_taken_off': 2}
  stamps = [part.stamp() for part in (train, test)]
  (turned,) = wmt14_tfds.bitexts('de', 'en', prepared)['train']
  assert turned.stamp() != stamps[0]
  os.utime(shard(prepared))
  assert train.stamp() == stamps[0] and test.stamp() != stamps[1]


def test_tfds_is_imported_only_when_used():
  code = 'import sys, transformer_jax.data.wmt14_tfds; print(*sys.modules)'
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
  )
  assert not {'tensorflow_datasets', 'tensorflow', 'jax'} & {*done.stdout.split()}


# What tfds was kept from preparing


CHILD = """
import json, os, pathlib, resource, signal, sys
urls, counts, orders, data, place, number = json.loads(sys.argv[1])
from tensorflow_datasets.core import dataset_info, writer
from tensorflow_datasets.core.download import extractor
from tensorflow_datasets.translate import wmt
from transformer_jax.data import newstest, wmt14_tfds
for subset, url in urls.items():
  wmt.DATASET_MAP[subset]._urls = (url,)
wmt14_tfds.COUNTS['de-en'] = counts
newstest.ORDERS = pathlib.Path(orders)
if place == 'room':
  resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
else:
  owner, name = {
    'unpacking': (extractor, '_copy'),
    'generating': (writer.Writer, 'write'),
    'writing': (writer.Writer, 'finalize'),
    'describing': (dataset_info.DatasetInfo, 'write_to_directory'),
  }[place]
  work, calls = getattr(owner, name), []
  def killed(*args, **kwargs):
    done = work(*args, **kwargs)
    calls.append(name)
    if len(calls) == number:
      os.kill(os.getpid(), signal.SIGKILL)
    return done
  setattr(owner, name, killed)
wmt14_tfds.bitexts('en', 'de', pathlib.Path(data))
"""


@pytest.mark.parametrize(
  ('place', 'number'),
  [
    ('unpacking', 3),
    ('generating', 100),
    ('writing', 2),
    ('describing', 1),
    ('room', 1000),  # too little for what is downloaded
    ('room', 30_000),  # too little for what is prepared
  ],
)
def test_stopped_while_preparing(
  place: str, number: int, host: Host, tmp_path: pathlib.Path
):
  """By SIGKILL or a full disk. What is left is not taken for whole; next time it is."""
  data, orders = tmp_path / 'data', str(newstest.ORDERS)
  given = [host.urls, wmt14_tfds.COUNTS['de-en'], orders, str(data), place, number]
  command = [sys.executable, '-c', CHILD, json.dumps(given)]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  if place == 'room':
    complaint = rf'UserError: {version(data)} could not be prepared \(.*File too large'
    assert re.search(complaint, done.stderr), done.stderr
  else:
    assert done.returncode == -9, done.stderr
  assert not version(data).exists()
  splits = small('de')
  texts = read(data)
  assert texts['dev'] == directed(splits['dev'], 'en')
  assert collections.Counter(texts['train']) == train_pairs(splits, 'de', 'en')


ARCHIVES = {
  *('training-parallel-europarl-v7.tgz', 'training-parallel-commoncrawl.tgz'),
  *('training-parallel-nc-v9.tgz', 'dev.tgz'),
}


def failed(host: Host, data: pathlib.Path) -> str:
  """What is said; nothing is left that passes for whole, once the host works."""
  with pytest.raises(UserError, match='--raw_dir.*--tfds_data_dir') as caught:
    wmt14_tfds.bitexts('en', 'de', data)
  host.faults.clear()
  assert read(data)['dev'] == directed(small('de')['dev'], 'en')
  return str(caught.value)


@pytest.mark.parametrize(
  ('fault', 'reason'),
  [('503', '503 Service Unavailable'), ('404', '404 .*'), ('silent', 'silent for 1 s')],
)
def test_a_host_that_fails(fault: str, reason: str, host: Host, tmp_path: pathlib.Path):
  """All addresses are named at once, and the ways out."""
  host.faults[''] = fault
  start = time.monotonic()
  with pytest.raises(UserError):
    wmt14_tfds.bitexts('en', 'de', tmp_path / 'data')
  assert time.monotonic() - start < 8
  message = failed(host, tmp_path / 'data')
  assert message.startswith('wmt14_translate/de-en/1.0.0 cannot be downloaded, no an')
  for archive in ARCHIVES:
    assert re.search(rf'{host.url(archive)} \({reason}\)', message)


def test_only_what_is_dead_is_named(host: Host, tmp_path: pathlib.Path):
  host.faults['/www.statmt.org/dev.tgz'] = '404'
  message = failed(host, tmp_path / 'data')
  assert {name for name in ARCHIVES if name in message} == {'dev.tgz'}


def test_a_host_that_is_down(host: Host, tmp_path: pathlib.Path):
  host.close()
  with pytest.raises(UserError, match='cannot be downloaded.*Connection refused') as e:
    wmt14_tfds.bitexts('en', 'de', tmp_path / 'data')
  assert all(host.url(archive) in str(e.value) for archive in ARCHIVES)


@pytest.mark.parametrize('fault', ['cut', 'stalled'])
def test_a_download_that_breaks_off(fault: str, host: Host, tmp_path: pathlib.Path):
  """The archive is named; those before it are kept, and not asked for again."""
  name = 'training-parallel-nc-v9.tgz'
  host.faults[f'/www.statmt.org/{name}'] = fault
  message = failed(host, tmp_path / 'data')
  assert message.startswith(f'{host.url(name)} was not downloaded whole (')
  # Each is asked for once to see whether it answers, and once to have it.
  asked = collections.Counter(path.split('/')[-1] for path in host.asked)
  assert asked[name] == 4 and asked['training-parallel-europarl-v7.tgz'] == 2


def test_an_archive_that_is_not_wmts(host: Host, tmp_path: pathlib.Path, monkeypatch):
  """tfds knows the digests of the archives, by their addresses."""
  url = host.url('training-parallel-commoncrawl.tgz')
  known = checksums.UrlInfo(size=1, checksum='0' * 64, filename='x.tgz')
  monkeypatch.setattr(checksums, 'get_all_url_infos', lambda: {url: known})
  with pytest.raises(UserError, match=f'(?s){url}.*wrong checksum.*--raw_dir'):
    wmt14_tfds.bitexts('en', 'de', tmp_path / 'data')


def test_a_truncated_archive(host: Host, tmp_path: pathlib.Path):
  path = host.folder / 'www.statmt.org' / 'training-parallel-nc-v9.tgz'
  path.write_bytes(path.read_bytes()[:-50])
  with pytest.raises(UserError, match='(?s)extracting .*-nc-v.*Delete the archive'):
    wmt14_tfds.bitexts('en', 'de', tmp_path / 'data')


def test_two_processes_at_once(prepared: pathlib.Path, capsys):
  """The second waits, says so, and takes what the first has made."""
  made = prepared / wmt14_tfds.NAME
  aside = made.rename(prepared / 'aside')
  lock = prepared / f'{wmt14_tfds.NAME}.lock'
  said = ''
  with concurrent.futures.ThreadPoolExecutor() as pool:
    with lock.open('w') as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      second = pool.submit(read, prepared)
      while not said and not second.done():
        said = capsys.readouterr().err
      aside.rename(made)
    assert second.result() == read(prepared)
  name = f'{wmt14_tfds.NAME} in {prepared}'
  assert said == f'waiting for another process that prepares {name}\n'


# Folders that are refused


def test_other_counts(prepared: pathlib.Path, monkeypatch):
  counts = wmt14_tfds.COUNTS['de-en']
  monkeypatch.setitem(wmt14_tfds.COUNTS, 'de-en', counts | {'train': 4_508_785})
  complaint = rf"{version(prepared)}: {counts['train']} pairs in 'train'.* 4,508,785"
  with pytest.raises(UserError, match=complaint):
    wmt14_tfds.bitexts('en', 'de', prepared)


def without_a_split(folder: pathlib.Path) -> None:
  path = folder / 'dataset_info.json'
  about = json.loads(path.read_text())
  path.write_text(json.dumps(about | {'splits': about['splits'][:2]}))


def without_description(folder: pathlib.Path) -> None:
  (folder / 'dataset_info.json').unlink()


def empty(folder: pathlib.Path) -> None:
  shutil.rmtree(folder)
  folder.mkdir()


def half_a_description(folder: pathlib.Path) -> None:
  path = folder / 'dataset_info.json'
  path.write_bytes(path.read_bytes()[:-300])


def without_a_shard(folder: pathlib.Path) -> None:
  shard(folder.parents[2]).unlink()


def as_format(folder: pathlib.Path, name: str) -> None:
  """Says of a folder that it is of another format."""
  for path in folder.glob('*.array_record-*'):
    path.rename(path.with_name(path.name.replace('array_record', name)))
  path = folder / 'dataset_info.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {'fileFormat': name}))


def as_riegeli(folder: pathlib.Path) -> None:
  as_format(folder, 'riegeli')


def as_tfrecord(folder: pathlib.Path) -> None:
  as_format(folder, 'tfrecord')


@pytest.mark.parametrize(
  ('damage', 'complaint'),
  [
    (without_a_split, 'de-en/1.0.0: only half prepared'),
    (without_description, 'de-en/1.0.0: only half prepared'),
    (empty, 'de-en/1.0.0: only half prepared'),
    (half_a_description, 'data: the dataset_info.json of .*de-en is damaged'),
    (without_a_shard, 'test.array_record-00000-of-00001: not there'),
    (as_riegeli, 'de-en/1.0.0: riegeli, not array_record'),
    (as_tfrecord, r"de-en/1.0.0: .*TFRecord.*pip install '\.\[tensorflow\]'"),
  ],
)
def test_refused_folders(damage, complaint: str, prepared: pathlib.Path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)  # not installed
  damage(version(prepared))
  with pytest.raises(UserError, match=f'{prepared.parent}/.*{complaint}'):
    wmt14_tfds.bitexts('en', 'de', prepared)


@pytest.mark.parametrize('key', ['splits', 'version', 'fileFormat'])
def test_a_description_of_other_types(key: str, prepared: pathlib.Path):
  path = version(prepared) / 'dataset_info.json'
  whole = path.read_text()
  wrong = json.dumps(json.loads(whole) | {key: 'x' if key != 'splits' else [{}]})
  for content in (wrong.encode(), b'[]', b'{}', b'\xff'):
    path.write_bytes(content)
    with pytest.raises(UserError, match='dataset_info.json of .*de-en is damaged'):
      wmt14_tfds.bitexts('en', 'de', prepared)


def cut(content: bytes) -> bytes:
  return content[:-3000]


def flipped(content: bytes) -> bytes:
  return content[:900] + bytes([content[900] ^ 4]) + content[901:]


@pytest.mark.parametrize(
  'damage', [cut, flipped, lambda _: b'', lambda _: b'x' * 70_000]
)
def test_damaged_shard(damage, prepared: pathlib.Path):
  shard(prepared).write_bytes(damage(shard(prepared).read_bytes()))
  texts = wmt14_tfds.bitexts('en', 'de', prepared)
  with pytest.raises(UserError, match=f'{shard(prepared)}: truncated or damaged'):
    list(texts['test'][0].pairs())


def test_another_splits_shard(prepared: pathlib.Path):
  """More pairs than it should have, so that reading as many goes well."""
  shutil.copy(shard(prepared), shard(prepared, 'validation'))
  texts = wmt14_tfds.bitexts('en', 'de', prepared)
  with pytest.raises(
    UserError, match=f"{version(prepared)}: .*'validation' is not new"
  ):
    list(texts['dev'][0].pairs())


def test_a_shard_that_changes(prepared: pathlib.Path):
  pairs = wmt14_tfds.bitexts('en', 'de', prepared)['train'][0].pairs()
  next(pairs)
  os.utime(shard(prepared, 'train'))
  with pytest.raises(UserError, match=f'{shard(prepared, "train")}: it changed'):
    list(pairs)


@pytest.mark.parametrize('inner', ['', 'de-en', 'de-en/1.0.0'])
def test_a_folder_within(inner: str, prepared: pathlib.Path):
  around = f'is wmt14_translate or inside it: .*--tfds_data_dir={prepared}$'
  with pytest.raises(UserError, match=around):
    wmt14_tfds.bitexts('en', 'de', prepared / wmt14_tfds.NAME / inner)


@pytest.mark.parametrize('languages', [('en', 'cs'), ('de', 'fr'), ('en', 'en')])
def test_other_languages(languages: tuple[str, str], tmp_path: pathlib.Path):
  with pytest.raises(UserError, match=f'^{"-".join(languages)}: .* de-en and fr-en'):
    wmt14_tfds.bitexts(*languages, tmp_path)


# Prepared elsewhere, with TensorFlow


def test_tfrecord(host: Host, tmp_path: pathlib.Path):
  """The same pairs as from array_record; damage is noticed."""
  tensorflow = pytest.importorskip('tensorflow', reason='an extra: TensorFlow')
  data = tmp_path / 'tfrecord'
  wmt14.Wmt14Translate(config='de-en', data_dir=data).download_and_prepare()
  assert read(data) == read(tmp_path / 'data')
  assert not tensorflow.config.get_visible_devices('GPU')
  (path,) = version(data).glob('*test.tfrecord*')
  whole = path.read_bytes()
  path.write_bytes(flipped(whole))
  with pytest.raises(UserError, match=f'{path}: truncated or damaged'):
    read(data)
  # Without the first record: its length and 16 bytes around it.
  path.write_bytes(whole[16 + int.from_bytes(whole[:8], 'little') :])
  with pytest.raises(UserError, match=f'{path}: 32 pairs, but .* says 33'):
    read(data)
