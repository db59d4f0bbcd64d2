"""Text survives the vocabulary; sizes that cannot be are refused with what can."""

import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax import vocabulary
from transformer_jax.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

# Whatever is printable and likely, and some that naive code trips over: no-break and
# ideographic spaces, combining and zero-width characters, an emoji, a replacement.
LETTERS = 'abcdeABCDEäöüßéçœñ0123456789.,;:!?\'"„“«»–-()<>/\\&%$€§@#*+=[]{}|~^`_'
ODD = '\xa0\u3000e\u0301\u200b\u200d\u00ad\ufeff\ufffd\t中文ру\U0001f600'
SENTENCES = ['one and two and three', 'two plus two', 'eins und zwei und drei']


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  vocabulary.train([LETTERS, ODD, *SENTENCES], path, 160)
  return Vocabulary(path)


def test_special_ids(words: Vocabulary):
  assert (PAD, EOS, BOS, UNK) == (0, 1, 2, 3)
  assert words.pieces(range(4)) == ['<pad>', '</s>', '<s>', '<unk>']
  assert len(words) == 160


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=100, deadline=None)
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
    vocabulary.train(iter(SENTENCES), path, 24)
  assert paths[0].read_bytes() == paths[1].read_bytes()
  assert Vocabulary(paths[0]).sha256 == Vocabulary(paths[1]).sha256


def test_too_large_says_what_fits(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(ValueError, match='no vocabulary of 4000 pieces') as caught:
    vocabulary.train(SENTENCES, path, 4000)
  assert '--config.model.vocab_size' in str(caught.value)
  assert 'INTERNAL' not in str(caught.value)
  assert not list(tmp_path.iterdir())  # nothing half made stays
  fits = int(re.search(r'<= (\d+)', str(caught.value)).group(1))
  with pytest.raises(ValueError, match='too high'):
    vocabulary.train(SENTENCES, path, fits + 1)
  vocabulary.train(SENTENCES, path, fits)
  assert len(Vocabulary(path)) == fits


def test_too_small_and_empty(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  with pytest.raises(ValueError, match='smaller than required_chars'):
    vocabulary.train(SENTENCES, path, 5)
  with pytest.raises(ValueError, match='no text'):
    vocabulary.train([], path, 50)
  assert not path.exists()


def test_more_pieces_than_uint16(tmp_path: pathlib.Path):
  with pytest.raises(ValueError, match='65536 at most'):
    vocabulary.train(SENTENCES, tmp_path / 'vocabulary.model', 65537)


def test_missing(tmp_path: pathlib.Path):
  with pytest.raises(FileNotFoundError, match=r'no vocabulary there; run scripts'):
    Vocabulary(tmp_path / 'vocabulary.model')
