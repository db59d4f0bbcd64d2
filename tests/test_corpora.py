"""Text gets in byte for byte, or is dropped and counted, or is refused by line."""

import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys

import pytest

from transformer_jax import batches, corpora, embedded_corpus, vocabulary
from transformer_jax.corpora import Corpus, Text

WORDS = 'one two three four five six seven eight nine ten'.split()
GERMAN = 'eins zwei drei vier fünf sechs sieben acht neun zehn'.split()
CORPUS = Corpus('toy', 'en', 'de', 60, 64, 1)


def number_lines(count: int, seed: int = 0) -> tuple[list[bytes], list[bytes]]:
  """Counting in both languages: the toy corpus of these tests."""
  rng = random.Random(seed)
  rows = [rng.choices(range(10), k=rng.randint(1, 7)) for _ in range(count)]
  say = lambda words: [' '.join(words[i] for i in row).encode() for row in rows]
  return say(WORDS), say(GERMAN)


def write(folder: pathlib.Path, stem: str, source: bytes, target: bytes) -> None:
  (folder / f'{stem}.en').write_bytes(source)
  (folder / f'{stem}.de').write_bytes(target)


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  """A folder with train, dev and test files of good text."""
  folder = tmp_path / 'raw'
  folder.mkdir()
  for seed, (stem, count) in enumerate((('train', 200), ('dev', 5), ('test', 5))):
    write(folder, stem, *(b'\n'.join(s) + b'\n' for s in number_lines(count, seed)))
  return folder


def read(raw: pathlib.Path) -> dict[str, Text]:
  return {split: corpora.read_files(raw, split, 'en', 'de') for split in corpora.SPLITS}


def prepare(raw: pathlib.Path, corpus: Corpus = CORPUS) -> dict:
  data_dir = raw.parent / 'data'
  corpora.prepare(corpus, read(raw), data_dir)
  return corpora.read_card(data_dir / corpus.name)


def decoded(folder: pathlib.Path, name: str) -> list[str]:
  words = vocabulary.Vocabulary(folder / 'vocabulary.model')
  side = batches.Side(folder / name)
  rows = [side.tokens[a:b] for a, b in zip(side.offsets, side.ends, strict=False)]
  return words.decode(rows)


# What comes out


def test_prepared_corpus(raw: pathlib.Path):
  card = prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  train = card['splits']['train']
  assert (train['read'], train['kept'], train['dropped']) == (200, 200, {})
  for side, language in (('source', 'en'), ('target', 'de')):
    lines = (raw / f'train.{language}').read_text().splitlines()
    assert decoded(folder, f'train.{side}') == lines
    written = batches.Side(folder / f'train.{side}')
    assert train['tokens'][side] == len(written.tokens)
    assert train['longest'][side] == written.lengths.max() - 1
    from_file = train['from'][side]
    content = (raw / f'train.{language}').read_bytes()
    assert from_file == {
      'file': f'train.{language}',
      'sha256': hashlib.sha256(content).hexdigest(),
      'lines': 200,
    }
  assert card['vocabulary']['pieces'] == card['vocab_size'] == 60


def test_card_vouches_for_the_files(raw: pathlib.Path):
  card = prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
  assert card['corpus'] == sums.pop('card.json')
  assert card['sha256'] == sums
  assert card['vocabulary']['sha256'] == sums['vocabulary.model']


def test_preparing_is_deterministic(raw: pathlib.Path):
  assert prepare(raw) == prepare(raw, CORPUS._replace(name='again')) | {
    'name': 'toy',
    'corpus': corpora.read_card(raw.parent / 'data' / 'toy')['corpus'],
  }


def test_held_out_text_is_kept_byte_for_byte(shared_data, raw: pathlib.Path):
  """newstest as it is, and lines with every odd character, empty ones included."""
  news = shared_data / 'newstest' / 'en-de'
  odd = ' a  b \n\n\u2028x\u2029\x85y\x0b\x0c\x1c\rz\n\ufeff\u200be\u0301\n\x00\n'
  for stem, name in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    for language in ('en', 'de'):
      content = (news / f'{name}.{language}').read_bytes()
      (raw / f'{stem}.{language}').write_bytes(content + odd.encode())
  card = prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  for stem, count in (('dev', 3005), ('test', 3008)):
    for side, language in (('source', 'en'), ('target', 'de')):
      given = (raw / f'{stem}.{language}').read_bytes()
      assert (folder / f'{stem}.{side}.txt').read_bytes() == given
      assert len(batches.Side(folder / f'{stem}.{side}')) == count
    sources, references = corpora.held_out(folder, stem)
    assert '\n'.join(sources + ['']).encode() == (raw / f'{stem}.en').read_bytes()
    assert len(references) == count
    assert card['splits'][stem]['kept'] == count


# Training text that is not good


BAD = {
  'not UTF-8': [b'caf\xe9', b'\xff\xfe', b'\xed\xa0\x80', b'\xc0\x80', b'\xf0\x9f\x98'],
  'empty': [b'', b'   ', b'\t', '\u3000'.encode(), '\xa0'.encode()],
  'control character': [
    b'a\x00b',
    b'one\rtwo',
    'one\u2028two'.encode(),
    'one\u2029two'.encode(),
    'one\x85two'.encode(),
    b'one\x0btwo',
    b'one\x0ctwo',
    b'one\x1ctwo',
  ],
  'over 5000 characters': [b'ab ' * 1667],
  'over 64 tokens': [b'ten ' * 64],
}


@pytest.mark.parametrize('side', [0, 1])
def test_bad_pairs_are_dropped_and_counted(side: int, raw: pathlib.Path):
  """On either side; the good pairs around them stay together and in order."""
  good = number_lines(200)
  mixed: tuple[list[bytes], list[bytes]] = ([], [])
  bad = [line for lines in BAD.values() for line in lines]
  for number, pair in enumerate(zip(*good, strict=True)):
    if number < len(bad):
      mixed[side].append(bad[number])
      mixed[1 - side].append(b'one')
    mixed[0].append(pair[0])
    mixed[1].append(pair[1])
  write(raw, 'train', *(b'\n'.join(lines) for lines in mixed))
  train = prepare(raw)['splits']['train']
  assert train['dropped'] == {reason: len(lines) for reason, lines in BAD.items()}
  assert (train['read'], train['kept']) == (200 + len(bad), 200)
  folder = raw.parent / 'data' / 'toy'
  for name, lines in zip(corpora.SIDES, good, strict=True):
    assert decoded(folder, f'train.{name}') == [line.decode() for line in lines]


def test_length_limit_counts_the_end_of_sentence(raw: pathlib.Path):
  """A side of max_length - 1 pieces stays, one of max_length goes."""
  prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  longest = int(
    max(batches.Side(folder / f'train.{s}').lengths.max() for s in corpora.SIDES)
  )
  whole = prepare(raw, CORPUS._replace(name='whole', max_length=longest))
  assert whole['splits']['train']['dropped'] == {}
  cut = prepare(raw, CORPUS._replace(name='cut', max_length=longest - 1))
  assert list(cut['splits']['train']['dropped']) == [f'over {longest - 1} tokens']
  for side in corpora.SIDES:
    kept = batches.Side(raw.parent / 'data' / 'cut' / f'train.{side}')
    assert kept.lengths.max() <= longest - 1


def test_byte_order_mark_and_crlf_are_taken_off(raw: pathlib.Path):
  lines = [b'\n'.join(side) + b'\n' for side in number_lines(200)]
  plain = prepare(raw)
  write(raw, 'train', b'\xef\xbb\xbf' + lines[0].replace(b'\n', b'\r\n'), lines[1])
  card = prepare(raw, CORPUS._replace(name='windows'))
  about = card['splits']['train']['from']
  assert about['source']['byte_order_mark'] is True
  assert about['source']['carriage_returns_taken_off'] == 200
  assert about['target'].keys() == {'file', 'sha256', 'lines'}
  assert card['sha256'] == plain['sha256']


@pytest.mark.parametrize('text', ['a\nb', 'a\nb\n', 'a\r\nb\r\n', '\ufeffa\nb'])
def test_lines_end_at_lf_alone(text: str, tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes(text.encode())
  assert corpora.read_lines(path)[0] == ['a', 'b']


def test_other_line_ends_are_inside_the_line(tmp_path: pathlib.Path):
  path = tmp_path / 'x'
  path.write_bytes('a\u2028b\rc\x0bd\x85e\n\n\r\nf\r\r\n'.encode())
  assert corpora.read_lines(path)[0] == ['a\u2028b\rc\x0bd\x85e', '', '', 'f\r']


def test_nothing_left_to_train_on(raw: pathlib.Path):
  write(raw, 'train', b'\n' * 7, b'one\n' * 7)
  with pytest.raises(ValueError, match=r"no training pair of toy.*'empty': 7"):
    prepare(raw)
  write(raw, 'train', b'', b'')
  with pytest.raises(ValueError, match='no training pair of toy'):
    prepare(raw)


def test_no_pair_short_enough(raw: pathlib.Path):
  with pytest.raises(ValueError, match='every training pair is over max_length=1 '):
    prepare(raw, CORPUS._replace(max_length=1))


def test_utf16_is_no_text(raw: pathlib.Path):
  text = 'one\ntwo\n'.encode('utf-16')
  write(raw, 'train', text, text)
  with pytest.raises(ValueError, match="no training pair.*'not UTF-8': 1"):
    prepare(raw)


# Files that do not do


def test_missing_file(raw: pathlib.Path):
  (raw / 'dev.de').unlink()
  with pytest.raises(FileNotFoundError, match=r'dev\.de: no such file; --raw_dir'):
    read(raw)


@pytest.mark.parametrize('split', ['dev', 'test'])
def test_held_out_text_that_is_not_utf8(split: str, raw: pathlib.Path):
  path = raw / f'{split}.de'
  path.write_bytes(path.read_bytes().replace(b'\n', b'\ncaf\xe9 ', 1))
  with pytest.raises(ValueError, match=rf'{split}\.de, line 2: not UTF-8'):
    prepare(raw)
  assert not (raw.parent / 'data' / 'toy').exists()


def test_empty_held_out_file(raw: pathlib.Path):
  write(raw, 'test', b'', b'')
  with pytest.raises(ValueError, match=r'test\.en: the test split is empty'):
    prepare(raw)


def test_too_large_a_vocabulary(raw: pathlib.Path):
  with pytest.raises(ValueError, match=r'no vocabulary of 9000 pieces.*<= \d+'):
    prepare(raw, CORPUS._replace(vocab_size=9000))
  assert not (raw.parent / 'data' / 'toy').exists()


def line_counts(folder: pathlib.Path, sides: list[list[bytes]]) -> tuple[int, int, int]:
  """Both counts and the suspicious line that read_files' message names."""
  write(folder, 'bad', *(b''.join(line + b'\n' for line in side) for side in sides))
  with pytest.raises(ValueError, match='they must pair up') as caught:
    corpora.read_files(folder, 'bad', 'en', 'de')
  message = str(caught.value)
  assert 'bad.en has' in message and 'bad.de has' in message
  counts = re.findall(r'has (\d+)', message)
  line = re.search(r'First suspicious line: (\d+)$', message).group(1)
  return int(counts[0]), int(counts[1]), int(line)


@pytest.mark.parametrize('missing', [1, 2, 40])
@pytest.mark.parametrize(
  'stem',
  [
    'multi30k/val',
    'newstest/en-de/newstest2013',
    'multi30k/test_2016_flickr.lc.norm.tok',
  ],
)
def test_unequal_line_counts(stem: str, missing: int, shared_data, tmp_path):
  """Lines lost in one place of either side: the place is found, nearly always."""
  whole = [
    (shared_data / f'{stem}.{language}').read_bytes().split(b'\n')[:-1]
    for language in ('en', 'de')
  ]
  rng = random.Random(missing)
  wrong = []
  for trial in range(10):
    sides = [list(side) for side in whole]
    place = rng.randrange(len(whole[0]) - missing)
    del sides[trial % 2][place : place + missing]
    *counts, line = line_counts(tmp_path, sides)
    assert counts == [len(side) for side in sides]
    wrong.append(abs(line - (place + 1)))
  assert sorted(wrong)[8] <= 30, wrong


def test_lines_lost_in_several_places(shared_data, tmp_path: pathlib.Path):
  """The first of the places is what is named."""
  whole = [
    (shared_data / f'newstest/en-de/newstest2014.{language}').read_bytes().split(b'\n')
    for language in ('en', 'de')
  ]
  rng = random.Random(0)
  wrong = []
  for trial in range(10):
    sides = [side[:-1] for side in whole]
    places = sorted(rng.sample(range(3000), 4))
    for place in reversed(places):
      del sides[trial % 2][place]
    wrong.append(abs(line_counts(tmp_path, sides)[2] - (places[0] + 1)))
  assert sorted(wrong)[8] <= 30, wrong


@pytest.mark.slow
def test_a_line_lost_among_sorted_ones(shared_data, tmp_path: pathlib.Path):
  """newsmix's Tatoeba part is sorted by length, which then tells nothing."""
  whole = [
    (shared_data / f'newsmix/en-de/train.{language}').read_bytes().split(b'\n')
    for language in ('en', 'de')
  ]
  rng = random.Random(5)
  wrong = []
  for trial in range(4):
    sides = [side[:-1] for side in whole]
    place = rng.randrange(100_000, 240_000)
    del sides[trial % 2][place]
    wrong.append(abs(line_counts(tmp_path, sides)[2] - (place + 1)))
  assert sorted(wrong)[2] <= 100, wrong


@pytest.mark.parametrize(
  'sides', [([b'a'], [b'a', b'b']), ([], [b'a']), ([b'a'] * 9, [])]
)
def test_unequal_line_counts_of_tiny_files(sides, tmp_path: pathlib.Path):
  *counts, line = line_counts(tmp_path, sides)
  assert counts == [len(side) for side in sides]
  assert 1 <= line <= max(counts)


# Unfinished preparations


@pytest.mark.parametrize(
  'place', ['vocabulary.train', 'batches.write_tokens', 'json.dumps']
)
def test_a_failed_preparation_is_no_corpus(place: str, raw, monkeypatch):
  def stop(*_: object, **__: object):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(f'transformer_jax.corpora.{place}', stop)
    with pytest.raises(KeyboardInterrupt):
      prepare(raw)
  data = raw.parent / 'data'
  assert [p.name for p in data.iterdir()] == ['toy.partial']
  with pytest.raises(FileNotFoundError, match=r'card\.json: not there; run scripts'):
    corpora.read_card(data / 'toy')
  assert prepare(raw)['splits']['train']['kept'] == 200
  assert [p.name for p in data.iterdir()] == ['toy']


def test_a_killed_preparation_is_no_corpus(raw: pathlib.Path):
  """SIGKILL while tokens are written, in a process of its own."""
  code = f"""
import os, pathlib, signal
from transformer_jax import batches, corpora
write = batches.write_tokens
def killed(path, sentences):
  write(path, sentences)
  if path.name == 'train.target':
    os.kill(os.getpid(), signal.SIGKILL)
batches.write_tokens = killed
raw = pathlib.Path({str(raw)!r})
texts = {{s: corpora.read_files(raw, s, 'en', 'de') for s in corpora.SPLITS}}
corpora.prepare(corpora.Corpus{tuple(CORPUS)!r}, texts, raw.parent / 'data')
"""
  root = pathlib.Path(__file__).parents[1]
  done = subprocess.run([sys.executable, '-c', code], cwd=root, capture_output=True)
  assert done.returncode == -9
  data = raw.parent / 'data'
  assert [p.name for p in data.iterdir()] == ['toy.partial']
  assert prepare(raw)['splits']['train']['kept'] == 200


# The corpus that comes with the package


@pytest.mark.parametrize('pair', ['en-de', 'de-en', 'en-fr', 'fr-en'])
def test_embedded_sides(pair: str, monkeypatch: pytest.MonkeyPatch):
  """Source and target are the languages asked for, in that order."""
  monkeypatch.setattr(embedded_corpus, 'SIZES', {'train': 40, 'dev': 5, 'test': 5})
  languages = pair.split('-')
  texts = corpora.embedded(*languages, 1)
  articles = {
    'en': r'\bthe\b',
    'de': r'\b(der|die|das|dem|den)\b',
    'fr': r'\b(le|la|les)\b',
  }
  for lines, language in zip(texts['train'][:2], languages, strict=True):
    assert len(lines) == 40
    text = ' '.join(lines).lower()
    counts = {name: len(re.findall(words, text)) for name, words in articles.items()}
    assert max(counts, key=counts.get) == language


@pytest.mark.parametrize('pair', ['de-fr', 'en-en', 'en-es'])
def test_embedded_pairs_there_are_not(pair: str):
  with pytest.raises(ValueError, match='embedded corpus'):
    corpora.embedded(*pair.split('-'), 1)


def test_card_is_utf8_whatever_the_locale(raw: pathlib.Path):
  folder = raw.parent / 'rohe Dateien für Übung'
  raw.rename(folder)
  prepare(folder, CORPUS._replace(name='übung'))
  path = folder.parent / 'data' / 'übung' / 'card.json'
  assert json.loads(path.read_bytes().decode('utf-8'))['name'] == 'übung'
