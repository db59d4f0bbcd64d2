"""WMT14 of Parquet files, and through tfds itself, small: downloads, unpacks, reads.

A server on this machine stands in for WMT's, with archives made here under the true
names of archives and members.
"""

import collections
import functools
import http.server
import io
import pathlib
import resource
import shutil
import struct
import sys
import tarfile
import threading
from collections.abc import Iterator

import pyarrow.parquet
import pytest
from tensorflow_datasets import decode
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.translate import wmt, wmt14

import toy.corpus
from configs import base
from transformer_jax.data.corpus import WMT14
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import sources
from transformer_jax.prepare import wmt14 as module
from transformer_jax.tasks import LINES

ROWS = [('one', 'eins'), ('two', 'zwei\r'), ('three', 'drei')]
BOTH = ('en', 'de')


def write_parquet(
  folder: pathlib.Path, rows: list, column: str = 'translation'
) -> list[pathlib.Path]:
  """Writes two files of one upload: the first row, and the others."""
  folder.mkdir(exist_ok=True, parents=True)
  paths = [folder / f'train-0000{n}-of-00002.parquet' for n in range(2)]
  for path, some in zip(paths, (rows[:1], rows[1:]), strict=True):
    table = [dict(zip(BOTH, row, strict=True)) for row in some]
    pyarrow.parquet.write_table(pyarrow.table({column: table}), path)
  return paths


def test_every_source_gives_the_same_pairs(tmp_path: pathlib.Path, monkeypatch):
  """Sets of files are preferred to those of sacreBLEU."""
  named = lambda name, *_: sources.Source(name, (), lambda: iter([(name, name)]))
  monkeypatch.setattr(sources, 'sacrebleu_source', named)
  monkeypatch.setattr(module, 'tfds_source', lambda *_: named('tfds'))
  text, parquet = tmp_path / 'text', tmp_path / 'parquet'
  write_parquet(parquet / 'de-en', ROWS)
  text.mkdir()
  own = {'newstest2013': [('a', 'b')], 'newstest2014': [('c', 'd')]}
  for stem, rows in ({'train': ROWS} | own).items():
    sides = ('\n'.join(side).encode() for side in zip(*rows, strict=True))
    toy.corpus.write(text, stem, *sides)

  def read(*folders: pathlib.Path | None) -> list[list]:
    splits = LINES.sources(base.get_config(), *folders).values()
    return [[pair for one in some for pair in one.pairs()] for some in splits]

  train = [(a, b.strip()) for a, b in ROWS]
  of_sacrebleu = [[(name, name)] for name in WMT14.values()]
  assert read(text, None) == [train, *own.values()]
  assert read(parquet, None) == [train, *of_sacrebleu]
  assert read(None, None) == [[('tfds', 'tfds')], *of_sacrebleu]
  toy.corpus.write(parquet, 'newstest2013', b'a', b'b')
  assert read(parquet, None) == [train, [('a', 'b')], of_sacrebleu[1]]
  (parquet / 'newstest2014.de').write_text('c\n')
  with pytest.raises(UserError, match=r'newstest2014\.en'):
    read(parquet, None)
  (parquet / 'newstest2014.de').unlink()
  shutil.rmtree(parquet / 'de-en')
  assert read(parquet, tmp_path) == [[('tfds', 'tfds')], [('a', 'b')], of_sacrebleu[1]]


def test_faults_of_parquet(tmp_path: pathlib.Path):
  paths = write_parquet(tmp_path / 'de-en', [('one', None), ('two', 'x' * 9999)])
  find = lambda: module.parquet_files(tmp_path, BOTH)
  read = lambda path: [*module.parquet_pairs(path, BOTH)]
  assert find() == paths and read(paths[0]) == [('one', None)]
  for path in paths:  # the last file or the first is missing
    kept = path.rename(tmp_path / path.name)
    with pytest.raises(UserError, match='are not all of one upload'):
      find()
    kept.rename(path)
  content = paths[1].read_bytes()
  for damaged in content[: len(content) // 2], b'text\n':
    paths[1].write_bytes(damaged)
    with pytest.raises(UserError, match='parquet: damaged, or no .*get it again'):
      read(paths[1])
  write_parquet(tmp_path / 'de-en', ROWS, 'text')
  with pytest.raises(UserError, match='No match for .*translation'):
    read(paths[1])


# German and English by the parts of training, with flaws of the real files.
TRAIN = {
  name: [[f'{code} {name} {n}' for n in range(40)] for code in ('de', 'en')]
  for name in ('europarl_v7', 'commoncrawl', 'newscommentary_v9')
}
ODD = 'tab\there\u2028\x85\xa0é日本\U0001f600 '
TRAIN['europarl_v7'][0][3:8] = ['', 'x', 'A &amp; B', 'end\r', ODD]
TRAIN['europarl_v7'][1][3:8] = ['no other side', '', 'A & B', 'end\r', 'trailing\r']
# What tfds keeps, without CR at the end.
EXPECTED = collections.Counter(
  (english.removesuffix('\r'), german.removesuffix('\r'))
  for part in TRAIN.values()
  for german, english in zip(*part, strict=True)
  if german and english
)


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch) -> Iterator[pathlib.Path]:
  """Serves archives, from where tfds expects them; returns their folder."""
  folder = tmp_path / 'www' / 'www.statmt.org'
  folder.mkdir(parents=True)
  handler = functools.partial(
    http.server.SimpleHTTPRequestHandler, directory=folder.parent
  )
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    archives = collections.defaultdict(dict)
    for name in [*TRAIN, 'newstest2013', 'newstest2014']:
      about = wmt.DATASET_MAP[name]
      archive = about.get_url('de')[0].split('/')[-1]
      sides = TRAIN.get(name, (['eins'] * 3, ['one'] * 3))
      for member, side in zip(about.get_path('de'), sides, strict=True):
        text = '\n'.join(side) + '\n'
        if member.endswith('.sgm'):
          text = ''.join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(side))
        archives[archive][member] = text.encode()
      # tfds downloads one after another what has this name in its address.
      url = f'http://127.0.0.1:{server.server_port}/{folder.name}/{archive}'
      monkeypatch.setattr(about, '_urls', (url,))
    for archive, members in archives.items():
      with tarfile.open(folder / archive, 'w:gz') as tar:
        for name, content in members.items():
          info = tarfile.TarInfo(name)
          info.size = len(content)
          tar.addfile(info, io.BytesIO(content))
    monkeypatch.setitem(module.COUNTS, 'de-en', EXPECTED.total())
    yield folder
    server.shutdown()


def refused(data: pathlib.Path, message: str) -> None:
  with pytest.raises(UserError, match=f'(?s){message}.*--raw_dir, or one that tfds'):
    [*module.tfds_source(BOTH, data).pairs()]


def test_downloaded_prepared_and_read(host, tmp_path: pathlib.Path, monkeypatch):
  """The second time it reads what it has prepared; TensorFlow is not imported.

  What memory does not hold tfds shuffles through a file for each of 118 records, more
  than a process may open, as through a thousand for all of WMT14. Other programs
  prepare tfrecord, of the same pairs. What is damaged is named.
  """
  monkeypatch.setattr(shuffle, 'MAX_MEM_BUFFER_SIZE', 1000)
  limits, data = resource.getrlimit(resource.RLIMIT_NOFILE), tmp_path / 'data'
  resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
  try:
    source = module.tfds_source(BOTH, data)
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
  (shard,), pairs = source.files, [*source.pairs()]
  assert collections.Counter(pairs) == EXPECTED
  assert source.name == 'wmt14_translate/de-en/1.0.0 train'
  shutil.rmtree(host)
  again = module.tfds_source(('de', 'en'), data)
  assert [*again.pairs()] == [*again.pairs()] == [pair[::-1] for pair in pairs]
  assert 'tensorflow' not in sys.modules
  builder = wmt14.Wmt14Translate(config='de-en', data_dir=data)
  raw = decode.DeserializeMethod.RAW_BYTES
  records = [*builder.as_data_source('train', deserialize_method=raw)]
  content = shard.read_bytes()
  shard.write_bytes(content[: len(content) // 2])
  refused(data, 'array_record.*: missing or damaged')
  framed = [struct.pack('<Q4x', len(one)) + one + bytes(4) for one in records]
  whole = b''.join(framed)
  other = shard.with_name(shard.name.replace('array_record', 'tfrecord'))
  other.write_bytes(whole)
  info = shard.parent / 'dataset_info.json'
  info.write_text(info.read_text().replace('array_record', 'tfrecord'))
  source = module.tfds_source(BOTH, data)
  assert source.files == (other,) and [*source.pairs()] == pairs
  between_records = len(whole) - len(framed[-1])
  for size in (len(whole) - 1, between_records):
    other.write_bytes(whole[:size])
    refused(data, 'tfrecord.*: missing or damaged')
  monkeypatch.setitem(module.COUNTS, 'de-en', 999)
  refused(data, 'does not have the 999 training pairs of WMT14 de-en')
  info.write_text('{')
  refused(data, 'tfds cannot get WMT14')


def test_other_languages():
  with pytest.raises(UserError, match='en-cs: tfds has WMT14 in de-en and fr-en'):
    module.tfds_source(('en', 'cs'))
