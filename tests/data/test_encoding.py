"""Token files are the same however text is cut up, and whatever stopped on the way."""

import contextlib
import json
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from transformer_jax.data import encoding, token_files, vocabulary
from transformer_jax.data.encoding import Progress
from transformer_jax.data.lines import SIDES

MAX_LENGTH = 6  # tokens, EOS counted: some pairs of the toy corpus are longer


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp('words') / 'vocabulary.model'
  sides = toy.corpus.number_lines(200)
  lines = [line.decode() for side in sides for line in side]
  vocabulary.train(lines, path, 60, 1.0, False)
  return vocabulary.Vocabulary(path)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """100 pairs; a line of other spaces and characters among them."""
  source, target = toy.corpus.number_lines(99, seed=5)
  source[40:40], target[40:40] = ['  one\u2028\r x '.encode()], ['ß\t'.encode()]
  return written(tmp_path, source, target)


def written(folder: pathlib.Path, *sides: list[bytes]) -> list[pathlib.Path]:
  paths = [folder / f'text.{side}' for side in SIDES]
  for path, lines in zip(paths, sides, strict=True):
    path.write_bytes(b''.join(line + b'\n' for line in lines))
  return paths


def encode(
  words: vocabulary.Vocabulary, texts: list[pathlib.Path], name: str = 'train'
) -> Progress:
  folder = texts[0].parent
  sides = [folder / f'{name}.{side}' for side in SIDES]
  return encoding.encode(
    words, texts, sides, MAX_LENGTH, 100, folder / f'{name}.journal'
  )


def content(folder: pathlib.Path, name: str = 'train') -> list[bytes]:
  paths = [
    folder / f'{name}.{side}.{end}' for side in SIDES for end in ('tokens', 'offsets')
  ]
  return [path.read_bytes() for path in paths]


# What comes out


def test_encoding_is_the_vocabulary_s_own(words, texts):
  """Line by line; pairs with a side too long are left out together."""
  lines = [path.read_bytes().decode().split('\n')[:-1] for path in texts]
  pairs = list(zip(*map(words.encode, lines), strict=True))
  kept = [pair for pair in pairs if max(map(len, pair)) < MAX_LENGTH]
  assert 20 < len(kept) < 80
  done = encode(words, texts)
  for number, side in enumerate(
    token_files.Side(texts[0].parent / f'train.{s}') for s in SIDES
  ):
    ids = [pair[number] for pair in kept]
    assert [
      side.tokens[a:b].tolist() for a, b in zip(side.offsets, side.ends, strict=False)
    ] == ids
    assert done.tokens[number] == sum(map(len, ids))
    assert done.longest[number] == max(map(len, ids))
    assert done.bytes[number] == texts[number].stat().st_size
  assert (done.read, done.kept) == (100, len(kept))


@pytest.mark.parametrize('cores', [1, 3])
@pytest.mark.parametrize('block', [1, 7, 100, 5000])
def test_neither_blocks_nor_threads_change_it(block, cores, words, texts, monkeypatch):
  expected = encode(words, texts)
  monkeypatch.setattr(encoding, 'BLOCK', block)
  monkeypatch.setattr(encoding.processor, 'cores', lambda: [*range(cores)])
  assert encode(words, texts, 'again') == expected
  assert content(texts[0].parent, 'again') == content(texts[0].parent)


@pytest.mark.parametrize('sides', [([], []), ([b''] * 3, [b'one'] * 3)])
def test_little_text(sides, words, tmp_path: pathlib.Path):
  done = encode(words, written(tmp_path, *sides))
  assert (done.read, done.kept) == (len(sides[0]), len(sides[0]))
  assert done.tokens[0] == 0
  assert len(token_files.Side(tmp_path / 'train.source')) == len(sides[0])


def test_all_too_long(words, tmp_path: pathlib.Path):
  done = encode(words, written(tmp_path, [b'one ' * 9] * 3, [b'eins'] * 3))
  assert (done.read, done.kept, done.tokens, done.longest) == (3, 0, [0, 0], [0, 0])


# Interruptions


class Stop(Exception):
  pass


def stop_at(
  monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: int
) -> None:
  """Makes a function fail at its n-th call."""
  calls, real = iter(range(1, 10**6)), getattr(owner, name)

  def stopping(*arguments: object) -> object:
    if next(calls) == call:
      raise Stop
    return real(*arguments)

  monkeypatch.setattr(owner, name, stopping)


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
  """Pairs of each block that is encoded from now on."""
  counts, real = [], encoding._encode

  def encode_block(words: object, block: list, max_length: int) -> object:
    counts.append(len(block[0]))
    return real(words, block, max_length)

  monkeypatch.setattr(encoding, '_encode', encode_block)
  return counts


@pytest.mark.parametrize(('block', 'every'), [(1, 1), (7, 2), (10, 3), (30, 40)])
@pytest.mark.parametrize('name', ['append', 'sync'])
def test_going_on_after_a_stop(name, block, every, words, texts, monkeypatch):
  """At any block: the same files, and no more than some blocks encoded twice."""
  folder = texts[0].parent
  whole = encode(words, texts, 'whole')
  monkeypatch.setattr(encoding, 'BLOCK', block)
  monkeypatch.setattr(encoding, 'JOURNAL_EVERY', every)
  for call in (1, 2, 3, 6, 9, 29):
    (folder / 'train.journal').unlink(missing_ok=True)
    with monkeypatch.context() as patch:
      stop_at(patch, token_files.TokenWriter, name, call)
      with contextlib.suppress(Stop):
        encode(words, texts)
    before = Progress.load(folder / 'train.journal').read
    if name == 'append':
      assert before >= min((call - 1) // 2 // every * every * block, 100)
    with monkeypatch.context() as patch:
      encoded = count_encoded(patch)
      assert encode(words, texts) == whole
    assert content(folder) == content(folder, 'whole')
    assert sum(encoded) == 100 - before


def test_what_is_whole_is_not_encoded_again(words, texts, monkeypatch):
  whole, files = encode(words, texts), content(texts[0].parent)
  monkeypatch.setattr(encoding, '_encode', None)
  assert encode(words, texts) == whole
  assert content(texts[0].parent) == files


def test_what_a_dead_process_wrote_behind_its_journal_goes(words, texts):
  """As blocks do that had not been noted yet."""
  whole, files = encode(words, texts), content(texts[0].parent)
  for side in SIDES:
    for end in ('tokens', 'offsets'):
      with (texts[0].parent / f'train.{side}.{end}').open('ab') as file:
        file.write(b'12345678' * 3)
  assert encode(words, texts) == whole
  assert content(texts[0].parent) == files


def test_a_journal_that_promises_too_much(words, texts):
  encode(words, texts)
  path = texts[0].parent / 'train.target.tokens'
  path.write_bytes(path.read_bytes()[:-2])
  with pytest.raises(ValueError, match=r'train\.target.*bytes, but \d+ had been'):
    encode(words, texts)


def test_journal(tmp_path: pathlib.Path):
  """It is there whole or not at all."""
  journal = tmp_path / 'x.journal'
  nothing = Progress.load(journal)
  assert nothing == Progress(0, 0, [0, 0], [0, 0], [0, 0])
  done = Progress(7, 5, [100, 120], [30, 40], [9, 8])
  done.save(journal)
  assert Progress.load(journal) == done
  assert json.loads(journal.read_text())['kept'] == 5
  assert [path.name for path in tmp_path.iterdir()] == ['x.journal']


# What the vocabulary is learnt from


def numbered(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
  return written(folder, *([f'{s}{n}'.encode() for n in range(count)] for s in 'ab'))


def test_all_of_a_small_corpus_is_drawn(tmp_path: pathlib.Path):
  texts = numbered(tmp_path, 50)
  expected = [f'{side}{n}' for side in 'ab' for n in range(50)]
  for wanted in (50, 51, 10**9):
    assert list(encoding.sample_lines(texts, 50, wanted, 1)) == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32))
def test_as_many_as_wanted_are_drawn(tmp_path_factory, wanted: int, seed: int):
  """The same of both sides, in their order, none twice, decided by the seed alone."""
  texts = numbered(tmp_path_factory.mktemp('x'), 60)
  drawn = list(encoding.sample_lines(texts, 60, wanted, seed))
  numbers = [[int(line[1:]) for line in drawn if line[0] == side] for side in 'ab']
  assert [line[0] for line in drawn] == ['a'] * wanted + ['b'] * wanted
  assert numbers[0] == numbers[1] == sorted({*numbers[0]})
  assert drawn == list(encoding.sample_lines(texts, 60, wanted, seed))


def test_all_of_a_corpus_is_drawn_from(tmp_path: pathlib.Path):
  """Each pair as often as any other, whatever place it has."""
  texts, counts = numbered(tmp_path, 20), np.zeros(20, int)
  for seed in range(400):
    for line in encoding.sample_lines(texts[:1], 20, 5, seed):
      counts[int(line[1:])] += 1
  assert counts.sum() == 2000
  assert 60 < counts.min() and counts.max() < 140
