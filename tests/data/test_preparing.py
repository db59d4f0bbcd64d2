"""Text gets in byte for byte, or is dropped and counted, or is refused by name."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from toy.corpus import CORPUS, decoded, number_lines, prepare, write
from transformer_jax.data import (
  card,
  cleaning,
  corpus,
  held_out,
  lines,
  token_files,
  vocabulary,
)
from transformer_jax.data.cleaning import Cleaning
from transformer_jax.machine.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]


# What comes out


def test_prepared_corpus(raw: pathlib.Path):
  about = prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  train = about['splits']['train']
  assert (train['read'], train['kept'], train['dropped']) == (200, 200, {})
  [part] = train['from']
  assert (part['name'], part['read'], part['dropped']) == (
    'train.en and train.de',
    200,
    {},
  )
  for side, language in (('source', 'en'), ('target', 'de')):
    lines = (raw / f'train.{language}').read_text(encoding='utf-8').splitlines()
    assert decoded(folder, f'train.{side}') == lines
    written = token_files.Side(folder / f'train.{side}')
    assert train['tokens'][side] == len(written.tokens)
    assert train['longest'][side] == written.lengths.max() - 1
    content = (raw / f'train.{language}').read_bytes()
    assert part[side] == {
      'file': f'train.{language}',
      'sha256': hashlib.sha256(content).hexdigest(),
      'lines': 200,
    }
  card.verify(folder)
  assert {path.name for path in folder.parent.iterdir()} == {'toy', 'toy.lock'}


def test_the_card_says_what_was_asked_for(raw: pathlib.Path):
  """All of it, as a config would be written to JSON."""
  card = prepare(raw)
  asked = CORPUS.as_json()
  assert json.loads(json.dumps(asked)) == asked
  assert {key: card[key] for key in asked} == asked
  assert asked.keys() == {*corpus.Corpus._fields} - {'raw_dir', 'tokenized'}
  assert asked['files'] == {'train': ['train'], 'dev': ['dev'], 'test': ['test']}
  assert cleaning.Cleaning(**asked['cleaning']) == CORPUS.cleaning
  assert card['vocabulary'] == {
    'sha256': card['sha256']['vocabulary.model'],
    **{'pieces': 60, 'sentences': 400, 'used': 400, 'characters': 21},
  }
  assert card['versions'].keys() == {'sentencepiece'}


def test_a_vocabulary_of_the_targets_own(raw: pathlib.Path):
  """Each side is in pieces of its own; one vocabulary for both leaves no trace."""
  shared = prepare(raw)
  about = prepare(raw, CORPUS._replace(name='apart', target_vocab_size=40))
  folder = raw.parent / 'data' / 'apart'
  for side, language in (('source', 'en'), ('target', 'de')):
    lines = (raw / f'train.{language}').read_text(encoding='utf-8').splitlines()
    words = getattr(card.vocabularies(folder), side)
    tokens = token_files.Side(folder / f'train.{side}')
    cuts = zip(tokens.offsets, tokens.ends, strict=False)
    assert words.decode([tokens.tokens[a:b] for a, b in cuts]) == lines
  assert about['target_vocabulary'] == {
    'sha256': about['sha256']['vocabulary.target.model'],
    **{'pieces': 40, 'sentences': 200, 'used': 200, 'characters': 18},
  }
  assert about['vocabulary']['sentences'] == 200
  card.verify(folder)
  assert 'target_vocabulary' not in shared
  with pytest.raises(UserError, match='target_vocab_size=40, the config says 41'):
    card.check_asked(folder, CORPUS._replace(target_vocab_size=41))
  with pytest.raises(UserError, match='target_vocab_size=40, the config says 0'):
    card.check_asked(folder, CORPUS)


def test_preparing_is_deterministic(raw: pathlib.Path):
  first, second = prepare(raw), prepare(raw, CORPUS._replace(name='again'))
  assert first == second | {'name': 'toy'}


def test_held_out_text_is_kept_byte_for_byte(shared_data, raw: pathlib.Path):
  """newstest as it is, and lines with every odd character, empty ones included."""
  news = shared_data / 'newstest' / 'en-de'
  odd = ' a  b \n\n\u2028x\u2029\x85y\x0b\x0c\x1c\rz\n\ufeff\u200be\u0301\n\x00\n'
  for stem, name in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    for language in ('en', 'de'):
      content = (news / f'{name}.{language}').read_bytes()
      (raw / f'{stem}.{language}').write_bytes(content + odd.encode())
  about = prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  for stem, count in (('dev', 3005), ('test', 3008)):
    for side, language in (('source', 'en'), ('target', 'de')):
      given = (raw / f'{stem}.{language}').read_bytes()
      assert (folder / f'{stem}.{side}.txt').read_bytes() == given
      assert len(token_files.Side(folder / f'{stem}.{side}')) == count
    sources, references = held_out.text(folder, stem)
    assert '\n'.join(sources + ['']).encode() == (raw / f'{stem}.en').read_bytes()
    assert len(references) == count
    entry = about['splits'][stem]
    assert entry['kept'] == entry['read'] == count
    assert (entry['official']['known'], entry['official']['unknown']) == (count - 5, 5)


def test_newstest_alone(shared_data, raw: pathlib.Path, capsys):
  """What WMT published comes through to the byte, and is known for what it is."""
  for stem, name in (('dev', 'newstest2013'), ('test', 'newstest2014')):
    for language in ('en', 'de'):
      path = shared_data / 'newstest' / 'en-de' / f'{name}.{language}'
      (raw / f'{stem}.{language}').write_bytes(path.read_bytes())
  splits = prepare(raw)['splits']
  for stem, side, language in (('dev', 'source', 'en'), ('test', 'target', 'de')):
    given = (raw / f'{stem}.{language}').read_bytes()
    written = raw.parent / 'data' / 'toy' / f'{stem}.{side}.txt'
    assert written.read_bytes() == given
    official = splits[stem]['official']
    assert official['known'] == official['of'] == given.count(b'\n')
    assert official['in_order']
  assert 'pairs of newstest' not in capsys.readouterr().err


# Training text that is not good

BAD = {
  'not UTF-8': [b'caf\xe9', b'\xff\xfe', b'\xed\xa0\x80', b'\xc0\x80', b'\xf0\x9f\x98'],
  'empty': [b'', b'   ', b'\t', '\u3000'.encode(), '\xa0'.encode()],
  'control character': [
    b'a\x00b',
    b'one\rtwo',
    *(f'one{end}two'.encode() for end in '\u2028\u2029\x0b\x0c\x1c'),
  ],
  'replacement character': ['caf\ufffd'.encode()],
  'over 5000 characters': [b'ab ' * 1667],
  'length ratio over 9': [b'one ' * 73, b'one two ' * 100],
  'not translated': [b'one ' * 8],
  'letters and digits under 0.3 of the characters': [b'... -- a', b'-- ' * 9],
  'over 64 tokens': [b'ten ' * 64, b'two ' * 72],
}


@pytest.mark.parametrize('side', [0, 1])
def test_bad_pairs_are_dropped_and_counted(side: int, raw: pathlib.Path):
  """On either side; the good pairs around them stay together and in order."""
  good = number_lines(200)
  mixed: tuple[list[bytes], list[bytes]] = ([], [])
  bad = [line for dropped_lines in BAD.values() for line in dropped_lines]
  for number, pair in enumerate(zip(*good, strict=True)):
    if number < len(bad):
      mixed[side].append(bad[number])
      mixed[1 - side].append(b'one ' * 8)
    mixed[0].append(pair[0])
    mixed[1].append(pair[1])
  write(raw, 'train', *(b'\n'.join(dropped_lines) for dropped_lines in mixed))
  corpus = CORPUS._replace(cleaning=Cleaning(False, 5000, 9.0, True, 0.3))
  train = prepare(raw, corpus)['splits']['train']
  assert train['dropped'] == {
    reason: len(dropped_lines) for reason, dropped_lines in BAD.items()
  }
  assert (train['read'], train['kept']) == (200 + len(bad), 200)
  folder = raw.parent / 'data' / 'toy'
  for name, side in zip(lines.SIDES, good, strict=True):
    assert decoded(folder, f'train.{name}') == [line.decode() for line in side]


def test_a_next_line_character_ends_no_line(raw: pathlib.Path):
  """Web text has U+0085 inside of sentences."""
  odd = 'one\x85two\x85', 'eins\x85'
  write(raw, 'odd', *(f'{line}\n'.encode() for line in odd))
  files = CORPUS.files | {'train': ('odd', 'train')}
  train = prepare(raw, CORPUS._replace(files=files))['splits']['train']
  assert (train['kept'], train['dropped']) == (201, {})
  folder = raw.parent / 'data' / 'toy'
  sides = [decoded(folder, f'train.{side}') for side in lines.SIDES]
  assert tuple(side[0] for side in sides) == odd


def test_reasons_are_counted_by_part_and_in_all(raw: pathlib.Path):
  """What was read is what was kept and what was dropped."""
  write(raw, 'a', b'one\n\n\xff\n\n', b'eins\nzwei\ndrei\n\n')
  write(raw, 'b', b'two\n' * 5 + b'\n', b'zwei\n' * 5 + b'x\x00\n')
  files = CORPUS.files | {'train': ('a', 'train', 'b')}
  train = prepare(raw, CORPUS._replace(files=files))['splits']['train']
  assert [(p['name'], p['read'], p['dropped']) for p in train['from']] == [
    ('a.en and a.de', 4, {'not UTF-8': 1, 'empty': 2}),
    ('train.en and train.de', 200, {}),
    ('b.en and b.de', 6, {'empty': 1}),
  ]
  assert train['dropped'] == {'not UTF-8': 1, 'empty': 3}
  assert (train['read'], train['kept']) == (210, 206)
  folder = raw.parent / 'data' / 'toy'
  lines = decoded(folder, 'train.source')
  assert lines[0] == 'one' and lines[-5:] == ['two'] * 5 and len(lines) == 206


def test_some_of_the_good_pairs(raw: pathlib.Path):
  """Bad ones do not count; in another order the same pairs are drawn."""
  write(raw, 'bad', b'\none\n', b'eins\neins\n')
  files = CORPUS.files | {'train': ('bad', 'train')}
  every = prepare(raw, CORPUS._replace(files=files, name='every'))
  first = prepare(raw, CORPUS._replace(files=files, train_pairs=150))
  turned = files | {'train': ('train', 'bad')}
  prepare(raw, CORPUS._replace(name='turned', files=turned, train_pairs=150))

  def pairs_of(name: str) -> list[tuple[str, str]]:
    sides = (
      decoded(raw.parent / 'data' / name, f'train.{side}') for side in lines.SIDES
    )
    return [*zip(*sides, strict=True)]

  every_pair, some = pairs_of('every'), pairs_of('toy')
  assert (len(every_pair), len(some)) == (201, 150)
  left = iter(every_pair)
  assert all(pair in left for pair in some), 'they are in their order'
  assert some != every_pair[:150] and sorted(some) == sorted(pairs_of('turned'))
  train = first['splits']['train']
  assert (train['read'], train['kept']) == (202, 150)
  assert train['dropped'] == {'empty': 1, 'not of the 150 drawn': 51}
  assert [part['read'] for part in train['from']] == [2, 200]
  for given, kept in zip(train['from'], every['splits']['train']['from'], strict=True):
    assert given['source'] == kept['source']  # sums and lines of the whole file
  assert first['vocabulary']['sentences'] == 300


def test_length_limit_counts_the_end_of_sentence(raw: pathlib.Path):
  """A side of max_length - 1 pieces stays, one of max_length goes."""
  prepare(raw)
  folder = raw.parent / 'data' / 'toy'
  longest = max(token_files.Side(folder / f'train.{s}').longest for s in lines.SIDES)
  whole = prepare(raw, CORPUS._replace(name='whole', max_length=longest))
  assert whole['splits']['train']['dropped'] == {}
  cut = prepare(raw, CORPUS._replace(name='cut', max_length=longest - 1))
  train = cut['splits']['train']
  assert list(train['dropped']) == [f'over {longest - 1} tokens']
  assert train['read'] == train['kept'] + train['dropped'].popitem()[1] == 200
  for side in lines.SIDES:
    kept = token_files.Side(raw.parent / 'data' / 'cut' / f'train.{side}')
    assert kept.longest <= longest - 1


def test_byte_order_mark_and_crlf_are_taken_off(raw: pathlib.Path):
  lines = [b'\n'.join(side) + b'\n' for side in number_lines(200)]
  plain = prepare(raw)
  write(raw, 'train', b'\xef\xbb\xbf' + lines[0].replace(b'\n', b'\r\n'), lines[1])
  card = prepare(raw, CORPUS._replace(name='windows'))
  [about] = card['splits']['train']['from']
  assert about['source']['byte_order_mark'] is True
  assert about['source']['carriage_returns_taken_off'] == 200
  assert about['target'].keys() == {'file', 'sha256', 'lines'}
  assert card['sha256'] == plain['sha256']


def refused(raw: pathlib.Path, message: str, corpus: corpus.Corpus = CORPUS) -> None:
  with pytest.raises(UserError, match=message):
    prepare(raw, corpus)
  assert not (raw.parent / 'data' / corpus.name).exists()


def test_nothing_left_to_train_on(raw: pathlib.Path):
  write(raw, 'train', b'\n' * 7, b'one\n' * 7)
  refused(raw, r'no training pair of toy is left: .*7 empty')
  write(raw, 'train', b'', b'')
  refused(raw, 'no training pair of toy is left')


def test_no_training_pair_asked_for(raw: pathlib.Path):
  none = CORPUS._replace(train_pairs=0)
  refused(raw, 'no training pair of toy is left: 200 not of the 0 drawn', none)


def test_no_pair_short_enough(raw: pathlib.Path):
  message = 'every training pair is over max_length=1 '
  refused(raw, message, CORPUS._replace(max_length=1))


def test_utf16_is_no_text(raw: pathlib.Path):
  text = 'one\ntwo\n'.encode('utf-16')
  write(raw, 'train', text, text)
  refused(raw, 'no training pair.*, 1 not UTF-8')


@pytest.mark.parametrize('split', ['dev', 'test'])
def test_held_out_text_that_is_not_utf8(split: str, raw: pathlib.Path):
  path = raw / f'{split}.de'
  path.write_bytes(path.read_bytes().replace(b'\n', b'\ncaf\xe9 ', 1))
  refused(raw, rf'{split}\.de, line 2 of the target: not UTF-8; mend the {split} file')


def test_empty_held_out_file(raw: pathlib.Path):
  write(raw, 'test', b'', b'')
  refused(raw, r'test\.en and test\.de: the test split is empty')


def test_unequal_line_counts(raw: pathlib.Path):
  for split in card.SPLITS:
    path = raw / f'{split}.de'
    whole = path.read_bytes()
    path.write_bytes(whole + b'eins\n')
    refused(
      raw, rf'{split}\.en has \d+ lines and .*{split}\.de has \d+: they must pair'
    )
    path.write_bytes(whole)
  assert prepare(raw)['splits']['train']['kept'] == 200


def test_too_large_a_vocabulary(raw: pathlib.Path):
  message = r'no vocabulary of 9000 pieces.*<= \d+'
  refused(raw, message, CORPUS._replace(vocab_size=9000))


@pytest.mark.parametrize('split', card.SPLITS)
def test_swapped_sides(split: str, raw: pathlib.Path):
  """Of any part of any split, which is named."""
  english, german = b'This is the day of it\n' * 9, b'Das ist nicht der Tag\n' * 9
  write(raw, 'right', english, german)
  write(raw, 'wrong', german, english)
  files = CORPUS.files | {split: ('right', 'right')}
  corpus = CORPUS._replace(files=files, vocab_size=45)
  prepare(raw, corpus._replace(name='right'))
  corpus.files[split] = ('wrong', 'wrong')
  refused(raw, r'wrong\.en and wrong\.de: the source looks like de.*swapped', corpus)


# The vocabulary


def test_the_vocabulary_is_learnt_from_the_whole_corpus(raw: pathlib.Path):
  """A word that only the last tenth has gets its piece from a small sample."""
  sides = [
    side + [word] * 200
    for side, word in zip(number_lines(1800), (b'QX ' * 12, b'ZY ' * 12), strict=True)
  ]
  write(raw, 'train', *(b'\n'.join(side) for side in sides))
  card = prepare(raw, CORPUS._replace(vocabulary_pairs=300, vocab_size=75))
  assert card['vocabulary']['sentences'] == card['vocabulary']['used'] == 600
  words = vocabulary.Vocabulary(raw.parent / 'data' / 'toy' / 'vocabulary.model')
  assert {'▁QX', '▁ZY'} <= {*words.pieces()}


def test_the_sample_is_seeded(raw: pathlib.Path):
  hashes = {}
  for seed, name in ((1, 'a'), (1, 'b'), (2, 'c'), (3, 'd')):
    some = CORPUS._replace(name=name, vocabulary_pairs=20, seed=seed, vocab_size=40)
    hashes[name] = prepare(raw, some)['vocabulary']['sha256']
  assert hashes['a'] == hashes['b']
  assert len({*hashes.values()}) > 1
  every = [
    prepare(raw, CORPUS._replace(name=str(n), vocabulary_pairs=n, seed=n))
    for n in (200, 201, 10**9)
  ]
  assert len({card['vocabulary']['sha256'] for card in every}) == 1
  assert {card['vocabulary']['sentences'] for card in every} == {400}


def test_what_the_trainer_leaves_out_is_on_the_card(raw: pathlib.Path):
  """It drops lines with a character that it keeps to itself, without a word."""
  sides = number_lines(200)
  sides[0][7] += ' \u2585'.encode()
  write(raw, 'train', *(b'\n'.join(side) for side in sides))
  learnt = prepare(raw)['vocabulary']
  assert (learnt['sentences'], learnt['used']) == (400, 399)


MEMORY = """
import pathlib, sys
import toy.corpus
folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
raw = toy.corpus.write_raw(folder / 'raw')
with (raw / 'train.en').open('wb') as source, (raw / 'train.de').open('wb') as target:
  for n in range(count):
    source.write(b'one two three four %d\\n' % (n % 999))
    target.write(b'eins zwei drei vier %d\\n' % (n % 999))
toy.corpus.prepare(raw, toy.corpus.CORPUS._replace(vocabulary_pairs=2000))
print(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])
"""


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: pathlib.Path):
  """Of ten times the pairs; what is held of each is some 50 bytes, while drawing."""
  peaks = []
  for count in (20_000, 200_000):
    done = subprocess.run(
      [sys.executable, '-c', MEMORY, str(tmp_path / str(count)), str(count)],
      cwd=ROOT,
      env=os.environ | {'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}'},
      capture_output=True,
      text=True,
      check=True,
    )
    peaks.append(int(re.findall(r'\d+', done.stdout)[-1]))
  print(f'{peaks} KiB')
  assert peaks[1] < peaks[0] + 15_000, peaks
