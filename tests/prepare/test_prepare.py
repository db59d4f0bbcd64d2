"""A corpus is prepared whole or not at all, and a config gets that of its own text."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata

import pytest
import scipy.stats

from toy.config import tiny
from toy.corpus import decoded, number_lines, prepare, write, write_raw
from transformer_jax.data.corpus import (
  NEWSTEST,
  SPLITS,
  STREAMS,
  Corpus,
  Overlap,
  Sentences,
  corpus_settings,
  read_card,
  read_split,
)
from transformer_jax.data.vocabulary import model_pb2
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256
from transformer_jax.prepare import prepare as module
from transformer_jax.prepare.prepare import ensure
from transformer_jax.tasks import LINES


def test_text_comes_through(raw: pathlib.Path, monkeypatch):
  """Blocks that are encoded at once do not show."""
  monkeypatch.setattr(module, '_BLOCK', 7)
  about, folder = prepare(raw), raw.parent / 'data' / 'toy'
  Corpus.open(folder).verify()
  for split in SPLITS:
    for side, language in (('source', 'en'), ('target', 'de')):
      lines = (raw / f'{split}.{language}').read_text().splitlines()
      assert decoded(folder, f'{split}.{side}') == lines
      read = Sentences(folder / f'{split}.{side}')
      assert about.splits[split].tokens[side] == len(read.tokens)
      assert about.splits[split].read == about.splits[split].kept == len(lines)
  assert about.corpus == corpus_settings(tiny())
  (entry,) = about.splits['train'].sources
  assert entry.files == {f'train.{x}': sha256(raw / f'train.{x}') for x in ('en', 'de')}
  assert (about.vocabulary.pieces, about.vocabulary.sentences) == (60, 400)


def test_what_is_left_out_is_counted(raw: pathlib.Path, capsys):
  """Each pair counts for one reason, in its source; the others stay pairs."""
  source, target = number_lines(40, seed=9)
  source[3], target[5], source[7] = b'', b'f\xfcnf', b'one ' * 70
  write(raw, 'odd', b'\n'.join(source), b'\n'.join(target))
  changes = {'data.files.train': ('odd', 'train'), 'data.cleaning.max_ratio': 99.0}
  train = prepare(raw, tiny(**changes)).splits['train']
  dropped = {'empty': 1, 'not UTF-8': 1, 'over 64 tokens': 1}
  assert train.dropped == dropped and (train.read, train.kept) == (240, 237)
  assert [one.read for one in train.sources] == [40, 200]
  for lines, stream in zip((source, target), STREAMS, strict=True):
    kept = [line.decode() for n, line in enumerate(lines) if n not in (3, 5, 7)]
    assert decoded(raw.parent / 'data' / 'toy', f'train.{stream}')[:37] == kept
  warning = 'WARNING: odd.en and odd.de: 1 of 40 pairs are not text (1 not UTF-8)'
  assert warning in capsys.readouterr().err


def test_max_length_counts_eos(raw: pathlib.Path):
  prepare(raw)
  both = read_split(raw.parent / 'data' / 'toy', 'train')
  longest = max(text.lengths.max() for text in both)  # with EOS
  for length, is_cut in (longest, False), (longest - 1, True):
    changes = {'data.name': f'to {length}', 'data.max_length': int(length)}
    dropped = prepare(raw, tiny(**changes)).splits['train'].dropped
    assert [*dropped] == [f'over {length} tokens'] * is_cut


def test_the_same_text_is_the_same_corpus(raw: pathlib.Path):
  same = prepare(raw), prepare(raw, tiny(**{'data.name': 'again'}))
  assert same[0].identity == same[1].identity
  few = prepare(raw, tiny(**{'data.name': 'few', 'data.vocabulary_pairs': 150}))
  assert few.identity != same[0].identity and few.vocabulary.sentences == 300


def test_a_sample_of_training_pairs(raw: pathlib.Path):
  """The seed of training has no part in it."""
  samples = {}
  for name, seed in {'toy': {}, 'a': {'seed': 2}, 'b': {'data.seed': 2}}.items():
    few = {'data.name': name, 'data.train_pairs': 50, 'model.vocab_size': 40}
    train = prepare(raw, tiny(**few | seed)).splits['train']
    assert train.kept == 50 and train.dropped == {'beyond train_pairs=50': 150}
    samples[name] = decoded(raw.parent / 'data' / name, 'train.source')
  assert samples['toy'] == samples['a'] != samples['b']


def test_overlap_is_counted_and_kept(raw: pathlib.Path, capsys):
  """Case, spaces, punctuation and the form of accents do not matter."""
  write(raw, 'train', b'one two\ncaf\xc3\xa9 three\n' * 20, b'eins zwei\ndrei\n' * 20)
  dev = b'One, two.\n one  two \ncafe\xcc\x81 three\nnever\n...\n'
  write(raw, 'dev', dev, b'Drei!\n' * 2 + b'eins\n' * 3)
  write(raw, 'test', b'NEVER\n' * 3 + b'!\n', b'eins\n' * 4)
  changes = {'model.vocab_size': 25, 'data.cleaning.off': True}
  splits = prepare(raw, tiny(**changes)).splits
  overlaps = {'train': Overlap(3, 2, 0), 'test': Overlap(1, 3, 1)}
  assert splits['dev'].overlap == overlaps
  assert splits['test'].overlap == {'train': Overlap(0, 0, 0), 'dev': Overlap(3, 4, 3)}
  said = capsys.readouterr().err
  assert 'dev: train has of its 5 pairs 3 sources, 2 targets, 0 pairs' in said
  assert 'dev: test has of its 5 pairs 1 source, 3 targets, 1 pair' in said
  assert splits['train'].kept == 40


def test_a_target_in_another_order_is_named(raw: pathlib.Path, capsys):
  source, target = number_lines(200)
  for name, lines in ('paired', target), ('shuffled', sorted(target)):
    write(raw, 'train', b'\n'.join(source), b'\n'.join(lines))
    prepare(raw, tiny(**{'data.name': name}))
    said = capsys.readouterr().err
    assert ('train: long sources have short targets' in said) == (name == 'shuffled')
  both = read_split(raw.parent / 'data' / name, 'train')
  expected = scipy.stats.spearmanr(*(text.lengths for text in both)).statistic
  printed = float(re.search(r'rank correlation ([-.\d]+);', said)[1])
  assert printed == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize('nfc', [False, True])
def test_unknown_pieces_are_counted(nfc: bool, raw: pathlib.Path, capsys):
  """Decomposed accents are unknown, unless they are composed first."""
  dev = raw / 'dev.de'
  lines = dev.read_text()
  dev.write_text(unicodedata.normalize('NFD', 'fünf ' * 9 + '\n' + lines))
  (raw / 'dev.en').write_text('five ' * 9 + '\n' + (raw / 'dev.en').read_text())
  splits = prepare(raw, tiny(**{'data.nfc': nfc})).splits
  unknown = splits['dev'].unknown
  assert unknown['source'] == 0 and (unknown['target'] > 0.1) != nfc
  assert splits['train'].unknown == {'source': 0, 'target': 0}
  odd = sum(unicodedata.normalize('NFC', x) != x for x in dev.read_text().splitlines())
  said = capsys.readouterr().err
  assert (f': {odd} references are not in NFC' in said) == nfc
  kept = (raw.parent / 'data' / 'toy' / 'dev.target.txt').read_text()
  assert kept == dev.read_text(), 'references stay as they are'


def test_small_letters(raw: pathlib.Path):
  """In all text of the folder, references too, and so in scores."""
  for split in SPLITS:
    path = raw / f'{split}.en'
    path.write_text(path.read_text().upper())
  prepare(raw, tiny(**{'data.lowercase': True}))
  folder = raw.parent / 'data' / 'toy'
  assert ''.join(Corpus.open(folder).text('dev')[0]).islower()
  assert 'one' in ' '.join(decoded(folder, 'train.source'))


def test_a_vocabulary_of_ones_own(raw: pathlib.Path, tmp_path: pathlib.Path):
  prepare(raw)
  learned = raw.parent / 'data' / 'toy' / 'vocabulary.model'
  own = lambda path, **sizes: tiny(
    **{'data.name': 'own', 'data.vocabulary': str(path)},
    **{f'model.{key}': size for key, size in sizes.items()},
  )
  other = tmp_path / 'other.model'
  model = model_pb2.ModelProto.FromString(learned.read_bytes())
  model.normalizer_spec.name = 'nmt_nfkc'
  other.write_bytes(model.SerializeToString())
  for config, message in (
    (own(learned, target_vocab_size=9), 'is of both languages'),
    (own(learned, vocab_size=70), 'give --config.model.vocab_size=60'),
    (own(other), "normaliser is 'nmt_nfkc', .* spm_train --norm.*=identity --pad_id=0"),
    (own(raw / 'dev.en'), 'dev.en: not a SentencePiece model'),
    (own(tmp_path / 'none'), r'none: no such file \(--config.data.vocabulary\)'),
  ):
    with pytest.raises(UserError, match=message):
      prepare(raw, config)
  mine = tmp_path / 'mine.model'
  mine.write_bytes(learned.read_bytes())
  assert prepare(raw, own(mine)).vocabulary.sha256 == sha256(learned)
  mine.write_bytes(other.read_bytes())
  with pytest.raises(UserError, match=f'with another vocabulary than {mine}: put it'):
    ensure(own(mine), LINES, raw.parent / 'data', raw)
  lines = (raw / 'test.en').read_text().splitlines()
  assert decoded(raw.parent / 'data' / 'own', 'test.source') == lines


def test_a_vocabulary_of_another_run(raw: pathlib.Path):
  first = prepare(raw, tiny(**{'model.target_vocab_size': 40}))
  entries = first.vocabulary, first.target_vocabulary
  assert [(x.pieces, x.sentences) for x in entries] == [(60, 200), (40, 200)]
  run = raw.parent / 'data' / 'toy'
  assert 'ü' in ''.join(Corpus.open(run).vocabularies().target.pieces())
  keys = {'data.name': 'tuned', 'init_from.run': str(run), 'model.vocab_size': 50}
  keys['init_from.vocabulary'] = ' '.join(x.sha256 for x in entries)
  tuned = read_card(ensure(tiny(**keys), LINES, raw.parent / 'data', raw))
  for now, before in zip(
    (tuned.vocabulary, tuned.target_vocabulary), entries, strict=True
  ):
    assert (now.sha256, now.from_run, now.sentences) == (before.sha256, True, 0)
  moved = keys | {'data.name': 'moved', 'init_from.run': str(raw / 'gone')}
  resumed = ensure(tiny(**moved), LINES, raw.parent / 'data', raw, run=run)
  assert read_card(resumed).vocabulary == tuned.vocabulary, 'a run has it already'
  keys |= {'data.name': 'other', 'init_from.vocabulary': '0' * 64}
  with pytest.raises(UserError, match=r'is not the vocabulary \(0{12}\) that other is'):
    ensure(tiny(**keys), LINES, raw.parent / 'data', raw)


def test_warning_of_another_newstest(raw: pathlib.Path, capsys, monkeypatch):
  """The paper's sets are known by their references, not by their names."""
  write(raw, 'newstest2014', b'one\n', b'eins\n')
  warning = "newstest2014 (1 pairs) is not the paper's newstest2014"
  for name in 'other', 'same':
    prepare(raw, tiny(**{'data.name': name, 'data.files.test': ('newstest2014',)}))
    assert (warning in capsys.readouterr().err) == (name == 'other')
    digest = hashlib.sha256(b'eins\n').hexdigest()
    monkeypatch.setitem(NEWSTEST, digest[:12], 'newstest2014')


NUMBERS = number_lines(200)
LONG = [b'\n'.join(b' '.join([line] * 70) for line in side) for side in NUMBERS]
UNEQUAL = b'\n'.join(NUMBERS[0]), b'\n'.join(NUMBERS[1][1:])
ASCII = bytes(range(33, 127))  # more characters than the vocabulary has pieces
RUSSIAN = 'один два три\n'.encode() * 5
MESSAGES = [
  ('dev', b'1\n2\n3\n', b'a\nb\n\xff\n', 'line 3 of the target: not UTF-8'),
  ('test', b'', b'', 'test.en and test.de: the test split is empty'),
  ('dev', b'Das ist der Tag\n', b'This is the day of it\n', 'the two swapped'),
  ('train', b'\n' * 9, b'x\n' * 9, 'no training pair of toy is left: 9 empty'),
  ('train', b'', b'', 'no training pair of toy is left: .* are empty'),
  ('train', *LONG, r'every training pair is over max_length=64 tokens \(--config.data'),
  ('train', *UNEQUAL, 'has 200 lines and .* has 199: they must pair up'),
  ('train', ASCII, ASCII, r'take \d+: give more pieces, or a lower --con'),
  ('test', RUSSIAN, RUSSIAN, 'test: unknown pieces and bytes are .*%'),
]


@pytest.mark.parametrize(('split', 'source', 'target', 'message'), MESSAGES)
def test_bad_text_is_refused(split, source, target, message: str, raw: pathlib.Path):
  write(raw, split, source, target)
  with pytest.raises(UserError, match=message):
    prepare(raw)
  assert [path.name for path in (raw.parent / 'data').iterdir()] == ['toy.lock']


def test_whole_or_not_at_all(raw: pathlib.Path, tmp_path, monkeypatch, capsys):
  """Neither an error leaves a corpus nor a kill; one that is there stays."""
  data, killed = raw.parent / 'data', tmp_path / 'killed'

  def write_card(*_: object) -> None:  # after all other files
    shutil.copytree(data, killed)
    raise RuntimeError

  with monkeypatch.context() as patch, pytest.raises(RuntimeError):
    patch.setattr(module, 'write_card', write_card)
    prepare(raw)
  assert [path.name for path in data.iterdir()] == ['toy.lock']
  shutil.copytree(killed, data, dirs_exist_ok=True)
  assert {path.name for path in data.iterdir()} == {'toy.partial', 'toy.lock'}
  before = prepare(raw)
  assert {path.name for path in data.iterdir()} == {'toy', 'toy.lock'}
  Corpus.open(data / 'toy').verify()
  assert f'preparing {data / "toy"}' in capsys.readouterr().err
  assert prepare(raw, tiny(seed=2)).identity == before.identity
  assert 'preparing' not in capsys.readouterr().err, 'another process has prepared it'


def test_other_text_is_not_taken_for_it(raw: pathlib.Path, tmp_path, capsys):
  config = tiny(**{'data.raw_dir': str(raw)})
  ask = config, LINES, raw.parent / 'data'
  folder = ensure(*ask)
  before = read_card(folder)
  for path in raw.iterdir():
    os.utime(path, (0, 0))
  assert ensure(*ask) == folder
  (raw / 'dev.de').write_text('anders\n' * 5)
  message = r'from other files than .* \(dev.de\)\. To use it .* --config.data.raw_dir='
  with pytest.raises(UserError, match=message):
    ensure(*ask)
  assert read_card(folder) == before
  capsys.readouterr()
  assert ensure(*ask, run=tmp_path / 'run') == folder, 'a resumed run reads no raw text'
  names = ', '.join(f'{split}.en and {split}.de' for split in SPLITS)
  about = f'{folder} ({before.identity[:12]}), made from {names}\n'
  assert capsys.readouterr().err == f'using {about}'
  gone = raw.rename(tmp_path / 'gone')
  assert ensure(*ask) == folder
  shutil.rmtree(folder)
  folder.symlink_to(tmp_path / 'nowhere')  # the work would end at this name
  with pytest.raises(UserError, match='toy: neither a folder nor a link to one'):
    ensure(*ask, gone)


@pytest.mark.slow
def test_memory_does_not_hold_the_text(tmp_path: pathlib.Path):
  """Thirty times the text takes little more memory."""
  script = (
    'import pathlib, sys, resource; from toy import corpus; '
    'corpus.prepare(pathlib.Path(sys.argv[1])); '
    'print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)'
  )
  environment = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)}
  peaks = []
  for times in (50, 1500):
    raw = tmp_path / str(times) / 'raw'
    write_raw(raw)
    for path in raw.glob('train.*'):
      path.write_bytes(path.read_bytes() * times)
    command = [sys.executable, '-c', script, raw]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    peaks.append(int(done.stdout.split()[-1]))
  assert peaks[1] - peaks[0] < 40, peaks  # MB
