"""Sources of a corpus: files, sets of WMT, samples of training, a user's own folder."""

import gzip
import hashlib
import json
import pathlib
import random
import unicodedata
from unittest import mock

import pytest
import sacrebleu.dataset
from ml_collections import ConfigDict
from sacrebleu import utils

import toy.corpus
from configs import base, my
from toy.config import tiny
from transformer_jax.data import text
from transformer_jax.data.corpus import SPLITS
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning, sources
from transformer_jax.prepare.sources import Sources
from transformer_jax.tasks import LINES

ROOT = pathlib.Path(__file__).parents[2]


def lines(splits: Sources) -> dict[str, list]:
  return {
    split: [pair for source in some for pair in source.pairs()]
    for split, some in splits.items()
  }


def test_files_by_name(raw: pathlib.Path):
  """A split has several files in their order; one may be packed, in a folder.

  A suffix chooses others.
  """
  more = raw / 'more'
  more.mkdir()
  (more / 'train.en.gz').write_bytes(gzip.compress(b'a\n'))
  (more / 'train.de').write_bytes(b'b\n')
  stems = {'train': ('more/train', 'train'), 'dev': (str(raw / 'dev'),)}
  config = tiny(**{f'data.files.{split}': some for split, some in stems.items()})
  found = sources.from_files(config, raw)
  assert found['train'][0].name == 'train.en.gz and train.de'
  splits = lines(found)
  assert splits['train'][0] == ('a', 'b')
  assert [len(splits[split]) for split in SPLITS] == [201, 5, 5]
  for split in SPLITS:
    toy.corpus.write(raw, f'{split}.tok', b'a\n', b'b\n')
  splits = lines(sources.from_files(tiny(**{'data.suffix': '.tok'}), raw))
  assert splits == dict.fromkeys(SPLITS, [('a', 'b')])
  (more / 'train.en').write_bytes(b'a\n')
  with pytest.raises(UserError, match='train.en and train.en.gz: keep one of them'):
    sources.from_files(config, raw)


SGML = """<refset><doc docid="a"><hl>
<seg id="1">  R&D &amp; &quot;so&quot;
 on\xa0&#228; </seg></hl><p><SEG id=2>two</SEG></p></doc></refset>"""


def test_a_set_of_sacrebleu(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(utils, 'SACREBLEU_DIR', str(tmp_path))
  dataset = sacrebleu.dataset.DATASETS['wmt14/full']
  find = lambda: sources.sacrebleu_source('sacrebleu:wmt14/full', ('en', 'de'))
  for error in OSError('no network'), SystemExit(1), None:  # None: an archive is there
    monkeypatch.setattr(dataset, 'maybe_download', mock.Mock(side_effect=error))
    with pytest.raises(UserError, match=f'could not be downloaded .*Delete {tmp_path}'):
      find()
  for name, word in zip(dataset.langpairs['en-de'], ('two', 'zwei'), strict=True):
    path = tmp_path / 'wmt14/full/raw' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SGML.replace('two', word).encode())
  first = 'R&D & "so" on\xa0ä'
  assert [*find().pairs()] == [(first, first), ('two', 'zwei')]


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


def test_sampled_pairs_leave_training(raw: pathlib.Path, capsys):
  """So do other pairs of the same source; the order of the text does not matter.

  A model reads the same where accents are composed or not, and spaces are several.
  """
  one, other = ([*map(bytes.decode, x)] for x in toy.corpus.number_lines(200))
  one = [f'{line} à' for line in one]
  one += [*(unicodedata.normalize('NFD', f'  {line}') for line in one)]
  one += [f'faulty {n}' for n in range(50)]
  other += [*(f'other {line}' for line in other), *[''] * 50]
  rows = list(zip(one, other, strict=True))

  def write(rows: list[tuple[str, str]]) -> None:
    sides = ('\n'.join([*side, '']).encode() for side in zip(*rows, strict=True))
    toy.corpus.write(raw, 'train', *sides)

  write(rows)
  splits = drawn(DRAWN, raw)
  sampled = splits['dev'] + splits['test']
  read = lambda pairs: {unicodedata.normalize('NFC', s).strip() for s, _ in pairs}
  held_out = read(sampled)
  assert len(held_out) == 12 and held_out.isdisjoint(read(splits['train']))
  assert len(read(splits['train'])) == len(read(rows)) - 12
  gone = len(rows) - len(splits['train'])
  assert f'train.en and train.de: {gone} pairs are left out' in capsys.readouterr().err
  assert all(target for _, target in sampled)
  assert {*splits['train'], *sampled} <= {*rows}
  # A corpus that is prepared again has the same pairs.
  first, second = (text.nfc(source).split() for source, _ in splits['dev'][:2])
  assert first == 'seven ten seven ten à'.split()
  assert second == 'seven seven five ten five à'.split()
  write(random.Random(1).sample(rows, len(rows)))
  again = drawn(DRAWN, raw)
  assert again['dev'] == splits['dev'] and again['test'] == splits['test']
  changed = drawn(tiny(**SAMPLES | {'data.seed': 2}), raw)
  assert changed['dev'] != splits['dev']


def test_text_of_another_encoding(raw: pathlib.Path):
  texts = (word.encode('utf-16') * 9 for word in ('eñe\n', 'fünf\n'))
  toy.corpus.write(raw, 'train', *texts)
  message = 'train.en and train.de: .* not text .*control char.*in another encoding'
  with pytest.raises(UserError, match=message):
    toy.corpus.prepare(raw, DRAWN)


def test_own_files_and_their_sizes(tmp_path: pathlib.Path, monkeypatch):
  """The name tells folders apart."""
  names = set()
  for pairs in (150, 5000, 30_000, 100_000):
    folder = tmp_path / str(pairs) / 'a, b: c'
    folder.mkdir(parents=True)
    for language in ('cs', 'en'):  # a line has ten tokens, about
      (folder / f'train.{language}').write_text(f'{"a" * 45}\n' * pairs)
    config = my.get_config(f'cs-en,{folder}')
    names.add(config.data.name)
    assert config.data.raw_dir == str(folder) and config.model.N == 3
    assert bool(config.patience) == (pairs < 20_000)
    assert (config.model.vocab_size == 400) == (pairs == 150)
    held_out = min(1000, pairs // 10)
    assert config.data.files.dev == config.data.files.test == (f'drawn:{held_out}',)
    assert config.best_by == ('perplexity' if pairs < 20_000 else '')
    tokens = 10 * (pairs - 2 * held_out)
    epochs = config.train_steps * config.tokens_per_batch / tokens
    assert 80 < epochs < 102 or config.train_steps in (100, 12_000)
    assert config.warmup_steps == min(2000, config.train_steps // 4)
    highest = config.rate_factor * config.warmup_steps**-0.5
    assert highest == pytest.approx(2000**-0.5)  # that of 2,000 updates of warm-up
  assert len(names) == 4
  monkeypatch.setattr(my, 'FEW', 100_000)
  assert my.get_config(f'cs-en,{folder}').model == base.get_config().model


def test_files_of_dev(raw: pathlib.Path):
  """If they cannot be read, dev is not drawn from train in place of the user's own."""
  for language in ('de', 'en'):
    (raw / f'dev.{language}').unlink()
  for name in reversed(sources.DEV_NAMES):  # the first of these that exists counts
    (raw / f'{name}.en').write_text('x\n')
    config = my.get_config(f'de-en,{raw}')
    assert config.data.files.dev == (name,)
  with pytest.raises(UserError, match=r'dev\.de: no such file, nor dev\.de\.gz, '):
    sources.from_files(config, raw)
  (raw / 'dev.en').rename(raw / 'dev.en.zip')
  with pytest.raises(UserError, match=r'en.zip: its ending is none that is read'):
    my.get_config(f'de-en,{raw}')
  (raw / 'dev.en').symlink_to(raw / 'nowhere')
  with pytest.raises(UserError, match='dev.en: neither a file nor a link to one'):
    my.get_config(f'de-en,{raw}')


def test_own_files_that_are_refused(raw: pathlib.Path):
  for argument, message in (
    ('zh-Hant-en,{}', 'a region is written with _, as in my.py:zh_Hant-en'),
    ('CS-EN,{}', "'CS' is not a code of a language .* such as de, .* lowercase"),
    ('en-en,{}', 'two different languages'),
    ('cs-en,{}/none', 'none/train.cs: no such file'),
  ):
    with pytest.raises(UserError, match=message):
      sources.find_user_text(argument.format(raw))


REFUSED = [
  ({}, None, 'toy is not prepared in --data_dir: give --raw_dir to prepare it'),
  ({'data.reader': 'wmt14'}, 'none', r'none: no such folder \(--raw_dir\)'),
  (
    {'data.reader': 'wmt14', 'data.files.train': ('train', 'paracrawl')},
    None,
    r'data\.files\.train and config.data.suffix',
  ),
  ({'data.reader': 'tape'}, '', "reader='tape': 'wmt14' or 'files'"),
  (
    {'data.reader': 'embedded', 'data.target_language': 'fr'},
    '',
    'en-fr: the embedded corpus is en-de',
  ),
  ({'data.files.dev': ('sacrebleu:wmt99',)}, '', 'wmt99: .* no such set .* in en-de'),
  ({'data.files.dev': ('sacrebleu:wmt21',)}, '', 'wmt21: .* no such set'),
  ({'data.files.train': ('/none/typo',)}, '', '/none/typo.en: no such file'),
  ({'data.files.dev': ('drawn:0',)}, '', r'dev=\(.drawn:0.,\): drawn: and a number'),
  ({'data.files.dev': ('drawn:5', 'dev')}, '', 'a number, which stands alone'),
  ({'data.files.dev': ('drawn:999',)}, '', '999 for dev are to be drawn: .*fewer'),
]


@pytest.mark.parametrize(('changes', 'folder', 'message'), REFUSED)
def test_corpora_that_are_refused(changes: dict, folder: str, message: str, raw):
  with pytest.raises(UserError, match=message):
    where = None if folder is None else raw / folder
    config = tiny(**changes)
    lines(cleaning.draw(LINES.sources(config, where, None), config.data))
