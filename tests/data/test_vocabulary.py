"""Text survives the vocabulary; a size that is refused comes with one that fits."""

import pathlib
import re
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from transformer_jax.data import batches, prepare, vocabulary
from transformer_jax.data.corpus import STREAMS
from transformer_jax.data.vocabulary import (
  BOS,
  EOS,
  PAD,
  UNK,
  Vocabulary,
)
from transformer_jax.machine.errors import UserError

# Whatever is printable and likely, and some that naive code trips over: no-break and
# ideographic spaces, combining and zero-width characters, an emoji, a replacement.
LETTERS = 'abcdeABCDEäöüßéçœñ0123456789.,;:!?\'"„“«»–-()<>/\\&%$€§@#*+=[]{}|~^`_'
ODD = '\xa0\u3000e\u0301\u200b\u200d\u00ad\ufeff\ufffd\t中文ру\U0001f600'
SENTENCES = ['one and two and three', 'two plus two', 'eins und zwei und drei']


def learn(sentences: Iterable[str], path: pathlib.Path, size: int) -> None:
  """Learns a vocabulary with a piece for every character, however rare."""
  vocabulary.learn_pieces(sentences, path, size, 1.0, False)


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  learn([LETTERS, ODD, *SENTENCES], path, 160)
  return Vocabulary(path)


def test_special_ids(words: Vocabulary):
  assert (PAD, EOS, BOS, UNK) == (0, 1, 2, 3)
  assert words.pieces()[:4] == ['<pad>', '</s>', '<s>', '<unk>']
  assert len(words) == 160
  assert not {PAD, EOS, BOS} & {*words.encode(['<s> </s> <pad>'])[0]}


@settings(max_examples=300)
@given(
  st.lists(st.text(sorted(set(LETTERS + ODD)), min_size=1, max_size=12), max_size=8)
)
def test_text_survives(words: Vocabulary, parts: list[str]):
  """Runs of spaces and spaces at the ends aside."""
  text = ' '.join(parts)
  (ids,) = words.encode([text])
  assert words.decode([ids]) == [text]
  assert not {PAD, EOS, BOS, UNK} & set(ids)
  assert all(0 <= i < len(words) for i in ids)


def test_spaces_are_normalised_and_nothing_else(words: Vocabulary):
  assert words.decode(words.encode(['  a   b '])) == ['a b']
  assert words.decode(words.encode(['', ' '])) == ['', '']
  decomposed, composed = 'e\u0301', 'é'
  assert words.decode(words.encode([decomposed, composed])) == [decomposed, composed]


def test_decoding_stops_at_end(words: Vocabulary):
  (ids,) = words.encode(['one two'])
  assert words.decode([[BOS, *ids, EOS, *ids, PAD], [*ids, PAD, PAD], []]) == [
    'one two',
    'one two',
    '',
  ]


def test_too_large_says_what_fits(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  message = r'no vocabulary of 4000 pieces \(--config.model.vocab_size\)'
  with pytest.raises(UserError, match=message) as caught:
    learn(SENTENCES, path, 4000)
  fits = int(re.search(r'<= (\d+)', str(caught.value)).group(1))
  learn(SENTENCES, path, fits)
  assert len(Vocabulary(path)) == fits


@pytest.mark.parametrize('error', [KeyboardInterrupt, OSError('no such device')])
def test_an_error_of_reading_is_not_sentencepieces(error, tmp_path: pathlib.Path):
  def lines() -> Iterator[str]:
    yield from SENTENCES
    raise error

  with pytest.raises(error if isinstance(error, type) else type(error)):
    learn(lines(), tmp_path / 'vocabulary.model', 50)


def test_what_is_no_vocabulary(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(UserError, match='smaller than required_chars'):
    learn(SENTENCES, path, 5)
  for content in (b'', b'junk', b'\xff' * 99):
    path.write_bytes(content)
    with pytest.raises(UserError, match='vocabulary.model: no SentencePiece model'):
      Vocabulary(path)


COMMON = ['eins zwei drei ' * 20] * 50


@pytest.mark.parametrize(
  ('coverage', 'kept'), [(1.0, True), (0.99999, True), (0.9999, False), (0.99, False)]
)
def test_character_coverage(coverage: float, kept: bool, tmp_path: pathlib.Path):
  """The rarest of some 15,000 characters gets no piece."""
  path = tmp_path / 'v.model'
  vocabulary.learn_pieces([*COMMON, 'ß'], path, 20, coverage, False)
  words = Vocabulary(path)
  assert (UNK in words.encode(['ß'])[0]) != kept
  assert words.decode(words.encode(['drei'])) == ['drei']


@settings(max_examples=200)
@given(text=st.text(st.characters(codec='utf-8', exclude_characters=' \u2581\x00')))
def test_bytes_spell_any_text(spelling: Vocabulary, text: str):
  (ids,) = spelling.encode([text])
  assert spelling.decode([ids]) == [text] and UNK not in ids


@pytest.fixture(scope='module')
def spelling(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('spelling') / 'vocabulary.model'
  vocabulary.learn_pieces(COMMON, path, 280, 1.0, True)
  return Vocabulary(path)


# What the vocabulary is learnt from


def sample_lines(texts, pairs: int, count: int, seed: int) -> list[str]:
  chosen = vocabulary.choose_pairs(texts, pairs, count, seed)
  return [line for path in texts for line in vocabulary.chosen_lines(path, chosen)]


def numbered(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
  texts = [folder / name for name in 'ab']
  for path in texts:
    path.write_text(''.join(f'{path.name}{n}\n' for n in range(count)))
  return texts


@settings(max_examples=100)
@given(st.integers(0, 70), st.integers(-(2**32), 2**200))
def test_size_of_a_sample(tmp_path_factory, wanted: int, seed: int):
  """It has pairs, in their order, each once; seed and text decide which."""
  texts = numbered(tmp_path_factory.mktemp('x'), 60)
  sample = list(sample_lines(texts, 60, wanted, seed))
  numbers = [[int(line[1:]) for line in sample if line[0] == side] for side in 'ab']
  count = min(wanted, 60)
  assert [line[0] for line in sample] == ['a'] * count + ['b'] * count
  assert numbers[0] == numbers[1] == sorted({*numbers[0]})
  assert sample == list(sample_lines(texts, 60, wanted, seed))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.data())
def test_the_order_of_a_corpus_does_not_matter(tmp_path_factory, rows, data):
  """So tfds, which shuffles, gives the sample of text files."""
  wanted = data.draw(st.integers(0, len(rows)))
  samples = []
  for order in (rows, data.draw(st.permutations(rows))):
    texts = [tmp_path_factory.mktemp('x') / name for name in 'ab']
    for path in texts:
      path.write_text(''.join(f'{path.name}{n}\n' for n in order))
    samples.append(sorted(sample_lines(texts, len(rows), wanted, 1)))
  assert samples[0] == samples[1]


@pytest.mark.parametrize('seed', range(9))
def test_equal_pairs_are_sampled_like_others(seed: int, tmp_path: pathlib.Path):
  """Some are in the sample, in proportion."""
  texts = numbered(tmp_path, 500)
  for path in texts:
    with path.open('a') as file:
      file.write('same\n' * 500)
  sample = list(sample_lines(texts, 1000, 100, seed))
  assert len(sample) == 200 and 60 < sample.count('same') < 140


# Text files to token files

MAX_LENGTH = 6  # tokens, EOS counted: some pairs of the toy corpus are longer


@pytest.fixture(scope='module')
def number_words(tmp_path_factory: pytest.TempPathFactory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp('words') / 'vocabulary.model'
  sides = toy.corpus.number_lines(200)
  lines = [line.decode() for side in sides for line in side]
  vocabulary.learn_pieces(lines, path, 60, 1.0, False)
  return vocabulary.Vocabulary(path)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """Writes 100 pairs, one with other spaces and characters."""
  source, target = toy.corpus.number_lines(99, seed=5)
  source[40:40], target[40:40] = ['  one\u2028\r x '.encode()], ['ß\t'.encode()]
  return written(tmp_path, source, target)


def written(folder: pathlib.Path, *sides: list[bytes]) -> list[pathlib.Path]:
  paths = [folder / f'text.{side}' for side in STREAMS]
  for path, lines in zip(paths, sides, strict=True):
    path.write_bytes(b''.join(line + b'\n' for line in lines))
  return paths


def encode(
  words: vocabulary.Vocabulary, texts: list[pathlib.Path], name: str = 'train'
) -> None:
  sides = [texts[0].parent / f'{name}.{side}' for side in STREAMS]
  both = vocabulary.Vocabularies(words, words)
  prepare.encode_files(both, texts, sides, MAX_LENGTH, (str, str))


def content(folder: pathlib.Path, name: str = 'train') -> list[bytes]:
  paths = [
    folder / f'{name}.{side}.{end}' for side in STREAMS for end in ('tokens', 'offsets')
  ]
  return [path.read_bytes() for path in paths]


def test_encoding_is_the_vocabulary_s_own(number_words, texts):
  """Pairs with too long a sentence are left out."""
  lines = [path.read_bytes().decode().split('\n')[:-1] for path in texts]
  pairs = list(zip(*map(number_words.encode, lines), strict=True))
  kept = [pair for pair in pairs if max(map(len, pair)) < MAX_LENGTH]
  assert 20 < len(kept) < 80
  encode(number_words, texts)
  for number, side in enumerate(
    batches.Sentences(texts[0].parent / f'train.{s}') for s in STREAMS
  ):
    ids = [pair[number] for pair in kept]
    assert [
      side.tokens[a:b].tolist() for a, b in zip(side.offsets, side.ends, strict=False)
    ] == ids


@pytest.mark.parametrize('block', [1, 7, 100])
def test_blocks_do_not_change_it(block: int, number_words, texts, monkeypatch):
  encode(number_words, texts)
  monkeypatch.setattr(prepare, '_BLOCK', block)
  encode(number_words, texts, 'again')
  assert content(texts[0].parent, 'again') == content(texts[0].parent)


@pytest.mark.parametrize(
  ('source', 'target', 'kept'),
  [([], [], 0), ([b''] * 3, [b'one'] * 3, 3), ([b'one ' * 9] * 3, [b'eins'] * 3, 0)],
)
def test_little_text(source, target, kept: int, number_words, tmp_path: pathlib.Path):
  encode(number_words, written(tmp_path, source, target))
  assert len(batches.Sentences(tmp_path / 'train.source')) == kept
