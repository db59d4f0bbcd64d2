"""Text survives the vocabulary."""

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.corpus import learn
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from transformer_jax.machine.errors import UserError

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
  (ids,) = words.encode(['one two'])
  padded = [[BOS, *ids, EOS, *ids, PAD], [*ids, PAD, PAD], []]
  assert words.decode(padded) == ['one two', 'one two', '']


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


@settings(max_examples=60)
@given(text=st.text(st.characters(codec='utf-8', exclude_characters=' \u2581\x00')))
def test_bytes_spell_any_text(spelling: Vocabulary, text: str):
  (ids,) = spelling.encode([text])
  assert spelling.decode([ids]) == [text] and UNK not in ids


def test_bytes_count_as_unknown_text(spelling: Vocabulary):
  space, *rare = spelling.encode(['ж'])[0]
  assert spelling.is_unknown[rare].all() and not spelling.is_unknown[space]


def test_refused_files(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  for content in (b'', b'junk', b'\xff' * 99):
    path.write_bytes(content)
    with pytest.raises(UserError, match='vocabulary.model: not a SentencePiece model'):
      Vocabulary(path)


@pytest.fixture(scope='module')
def spelling(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('spelling') / 'vocabulary.model'
  learn(['eins zwei drei ' * 20] * 50, path, 280, byte_fallback=True)
  return Vocabulary(path)
