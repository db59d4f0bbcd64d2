"""Sources of a corpus: files, samples of training, a user's own folder, WMT14."""

import hashlib
import json
import pathlib
import random
import unicodedata

import pyarrow
import pyarrow.parquet
import pytest
from ml_collections import ConfigDict

import toy.corpus
from configs import base, my
from toy.config import tiny
from transformer_jax.data import text
from transformer_jax.data.corpus import SPLITS
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning, sources, wmt14
from transformer_jax.prepare.sources import Source, Sources
from transformer_jax.tasks import LINES

ROOT = pathlib.Path(__file__).parents[2]


def lines(splits: Sources) -> dict[str, list]:
  return {
    split: [pair for source in some for pair in source.pairs()]
    for split, some in splits.items()
  }


def test_files_by_name(raw: pathlib.Path):
  """A split has several files in their order; one may lie in a folder."""
  (raw / 'more').mkdir()
  toy.corpus.write(raw / 'more', 'train', b'a\n', b'b\n')
  stems = {'train': ('more/train', 'train'), 'dev': (str(raw / 'dev'),)}
  config = tiny(**{f'data.files.{split}': some for split, some in stems.items()})
  splits = lines(sources.from_files(config, raw))
  assert splits['train'][0] == ('a', 'b')
  assert [len(splits[split]) for split in SPLITS] == [201, 5, 5]


@pytest.mark.parametrize(
  'languages', [('en', 'de'), pytest.param(('de', 'en'), marks=pytest.mark.slow)]
)
def test_the_embedded_corpus(languages: tuple[str, str]):
  """Whole splits in either direction; results/ has references of these test lines."""
  keys = 'data.source_language', 'data.target_language'
  config = tiny(**dict(zip(keys, languages, strict=True)))
  splits = lines(sources.embedded(config))
  assert [len(splits[split]) for split in SPLITS] == [70_000, 1_000, 1_000]
  texts = dict(zip(languages, zip(*splits['test'], strict=True), strict=True))
  result = json.loads((ROOT / 'results' / 'quickstart.en-de.json').read_text())
  text = ''.join(f'{line}\n' for line in texts['de']).encode()
  assert hashlib.sha256(text).hexdigest() == result['references']


SAMPLES = {'data.files.dev': ('drawn:7',), 'data.files.test': ('drawn:5',)}
DRAWN = tiny(**SAMPLES)


def drawn(config: ConfigDict, raw: pathlib.Path) -> dict[str, list]:
  return lines(cleaning.draw(sources.from_files(config, raw), config.data))


def test_sampled_pairs_leave_training(raw: pathlib.Path):
  """So do other pairs of the same source; the order of the text does not matter.

  A model reads the same where accents are composed or not, and spaces are several.
  """
  texts = ((raw / f'train.{code}').read_text() for code in ('en', 'de'))
  one, other = (lines.splitlines() for lines in texts)
  one = [f'{line} à' for line in one]
  one += [*(unicodedata.normalize('NFD', f'  {line}') for line in one)]
  one += [f'faulty {n}' for n in range(50)]
  other += [*(f'other {line}' for line in other), *[''] * 50]
  rows = list(zip(one, other, strict=True))

  def write(rows: list[tuple[str, str]]) -> None:
    sides = (
      ''.join(f'{line}\n' for line in side).encode() for side in zip(*rows, strict=True)
    )
    toy.corpus.write(raw, 'train', *sides)

  write(rows)
  splits = drawn(DRAWN, raw)
  sampled = splits['dev'] + splits['test']
  read = lambda pairs: {unicodedata.normalize('NFC', s).strip() for s, _ in pairs}
  held_out = read(sampled)
  assert len(held_out) == 12 and held_out.isdisjoint(read(splits['train']))
  assert len(read(splits['train'])) == len(read(rows)) - 12
  assert all(target for _, target in sampled)
  assert {*splits['train'], *sampled} <= {*rows}
  # A corpus that is prepared again has the same pairs.
  first = [source for source, _ in splits['dev'][:2]]
  assert [*map(text.nfc, first)] == [
    '  seven ten seven ten à',
    '  seven seven five ten five à',
  ]
  write(random.Random(1).sample(rows, len(rows)))
  again = drawn(DRAWN, raw)
  assert again['dev'] == splits['dev'] and again['test'] == splits['test']
  changed = drawn(tiny(**SAMPLES | {'data.seed': 2}), raw)
  assert changed['dev'] != splits['dev']


def test_text_of_another_encoding(raw: pathlib.Path):
  """The message names the encoding, with and without a sample for dev."""
  for encoding, message in (
    ('latin-1', 'train.en and train.de: .* pairs are not text .*in another encoding'),
    ('utf-16', 'are not text .*control character.*in another encoding'),
  ):
    texts = ((word * 9).encode(encoding) for word in ('eñe\n', 'fünf\n'))
    toy.corpus.write(raw, 'train', *texts)
    for config in (DRAWN, tiny()):
      with pytest.raises(UserError, match=message):
        toy.corpus.prepare(raw, config)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
  folder = tmp_path / 'a, b: c'
  folder.mkdir()
  for language in ('cs', 'en'):
    lines = ''.join(f'{language} {n}\n' for n in range(3000))
    (folder / f'train.{language}').write_text(lines)
  return folder


def test_from_own_files_to_a_config(folder: pathlib.Path, tmp_path: pathlib.Path):
  config = my.get_config(f'cs-en,{folder}')
  assert config.is_locked and config.row is None and config.model.N == 3
  assert config.data.files.test == ('drawn:300',)
  assert config.data.files.train == ('train',)
  assert (config.data.source_language, config.data.target_language) == ('cs', 'en')
  assert config.data.raw_dir == str(folder)
  (tmp_path / 'x').mkdir()
  moved = folder.rename(tmp_path / 'x' / folder.name)
  assert my.get_config(f'cs-en,{moved}').data.name != config.data.name


def test_sizes_of_own_text(tmp_path: pathlib.Path):
  for pairs in (150, 1000, 5000, 30_000, 100_000, 1_000_000):
    (folder := tmp_path / str(pairs)).mkdir()
    for language in ('cs', 'en'):
      line = 'a' if pairs == 1_000_000 else 'a' * 45  # ten tokens, about
      (folder / f'train.{language}').write_text(f'{line}\n' * pairs)
    config = my.get_config(f'cs-en,{folder}')
    assert 4 * config.warmup_steps <= config.train_steps
    assert config.checkpoint_every_steps * 20 <= config.train_steps
    assert bool(config.patience) == (pairs < 20_000)
    assert (config.model.vocab_size == 400) == (pairs == 150)
    if pairs < 1_000_000:  # the highest rate is that of 2,000 updates of warm-up
      trained = pairs - 2 * min(1000, pairs // 10)
      epochs = config.train_steps * config.tokens_per_batch / (10 * trained)
      assert 80 < epochs < 102 or config.train_steps in (100, 12_000)
      highest = config.rate_factor * config.warmup_steps**-0.5
      assert highest == pytest.approx(2000**-0.5)
    if pairs == 100_000:
      assert (config.train_steps, config.warmup_steps) == (12_000, 2000)
  assert config.model == base.get_config().model
  assert config.data.files.dev == ('drawn:1000',)


def test_files_of_dev(folder: pathlib.Path):
  """If they cannot be read, dev is not drawn from train in place of the user's own."""
  for name in reversed(sources.DEV_NAMES):  # the first of these that exists counts
    (folder / f'{name}.cs').write_text('x\n')
    config = my.get_config(f'cs-en,{folder}')
    assert config.data.files.dev == (name,)
    with pytest.raises(UserError, match=rf'{name}\.en: no such file'):
      sources.from_files(config, folder)
    (folder / f'{name}.cs').rename(folder / f'{name}.cs.zip')
    with pytest.raises(UserError, match=r'cs.zip: its ending is none that is read'):
      my.get_config(f'cs-en,{folder}')
    (folder / f'{name}.cs.zip').rename(folder / f'{name}.en')
  (folder / 'dev.cs').symlink_to(folder / 'nowhere')
  with pytest.raises(UserError, match='dev.cs: neither a file nor a link to one'):
    my.get_config(f'cs-en,{folder}')


OWN_MESSAGES = [
  ('', 'SOURCE-TARGET,DIR, such as my.py:de-en,texts'),
  ('cs-en', 'SOURCE-TARGET,DIR'),
  ('zh-Hant-en,{}', 'a region is written with _, as in my.py:zh_Hant-en'),
  ('CS-EN,{}', "'CS' is not a code of a language .* such as de, .* small letters"),
  ('en-en,{}', 'two different languages'),
  ('cs-en,{}/none', 'none/train.cs: no such file'),
  ('cs-de,{}', 'train.de: no such file, nor train.de.gz'),
]


@pytest.mark.parametrize(('argument', 'message'), OWN_MESSAGES)
def test_own_files_that_are_refused(argument: str, message: str, folder: pathlib.Path):
  with pytest.raises(UserError, match=message):
    sources.find_user_text(argument.format(folder))


WMT14 = base.get_config()


@pytest.fixture
def pairs(raw: pathlib.Path) -> list[tuple[str, str]]:
  """Returns training pairs; one sentence ends in CR."""
  rows = lines(sources.from_files(tiny(), raw))['train']
  rows[3] = (rows[3][0], rows[3][1] + '\r')
  return rows


@pytest.fixture(autouse=True)
def sacrebleu_sets(monkeypatch, raw: pathlib.Path) -> None:
  """dev and test of the toy corpus stand for newstest2013 and newstest2014."""
  names = {'sacrebleu:wmt13': 'dev', 'sacrebleu:wmt14/full': 'test'}
  read = lambda stem, languages: sources.file_source(raw, names[stem], languages)
  monkeypatch.setattr(sources, 'sacrebleu_source', read)


def write_parquet(path: pathlib.Path, rows: list, column: str = 'translation') -> None:
  table = [{'de': target, 'en': source} for source, target in rows]
  pyarrow.parquet.write_table(pyarrow.table({column: table}), path, row_group_size=7)


def prepared_parquet(raw: pathlib.Path, rows: list) -> pathlib.Path:
  folder = raw / 'hugging' / 'de-en'
  folder.mkdir(parents=True)
  for n in range(2):
    path = folder / f'train-{n:05}-of-00002.parquet'
    write_parquet(path, rows[n * 90 : 90 if n == 0 else None])
  return raw / 'hugging'


def test_readers_give_the_same_corpus(raw: pathlib.Path, pairs: list, monkeypatch):
  """Text files, Parquet and tfds, which shuffles, give the same bytes."""
  for stem, split in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    for end in ('en', 'de'):
      (raw / f'{split}.{end}').write_bytes((raw / f'{stem}.{end}').read_bytes())
  (raw / 'train.de').write_text(''.join(f'{target}\n' for _, target in pairs))
  folder = prepared_parquet(raw, pairs)
  shuffled = random.Random(1).sample(pairs, len(pairs))
  clean = lambda rows: [tuple(s.removesuffix('\r') for s in row) for row in rows]
  tfds_source = Source('tfds', (), lambda: iter(clean(shuffled)))
  monkeypatch.setattr(wmt14, 'tfds_source', lambda *_: tfds_source)
  splits = {
    'files': LINES.sources(WMT14, raw, None),
    'Parquet': LINES.sources(WMT14, folder, None),
    'tfds': LINES.sources(WMT14, None, None),
  }
  texts = {name: lines(some) for name, some in splits.items()}
  assert texts['files'] == texts['Parquet']
  assert sorted(texts['tfds'].pop('train')) == sorted(texts['files'].pop('train'))
  assert texts['tfds'] == texts['files']
  # Sets that are beside Parquet files, or where tfds gets no text, are not sacreBLEU's.
  toy.corpus.write(folder, 'newstest2013', b'a\n', b'b\n')
  toy.corpus.write(folder, 'mine', b'c\n', b'd\n')
  config = base.get_config()
  config.data.files.test = ('mine',)
  own = {'dev': [('a', 'b')], 'test': [('c', 'd')]}
  from_parquet = lines(wmt14.read_splits(config, folder, None))
  assert from_parquet == own | {'train': clean(pairs)}
  for path in folder.rglob('*.parquet'):
    path.unlink()
  from_tfds = lines(wmt14.read_splits(config, folder, raw))
  assert from_tfds == own | {'train': clean(shuffled)}


def test_parquet_files_of_one_upload(raw: pathlib.Path, pairs: list):
  folder = prepared_parquet(raw, pairs)
  assert wmt14.parquet_files(raw, ('en', 'de')) == []
  files = wmt14.parquet_files(folder, ('en', 'de'))
  assert [path.name for path in files] == sorted(path.name for path in files)
  for path in files:  # a first and a last file alone
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(UserError, match='are not all of one upload'):
      wmt14.parquet_files(folder, ('en', 'de'))
    path.write_bytes(content)


def test_faults_of_parquet(tmp_path: pathlib.Path):
  path = tmp_path / 'train-00000-of-00001.parquet'
  read = lambda: [*wmt14.parquet_pairs(path, ('en', 'de'))]
  write_parquet(path, [('one', None), ('x' * 9999, 'eins')])
  assert read()[0] == ('one', None)
  whole = path.read_bytes()
  for content in (whole[:-9], whole[: len(whole) // 2], b'', b'text\n'):
    path.write_bytes(content)
    with pytest.raises(UserError, match='parquet: damaged, or no .*get it again'):
      read()
  write_parquet(path, [('a', 'b')], 'text')
  with pytest.raises(UserError, match='No match for .*translation'):
    read()


REFUSED = [
  ({}, None, 'toy is not prepared in --data_dir: give --raw_dir to prepare it'),
  ({}, 'none', r'none: no such folder \(--raw_dir\)'),
  ({'data.reader': 'wmt14'}, 'none', r'none: no such folder \(--raw_dir\)'),
  (
    {'data.reader': 'wmt14', 'data.files.train': ('train', 'paracrawl')},
    None,
    r'data\.files\.train and config.data.suffix',
  ),
  ({'data.reader': 'wmt14', 'data.suffix': '.tok'}, None, 'config.data.suffix'),
  ({'data.reader': 'tape'}, '', "reader='tape': 'wmt14' or 'files'"),
  (
    {'data.reader': 'embedded', 'data.target_language': 'fr'},
    '',
    'en-fr: the embedded corpus is en-de',
  ),
  ({'data.files.dev': ('drawn:x',)}, '', r'dev=\(.drawn:x.,\): drawn: and a number'),
  ({'data.files.dev': ('drawn:0',)}, '', 'a number, which stands alone'),
  ({'data.files.dev': ('drawn:5', 'dev')}, '', 'a number, which stands alone'),
  ({'data.files.dev': ('drawn:999',)}, '', '999 for dev are to be drawn: .*fewer'),
]


@pytest.mark.parametrize(('changes', 'folder', 'message'), REFUSED)
def test_corpora_that_are_refused(changes: dict, folder: str, message: str, raw):
  with pytest.raises(UserError, match=message):
    where = None if folder is None else raw / folder
    config = tiny(**changes)
    lines(cleaning.draw(LINES.sources(config, where, None), config.data))
