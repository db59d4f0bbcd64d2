"""Text survives the vocabulary; a size that is refused comes with one that fits."""

import pathlib
import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from toy.corpus import learn
from transformer_jax.data import vocabulary
from transformer_jax.data.corpus import STREAMS, Sentences
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning, prepare

# Whatever is printable and likely, and some that naive code trips over: no-break and
# ideographic spaces, combining and zero-width characters, an emoji, a replacement.
LETTERS = 'abcdeABCDEäöüßéçœñ0123456789.,;:!?\'"„“«»–-()<>/\\&%$€§@#*+=[]{}|~^`_'
ODD = '\xa0\u3000e\u0301\u200b\u200d\u00ad\ufeff\ufffd\t中文ру\U0001f600'
SENTENCES = ['one and two and three', 'two plus two', 'eins und zwei und drei']


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  learn([LETTERS, ODD, *SENTENCES], path, 160)
  return Vocabulary(path)


def test_special_ids(words: Vocabulary):
  assert words.pieces()[:4] == ['<pad>', '</s>', '<s>', '<unk>']
  assert len(words) == 160
  assert not {PAD, EOS, BOS} & {*words.encode(['<s> </s> <pad>'])[0]}


@settings(max_examples=100)
@given(
  st.lists(st.text(sorted(set(LETTERS + ODD)), min_size=1, max_size=12), max_size=8)
)
def test_text_survives(words: Vocabulary, parts: list[str]):
  """Runs of spaces and spaces at the ends aside."""
  text = ' '.join(parts)
  (ids,) = words.encode([text])
  assert words.decode([ids]) == [text]
  assert all(UNK < i < len(words) for i in ids)


def test_decoding_stops_at_end(words: Vocabulary):
  (ids,) = words.encode(['one two'])
  padded = [[BOS, *ids, EOS, *ids, PAD], [*ids, PAD, PAD], []]
  assert words.decode(padded) == ['one two', 'one two', '']


def test_too_large_says_what_fits(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  message = r'no vocabulary of 4000 pieces \(--config.model.vocab_size\)'
  with pytest.raises(UserError, match=message) as caught:
    learn(SENTENCES, path, 4000)
  fits = int(re.search(r'<= (\d+)', str(caught.value)).group(1))
  learn(SENTENCES, path, fits)
  assert len(Vocabulary(path)) == fits


def test_refused_sizes_and_files(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(
    UserError, match=r'take \d+: give more pieces, or a lower --config'
  ):
    learn(SENTENCES, path, 5)
  for content in (b'', b'junk', b'\xff' * 99):
    path.write_bytes(content)
    with pytest.raises(UserError, match='vocabulary.model: not a SentencePiece model'):
      Vocabulary(path)


COMMON = ['eins zwei drei ' * 20] * 50


@pytest.mark.parametrize(
  ('coverage', 'kept'), [(1.0, True), (0.99999, True), (0.9999, False), (0.99, False)]
)
def test_character_coverage(coverage: float, kept: bool, tmp_path: pathlib.Path):
  """The rarest of some 15,000 characters gets no piece."""
  path = tmp_path / 'v.model'
  learn([*COMMON, 'ß'], path, 20, coverage)
  words = Vocabulary(path)
  assert (UNK in words.encode(['ß'])[0]) != kept
  assert words.decode(words.encode(['drei'])) == ['drei']


@settings(max_examples=60)
@given(text=st.text(st.characters(codec='utf-8', exclude_characters=' \u2581\x00')))
def test_bytes_spell_any_text(spelling: Vocabulary, text: str):
  (ids,) = spelling.encode([text])
  assert spelling.decode([ids]) == [text] and UNK not in ids


def test_bytes_count_as_unknown_text(spelling: Vocabulary):
  space, *rare = spelling.encode(['ж'])[0]
  assert spelling.is_unknown[rare].all() and not spelling.is_unknown[space]


@pytest.fixture(scope='module')
def spelling(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('spelling') / 'vocabulary.model'
  learn(COMMON, path, 280, byte_fallback=True)
  return Vocabulary(path)


def sample(
  folder: pathlib.Path, rows: Iterable[int], count: int, seed: int
) -> list[int]:
  """Returns which of `rows`, a pair of lines each, are in a sample."""
  rows, texts = [*rows], [folder / name for name in 'ab']
  for path in texts:
    path.write_text(''.join(f'{path.name}{n}\n' for n in rows))
  chosen = cleaning.choose_pairs(texts, len(rows), count, seed)
  a, b = ([*cleaning.chosen_lines(path, chosen)] for path in texts)
  assert [line[1:] for line in a] == [line[1:] for line in b]
  return [int(line[1:]) for line in a]


@settings(max_examples=50)
@given(st.integers(0, 70), st.integers(-(2**32), 2**200))
def test_size_of_a_sample(tmp_path_factory, wanted: int, seed: int):
  """It has pairs, in their order, each once; seed and text decide which."""
  folder = tmp_path_factory.mktemp('x')
  chosen = sample(folder, range(60), wanted, seed)
  assert len(chosen) == min(wanted, 60) and chosen == sorted({*chosen})
  assert chosen == sample(folder, range(60), wanted, seed)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.data())
def test_the_order_of_a_corpus_does_not_matter(tmp_path_factory, rows, data):
  """So tfds, which shuffles, gives the sample of text files."""
  wanted, folder = data.draw(st.integers(0, len(rows))), tmp_path_factory.mktemp('x')
  orders = rows, data.draw(st.permutations(rows))
  first, second = (sorted(sample(folder, order, wanted, 1)) for order in orders)
  assert first == second


@pytest.mark.parametrize('seed', range(3))
def test_equal_pairs_are_sampled_like_others(seed: int, tmp_path: pathlib.Path):
  """Some are in the sample, in proportion."""
  rows = [*range(500)] + [500] * 500
  chosen = sample(tmp_path, rows, 100, seed)
  assert len(chosen) == 100 and 30 < chosen.count(500) < 70
  assert chosen != sample(tmp_path, rows, 100, seed + 1)


MAX_LENGTH = 6  # tokens, EOS counted: some pairs of the toy corpus are longer


@pytest.fixture(scope='module')
def number_words(tmp_path_factory: pytest.TempPathFactory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp('words') / 'vocabulary.model'
  sides = toy.corpus.number_lines(200)
  lines = [line.decode() for side in sides for line in side]
  learn(lines, path, 60)
  return vocabulary.Vocabulary(path)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """Writes 100 pairs, one with other spaces and characters."""
  source, target = toy.corpus.number_lines(99, seed=5)
  source[40:40], target[40:40] = ['  one\u2028\r x '.encode()], ['ß\t'.encode()]
  paths = [tmp_path / f'text.{stream}' for stream in STREAMS]
  for path, lines in zip(paths, (source, target), strict=True):
    path.write_bytes(b''.join(line + b'\n' for line in lines))
  return paths


@pytest.mark.parametrize('block', [1, 7, 1000])
def test_encoding_is_the_vocabulary_s_own(block, number_words, texts, monkeypatch):
  """Pairs with too long a sentence are left out; blocks do not show."""
  monkeypatch.setattr(prepare, '_BLOCK', block)
  lines = [path.read_bytes().decode().split('\n')[:-1] for path in texts]
  pairs = list(zip(*map(number_words.encode, lines), strict=True))
  kept = [pair for pair in pairs if max(map(len, pair)) < MAX_LENGTH]
  assert 20 < len(kept) < 80
  paths = [texts[0].parent / f'train.{stream}' for stream in STREAMS]
  both = vocabulary.Vocabularies(number_words, number_words)
  prepare.encode_files(both, texts, paths, MAX_LENGTH, (str, str))
  for path, ids in zip(paths, zip(*kept, strict=True), strict=True):
    read = Sentences(path)
    assert [read[row][:-1] for row in range(len(read))] == [*ids]
