"""Vocabularies of trees' tokens, of whole words, and of the classes of rare words."""

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.data.vocabulary import UNK, Vocabulary
from transformer_jax.parsing import words as module


def encode(words: Vocabulary, lines: list[str]) -> list[list[int]]:
  """Returns ids of lines as a parser reads them."""
  return words.encode([*map(module.reader(words), lines)])


TREES = ['(S (NP DT NN )NP (VP VBD )VP . )S', '(S (NP PRP$ NN )NP )S', '(X a\u2028b )X']


def test_tokens_beyond_the_model_are_unknown(tmp_path: pathlib.Path, capsys):
  path = tmp_path / 'vocabulary.target.model'
  module.learn_tokens([*TREES, '(S', '(S'], path, 5)
  assert 'target_vocab_size=18 would hold all' in capsys.readouterr().err
  assert UNK not in Vocabulary(path).encode(['(S (S'])[0]
  assert UNK in Vocabulary(path).encode(['NN'])[0]


TOKENS = '(S )S NN a\u2028b ZZ1 ▁ a▁b <unk> <unused0> \u2047 \xa0'.split(' ')


@settings(max_examples=200)
@given(st.lists(st.sampled_from(TOKENS) | st.text(min_size=1, max_size=3)))
def test_no_token_is_ever_lost(tokens_alone: Vocabulary, tokens: list[str]):
  """Each token is one id, known or unknown; its neighbours do not matter."""
  tokens = [token for token in tokens if ' ' not in token]
  (ids,) = tokens_alone.encode([' '.join(tokens)])
  assert len(ids) == len(tokens)
  for token, number in zip(tokens, ids, strict=True):
    assert tokens_alone.encode([token]) == [[number]]
    assert number == UNK or tokens_alone.decode([[number]]) == [token]
    assert number != UNK or token not in ' '.join(TREES).split(' ')


@pytest.fixture(scope='module')
def tokens_alone(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('tokens') / 'vocabulary.target.model'
  module.learn_tokens(TREES, path, 40)
  return Vocabulary(path)


TEXT = ['the dog barked', 'the dog slept', 'The cat barked', 'a Corgi yapped .']


def test_classes_of_unknown_words():
  words = {'NASA': 'capitals', '12-13': 'number-dash', 'well-meaning': 'word-dash-ing'}
  words |= {'string': 'word-ing', 'bring': 'word', 'B2B-x': 'mixed-dash', '%-%': 'sign'}
  words |= {'U.S.': 'capitals-dot', 'X': 'capital', 'Likeness': 'capital-ness'}
  words |= {'a@b': 'word-dot', '-ing': 'word'}
  for word, expected in words.items():
    assert module.word_class(word, False) == module.CLASS + expected
  known = {'the', 'dog'}.__contains__
  assert module.replace_unknown('The Dogs', known) == 'the \u2047-capital-s'
  assert module.replace_unknown('Dogs the', known) == '\u2047-first-s the'


def test_every_word_is_one_piece(tmp_path: pathlib.Path):
  """Words of one class, and one with and without a capital, have the same piece."""
  module.learn_words(TEXT, tmp_path / 'x.model', 20)
  words = Vocabulary(tmp_path / 'x.model')
  rows = encode(words, TEXT)
  assert [*map(len, rows)] == [3, 3, 3, 4] and len(words) == 20
  assert UNK not in {i for row in rows for i in row}
  read = lambda line: encode(words, [line])[0]
  assert read('the yapped') == read('the bolted')
  assert read('the dog') == read('The dog')
  assert read('dog NASA')[1] == UNK, 'no word of the text is of its class'
