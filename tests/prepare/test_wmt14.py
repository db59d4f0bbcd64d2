"""WMT14 through tfds itself: its builder, downloader, unpacker and reader, small files.

A server on this machine stands in for WMT's, with archives made here under the true
names of archives and members.
"""

import collections
import functools
import http.server
import io
import pathlib
import random
import resource
import shutil
import struct
import sys
import tarfile
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tensorflow_datasets import decode
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.translate import wmt, wmt14

from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import wmt14 as module

TRAIN = ['europarl_v7', 'commoncrawl', 'newscommentary_v9']


def lines(count: int, seed: int, word: str) -> list[str]:
  rng = random.Random(seed)
  return [f'{word} {n}: {rng.random()}' for n in range(count)]


def small(count: int = 40) -> dict[str, tuple[list[str], list[str]]]:
  """Returns German and English by subsets, with flaws of the real files."""
  subsets = {
    name: (lines(count, seed, f'de {name}'), lines(count, seed, f'en {name}'))
    for seed, name in enumerate(TRAIN)
  }
  german, english = subsets['europarl_v7']
  odd = 'tab\there\u2028\x85\xa0é日本\U0001f600 '
  german[3:8] = ['', 'x', 'A &amp; B', 'end\r', odd]
  english[3:8] = ['no other side', '', 'A & B', 'end\r', 'trailing\r']
  return subsets


def expected(subsets: dict) -> collections.Counter:
  """Returns the pairs that tfds keeps, without CR at the end."""
  pairs = [pair for name in TRAIN for pair in zip(*subsets[name], strict=True)]
  return collections.Counter(
    (b.removesuffix('\r'), a.removesuffix('\r')) for a, b in pairs if a and b
  )


class Host(NamedTuple):
  """A server of the files in a folder."""

  folder: pathlib.Path
  url: str


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch) -> Iterator[Host]:
  folder = tmp_path / 'www'
  folder.mkdir()
  handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = Host(folder, f'http://127.0.0.1:{server.server_port}')
    offer(host, monkeypatch, small())
    yield host
    server.shutdown()


def offer(host: Host, patch: pytest.MonkeyPatch, subsets: dict) -> None:
  """Puts archives on the host, and makes tfds expect them."""
  archives = collections.defaultdict(dict)
  for name in [*TRAIN, 'newstest2013', 'newstest2014']:
    about = wmt.DATASET_MAP[name]
    archive = about.get_url('de')[0].split('/')[-1]
    sides = subsets[name] if name in subsets else (['eins'] * 3, ['one'] * 3)
    for member, side in zip(about.get_path('de'), sides, strict=True):
      text = '\n'.join(side) + '\n'
      if member.endswith('.sgm'):
        text = ''.join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(side))
      archives[archive][member] = text.encode()
    # tfds downloads one after another what has this name in its address.
    url = f'{host.url}/www.statmt.org/{archive}'
    patch.setattr(about, '_urls', (url,))
  (host.folder / 'www.statmt.org').mkdir(exist_ok=True)
  for archive, members in archives.items():
    with tarfile.open(host.folder / 'www.statmt.org' / archive, 'w:gz') as tar:
      for name, content in members.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
  patch.setitem(module.COUNTS, 'de-en', expected(subsets).total())


def test_downloaded_prepared_and_read(host, tmp_path: pathlib.Path):
  """The second time it reads what it has prepared; TensorFlow is not imported."""
  source = module.tfds_source(('en', 'de'), tmp_path / 'data')
  pairs = [*source.pairs()]
  assert collections.Counter(pairs) == expected(small())
  assert source.name == 'wmt14_translate/de-en/1.0.0 train' and len(source.files) == 1
  shutil.rmtree(host.folder)
  again = module.tfds_source(('de', 'en'), tmp_path / 'data')
  assert [*again.pairs()] == [*again.pairs()] == [pair[::-1] for pair in pairs]
  assert 'tensorflow' not in sys.modules


def test_more_than_memory_holds(host, tmp_path: pathlib.Path, monkeypatch):
  """tfds then shuffles through a thousand files, more than a process may open."""
  offer(host, monkeypatch, small(1000))
  monkeypatch.setattr(shuffle, 'MAX_MEM_BUFFER_SIZE', 1000)
  limits = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
  try:
    source = module.tfds_source(('en', 'de'), tmp_path / 'disk')
    assert collections.Counter(source.pairs()) == expected(small(1000))
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_prepared_as_tfrecord(host, tmp_path: pathlib.Path):
  """Other programs prepare tfrecord; it has the same pairs, and damage is named."""
  data = tmp_path / 'data'
  source = module.tfds_source(('en', 'de'), data)
  (shard,) = source.files
  builder = wmt14.Wmt14Translate(config='de-en', data_dir=data)
  raw = decode.DeserializeMethod.RAW_BYTES
  records = [*builder.as_data_source('train', deserialize_method=raw)]
  pairs = [*source.pairs()]
  framed = [struct.pack('<Q4x', len(one)) + one + bytes(4) for one in records]
  whole = b''.join(framed)
  other = shard.with_name(shard.name.replace('array_record', 'tfrecord'))
  other.write_bytes(whole)
  info = shard.parent / 'dataset_info.json'
  info.write_text(info.read_text().replace('array_record', 'tfrecord'))
  source = module.tfds_source(('en', 'de'), data)
  assert source.files == (other,) and [*source.pairs()] == pairs
  between_records = len(whole) - len(framed[-1])
  for size in (len(whole) - 1, len(whole) // 2, between_records):
    other.write_bytes(whole[:size])
    with pytest.raises(UserError, match='tfrecord.*: missing or damaged'):
      [*module.tfds_source(('en', 'de'), data).pairs()]


def test_damage(host, tmp_path: pathlib.Path, monkeypatch):
  """Each message says what to do."""
  data = tmp_path / 'data'
  (shard,) = module.tfds_source(('en', 'de'), data).files

  def refused(message: str, folder: pathlib.Path = data) -> None:
    with pytest.raises(UserError, match=f'(?s){message}.*--raw_dir, or one that tfds'):
      [*module.tfds_source(('en', 'de'), folder).pairs()]

  whole = shard.read_bytes()
  shard.write_bytes(whole[: len(whole) // 2])
  refused('array_record.*: missing or damaged')
  shard.unlink()
  refused('array_record.*: missing or damaged')
  shard.write_bytes(whole)
  (shard.parent / 'dataset_info.json').write_text('{')
  refused('tfds cannot get WMT14')
  shutil.rmtree(shard.parent)
  monkeypatch.setitem(module.COUNTS, 'de-en', 7)
  refused('does not have the 7 training pairs of WMT14 de-en')


def test_other_languages():
  with pytest.raises(UserError, match='en-cs: tfds has WMT14 in de-en and fr-en'):
    module.tfds_source(('en', 'cs'))
