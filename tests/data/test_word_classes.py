"""Classes of rare words, and the vocabulary that has them."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_jax.data import vocabulary, word_classes
from transformer_jax.data.vocabulary import UNK, Vocabulary

TEXT = ['the dog barked', 'the dog slept', 'The cat barked', 'a Corgi yapped .']


@pytest.mark.parametrize(
  'word, expected',
  [
    ('yapped', 'word-ed'),
    ('NASA', 'capitals'),
    ('Corgis', 'capital-s'),
    ('12,5', 'number'),
    ('12-13', 'number-dash'),
    ('b2b', 'mixed'),
    ('well-meaning', 'word-dash-ing'),
    ('a@b.org', 'word-dot'),
    ('--', 'sign'),
    ('bed', 'word'),
    ('kindness', 'word-ness'),
  ],
)
def test_a_class_is_a_form_and_an_ending(word: str, expected: str):
  assert word_classes.word_class(word, False) == word_classes.CLASS + expected


def test_a_capital_tells_less_at_the_beginning():
  known = {'the', 'dog'}.__contains__
  assert word_classes.classed('The Dogs', known) == 'the \u2047-capital-s'
  assert word_classes.classed('Dogs the', known) == '\u2047-first-s the'
  assert word_classes.classed('', known) == ''


@given(st.lists(st.text(st.characters(exclude_characters=' '), min_size=1)))
def test_a_sentence_keeps_its_number_of_words(words: list[str]):
  found = word_classes.classed(' '.join(words), lambda word: False)
  assert len(found.split(' ')) == max(1, len(words))


@pytest.fixture
def words(tmp_path: pathlib.Path) -> Vocabulary:
  path = tmp_path / 'vocabulary.model'
  about = vocabulary.train_words(TEXT, path, 20)
  assert (about['sentences'], about['words']) == (4, 3), 'the, dog, barked'
  return Vocabulary(path)


def test_every_word_is_one_piece(words: Vocabulary):
  rows = words.encode(TEXT)
  assert [*map(len, rows)] == [3, 3, 3, 4] and len(words) == 20
  assert UNK not in {i for row in rows for i in row}
  ids, lengths = words.encode_flat(TEXT)
  assert ids.tolist() == [i for row in rows for i in row]
  assert lengths.tolist() == [3, 3, 3, 4]


def test_words_of_a_class_are_read_alike(words: Vocabulary):
  assert words.encode(['the yapped']) == words.encode(['the bolted'])
  assert words.encode(['the dog']) == words.encode(['The dog'])
  assert words.encode(['dog NASA'])[0][1] == UNK, 'no word of the text is of its class'


def test_the_rarest_words_leave_where_there_is_no_room(tmp_path: pathlib.Path):
  text = ['the the the dog dog cat cat cat', 'a', 'b']
  path = tmp_path / 'vocabulary.model'
  assert vocabulary.train_words(text, path, 7)['words'] == 2
  found = Vocabulary(path)
  assert len(found) == 7
  assert found.encode(['dog a']) == [[found.encode(['b'])[0][0]] * 2]
  assert found.encode(['the cat'])[0] != found.encode(['dog dog'])[0]


def test_a_vocabulary_may_be_too_small_for_all_classes(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  assert vocabulary.train_words(TEXT, path, 5)['words'] == 0
  assert len(Vocabulary(path)) == 5
