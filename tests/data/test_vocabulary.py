"""Text survives the vocabulary."""

import hashlib
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.config import tiny
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from transformer_jax.prepare.prepare import learners

# Whatever is printable and likely, and some that naive code trips over: no-break and
# ideographic spaces, combining and zero-width characters, an emoji, a replacement.
LETTERS = 'abcdeABCDEäöüßéçœñ0123456789.,;:!?\'"„“«»–-()<>/\\&%$€§@#*+=[]{}|~^`_'
ODD = '\xa0\u3000e\u0301\u200b\u200d\u00ad\ufeff\ufffd\t中文ру\U0001f600'
SENTENCES = ['one and two and three', 'two plus two', 'eins und zwei und drei']


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  learners(tiny())[0]([LETTERS, ODD, *SENTENCES], path, 160)
  return Vocabulary(path)


def test_special_ids(words: Vocabulary):
  assert words.pieces()[:4] == ['<pad>', '</s>', '<s>', '<unk>']
  assert len(words) == 160
  assert not {PAD, EOS, BOS} & {*words.encode(['<s> </s> <pad>'])[0]}
  (ids,) = words.encode(['one two'])
  padded = [[BOS, *ids, EOS, *ids, PAD], [*ids, PAD, PAD], []]
  assert words.decode(padded) == ['one two', 'one two', '']
  assert words.sha256 == hashlib.sha256(words.path.read_bytes()).hexdigest()
  assert words.pieces()[words.space] == '\u2581'


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
  flat, lengths = words.encode_flat([text, '', text])
  assert (flat.tolist(), lengths.tolist()) == (ids * 2, [len(ids), 0, len(ids)])


def test_bytes_and_unk_are_unknown_text(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  learn, _ = learners(tiny(**{'data.byte_fallback': True}))
  learn(['eins zwei drei ' * 20] * 50, path, 280)
  words = Vocabulary(path)
  space, *rare = ids = words.encode(['ж'])[0]
  assert space == words.space and UNK not in rare and words.decode([ids]) == ['ж']
  expected = [i in {UNK, *rare} for i in (PAD, EOS, UNK, space, *rare)]
  assert words.is_unknown[[PAD, EOS, UNK, space, *rare]].tolist() == expected
