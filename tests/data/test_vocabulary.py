"""Text survives the vocabulary; sizes that cannot be are refused with what can."""

import pathlib
import re
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from transformer_jax.data import token_files, vocabulary
from transformer_jax.data.corpus import SIDES
from transformer_jax.data.vocabulary import (
  BOS,
  EOS,
  PAD,
  UNK,
  TokenCounts,
  Vocabulary,
  VocabularyEntry,
)
from transformer_jax.machine.errors import UserError

# Whatever is printable and likely, and some that naive code trips over: no-break and
# ideographic spaces, combining and zero-width characters, an emoji, a replacement.
LETTERS = 'abcdeABCDEäöüßéçœñ0123456789.,;:!?\'"„“«»–-()<>/\\&%$€§@#*+=[]{}|~^`_'
ODD = '\xa0\u3000e\u0301\u200b\u200d\u00ad\ufeff\ufffd\t中文ру\U0001f600'
SENTENCES = ['one and two and three', 'two plus two', 'eins und zwei und drei']


def learn(sentences: Iterable[str], path: pathlib.Path, size: int) -> VocabularyEntry:
  """With a piece for every character, however rare."""
  return vocabulary.learn_pieces(sentences, path, size, 1.0, False)


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  learn([LETTERS, ODD, *SENTENCES], path, 160)
  return Vocabulary(path)


def test_special_ids(words: Vocabulary):
  assert (PAD, EOS, BOS, UNK) == (0, 1, 2, 3)
  assert words.pieces()[:4] == ['<pad>', '</s>', '<s>', '<unk>']
  assert len(words) == 160


@settings(max_examples=300)
@given(
  st.lists(st.text(sorted(set(LETTERS + ODD)), min_size=1, max_size=12), max_size=8)
)
def test_text_survives(words: Vocabulary, parts: list[str]):
  """Any text without spaces at the ends or beside each other comes back as it was."""
  text = ' '.join(parts)
  (ids,) = words.encode([text])
  assert words.decode([ids]) == [text]
  assert not {PAD, EOS, BOS, UNK} & set(ids)
  assert all(0 <= i < len(words) for i in ids)


@settings(max_examples=100)
@given(st.lists(st.text(st.characters(codec='utf-8'), max_size=20), max_size=5))
def test_any_text_is_encoded_without_control_ids(words: Vocabulary, texts: list[str]):
  """As many sentences out as in; no text can smuggle in PAD, EOS or BOS."""
  found = words.encode([*texts, '<s> </s> <pad>'])
  assert len(found) == len(texts) + 1
  assert not {PAD, EOS, BOS} & {i for ids in found for i in ids}


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


def test_training_is_deterministic(tmp_path: pathlib.Path):
  paths = [tmp_path / name for name in ('a.model', 'b.model')]
  for path in paths:
    learn(iter(SENTENCES), path, 24)
  assert paths[0].read_bytes() == paths[1].read_bytes()
  assert Vocabulary(paths[0]).sha256 == Vocabulary(paths[1]).sha256


def test_too_large_says_what_fits(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(UserError, match='no vocabulary of 4000 pieces') as caught:
    learn(SENTENCES, path, 4000)
  assert '--config.model.vocab_size' in str(caught.value)
  assert 'INTERNAL' not in str(caught.value)
  assert not list(tmp_path.iterdir())  # nothing half made stays
  fits = int(re.search(r'<= (\d+)', str(caught.value)).group(1))
  with pytest.raises(UserError, match='too high'):
    learn(SENTENCES, path, fits + 1)
  learn(SENTENCES, path, fits)
  assert len(Vocabulary(path)) == fits


def test_too_small_and_empty(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(UserError, match='smaller than required_chars'):
    learn(SENTENCES, path, 5)
  with pytest.raises(UserError, match='no text'):
    learn([], path, 50)
  assert not path.exists()


def test_more_pieces_than_uint16(tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='65536 at most'):
    learn(SENTENCES, tmp_path / 'vocabulary.model', 65537)


COMMON = ['eins zwei drei ' * 20] * 50


@pytest.mark.parametrize(
  ('coverage', 'kept'), [(1.0, True), (0.99999, True), (0.9999, False), (0.99, False)]
)
def test_character_coverage(coverage: float, kept: bool, tmp_path: pathlib.Path):
  """Of some 15,000 characters one is another: the rarest, that gets no piece."""
  path = tmp_path / 'v.model'
  vocabulary.learn_pieces([*COMMON, 'ß'], path, 20, coverage, False)
  words = Vocabulary(path)
  assert (UNK in words.encode(['ß'])[0]) != kept
  assert words.decode(words.encode(['drei'])) == ['drei']


RARE = ['ß', 'Ångström', '中文', '\U0001f600 e\u0301', 'a\x85\u2028b', '\ufffd\u200b']


@pytest.mark.parametrize('text', RARE)
def test_bytes_spell_what_has_no_piece(text: str, tmp_path: pathlib.Path):
  """And are read back; without them there is but <unk>."""
  path = tmp_path / 'v.model'
  vocabulary.learn_pieces([*COMMON, *RARE], path, 290, 0.99, True)
  words = Vocabulary(path)
  assert len(words) == 290
  (ids,) = words.encode([text])
  assert not {PAD, EOS, BOS, UNK} & {*ids}
  assert words.decode([ids]) == [text]
  assert re.fullmatch('<0x..>', words.pieces()[ids[-1]])
  learn(COMMON, path, 20)
  assert UNK in Vocabulary(path).encode([text])[0]


@settings(max_examples=200)
@given(text=st.text(st.characters(codec='utf-8', exclude_characters=' \u2581\x00')))
def test_bytes_spell_any_text(spelling: Vocabulary, text: str):
  (ids,) = spelling.encode([text])
  assert spelling.decode([ids]) == [text]


@pytest.fixture(scope='module')
def spelling(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('spelling') / 'vocabulary.model'
  vocabulary.learn_pieces(COMMON, path, 280, 1.0, True)
  return Vocabulary(path)


def test_ids_one_after_another(words: Vocabulary):
  """The same as in lists, without <s> and </s>; empty sentences, and none."""
  for sentences in (SENTENCES, ['', *SENTENCES, '', ' '], [''], []):
    ids, lengths = words.encode_flat(sentences)
    lists = words.encode(sentences)
    assert ids.tolist() == [i for each in lists for i in each]
    assert lengths.tolist() == [*map(len, lists)]


def test_missing(tmp_path: pathlib.Path):
  with pytest.raises(UserError, match=r'no vocabulary there; run scripts'):
    Vocabulary(tmp_path / 'vocabulary.model')


@pytest.mark.parametrize('error', [OSError('disk'), KeyboardInterrupt()])
def test_an_error_of_the_sentences_own(error: BaseException, tmp_path: pathlib.Path):
  """Comes out as it is, not as SentencePiece's."""

  def sentences():
    yield 'one two three'
    raise error

  with pytest.raises(type(error)):
    vocabulary.learn_pieces(sentences(), tmp_path / 'x.model', 30, 1.0, False)
  assert not (tmp_path / 'x.model').exists()


# What the vocabulary is learnt from


def sample_lines(texts, pairs: int, count: int, seed: int) -> list[str]:
  chosen = vocabulary.choose_pairs(texts, pairs, count, seed)
  return [line for path in texts for line in vocabulary.chosen_lines(path, chosen)]


def numbered(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
  texts = [folder / name for name in 'ab']
  for path in texts:
    path.write_text(''.join(f'{path.name}{n}\n' for n in range(count)))
  return texts


def test_all_of_a_small_corpus_is_drawn(tmp_path: pathlib.Path):
  texts = numbered(tmp_path, 50)
  expected = [f'{side}{n}' for side in 'ab' for n in range(50)]
  for wanted in (50, 51, 10**9):
    assert list(sample_lines(texts, 50, wanted, 1)) == expected


@settings(max_examples=100)
@given(st.integers(0, 60), st.integers(-(2**32), 2**200))
def test_as_many_as_wanted_are_drawn(tmp_path_factory, wanted: int, seed: int):
  """The same of both sides, in their order, none twice, decided by seed and text."""
  texts = numbered(tmp_path_factory.mktemp('x'), 60)
  drawn = list(sample_lines(texts, 60, wanted, seed))
  numbers = [[int(line[1:]) for line in drawn if line[0] == side] for side in 'ab']
  assert [line[0] for line in drawn] == ['a'] * wanted + ['b'] * wanted
  assert numbers[0] == numbers[1] == sorted({*numbers[0]})
  assert drawn == list(sample_lines(texts, 60, wanted, seed))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.data())
def test_the_order_of_a_corpus_does_not_matter(tmp_path_factory, rows, data):
  """Equal pairs included; so tfds, which shuffles, gives the sample of text files."""
  wanted = data.draw(st.integers(0, len(rows)))
  samples = []
  for order in (rows, data.draw(st.permutations(rows))):
    texts = [tmp_path_factory.mktemp('x') / name for name in 'ab']
    for path in texts:
      path.write_text(''.join(f'{path.name}{n}\n' for n in order))
    samples.append(sorted(sample_lines(texts, len(rows), wanted, 1)))
  assert samples[0] == samples[1]


@pytest.mark.parametrize('seed', range(9))
def test_equal_pairs_are_drawn_as_others_are(seed: int, tmp_path: pathlib.Path):
  """As often as their share in the corpus, neither all nor none."""
  texts = numbered(tmp_path, 500)
  for path in texts:
    with path.open('a') as file:
      file.write('same\n' * 500)
  drawn = list(sample_lines(texts, 1000, 100, seed))
  assert len(drawn) == 200 and 60 < drawn.count('same') < 140


def test_all_of_a_corpus_is_drawn_from(tmp_path: pathlib.Path):
  """Each pair as often as any other, whatever place it has."""
  texts, counts = numbered(tmp_path, 20), np.zeros(20, int)
  for seed in range(400):
    for line in sample_lines(texts, 20, 5, seed)[:5]:
      counts[int(line[1:])] += 1
  assert counts.sum() == 2000
  assert 60 < counts.min() and counts.max() < 140


def test_a_file_that_is_no_vocabulary(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  for content in (b'', b'junk', b'\xff' * 99):
    path.write_bytes(content)
    with pytest.raises(UserError, match='vocabulary.model: no SentencePiece model'):
      Vocabulary(path)


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
) -> TokenCounts:
  sides = [texts[0].parent / f'{name}.{side}' for side in SIDES]
  both = vocabulary.Vocabularies(words, words)
  return vocabulary.encode_files(both, texts, sides, MAX_LENGTH, str)


def content(folder: pathlib.Path, name: str = 'train') -> list[bytes]:
  paths = [
    folder / f'{name}.{side}.{end}' for side in SIDES for end in ('tokens', 'offsets')
  ]
  return [path.read_bytes() for path in paths]


def test_encoding_is_the_vocabulary_s_own(number_words, texts):
  """Line by line; pairs with a side too long are left out together."""
  lines = [path.read_bytes().decode().split('\n')[:-1] for path in texts]
  pairs = list(zip(*map(number_words.encode, lines), strict=True))
  kept = [pair for pair in pairs if max(map(len, pair)) < MAX_LENGTH]
  assert 20 < len(kept) < 80
  done = encode(number_words, texts)
  for number, side in enumerate(
    token_files.Side(texts[0].parent / f'train.{s}') for s in SIDES
  ):
    ids = [pair[number] for pair in kept]
    assert [
      side.tokens[a:b].tolist() for a, b in zip(side.offsets, side.ends, strict=False)
    ] == ids
    assert done.tokens[number] == sum(map(len, ids))
    assert done.longest[number] == max(map(len, ids))
  assert (done.read, done.kept) == (100, len(kept))


@pytest.mark.parametrize('cores', [1, 3])
@pytest.mark.parametrize('block', [1, 7, 100, 5000])
def test_neither_blocks_nor_threads_change_it(
  block, cores, number_words, texts, monkeypatch
):
  expected = encode(number_words, texts)
  monkeypatch.setattr(vocabulary, '_BLOCK', block)
  monkeypatch.setattr(vocabulary.environment, 'cores', lambda: [*range(cores)])
  assert encode(number_words, texts, 'again') == expected
  assert content(texts[0].parent, 'again') == content(texts[0].parent)


@pytest.mark.parametrize('sides', [([], []), ([b''] * 3, [b'one'] * 3)])
def test_little_text(sides, number_words, tmp_path: pathlib.Path):
  done = encode(number_words, written(tmp_path, *sides))
  assert (done.read, done.kept) == (len(sides[0]), len(sides[0]))
  assert done.tokens[0] == 0
  assert len(token_files.Side(tmp_path / 'train.source')) == len(sides[0])


def test_all_too_long(number_words, tmp_path: pathlib.Path):
  done = encode(number_words, written(tmp_path, [b'one ' * 9] * 3, [b'eins'] * 3))
  assert (done.read, done.kept, done.tokens, done.longest) == (3, 0, [0, 0], [0, 0])
