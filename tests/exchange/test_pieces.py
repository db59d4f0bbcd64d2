"""A SentencePiece model over the rows of a table splits text as before."""

import pathlib
import random

import numpy as np
import pytest
import sentencepiece

from toy import corpus
from transformer_jax.data.vocabulary import UNK, Vocabulary
from transformer_jax.exchange import pieces

LINES, GERMAN = ([x.decode() for x in side] for side in corpus.number_lines(300))


def learn(path: pathlib.Path, lines: list[str], kind: str, size: int) -> pathlib.Path:
  with path.open('wb') as file:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(lines),
      model_writer=file,
      vocab_size=size,
      model_type=kind,
      minloglevel=2,
    )
  return path


@pytest.fixture(params=['unigram', 'bpe'])
def spm(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
  return learn(tmp_path / 'source.spm', LINES, request.param, 24)


def names(path: pathlib.Path) -> list[str]:
  processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
  return [processor.id_to_piece(i) for i in range(3, len(processor))]


def over(path: pathlib.Path, rows: list[str]) -> tuple[Vocabulary, list[str]]:
  model, absent = pieces.over_rows(path, [*pieces.SPECIALS, *rows])
  new = path.with_name('new.model')
  new.write_bytes(model)
  return Vocabulary(new), absent


def as_marian_tokenizer(path: pathlib.Path, rows: list[str], text: str) -> list[str]:
  """Returns the rows that MarianTokenizer gives to SentencePiece's parts."""
  names = sentencepiece.SentencePieceProcessor(model_file=str(path))
  return [x if x in rows else '<unk>' for x in names.encode(text, out_type=str)]


def test_text_is_split_as_before(spm: pathlib.Path):
  """Other pieces and their order do not matter."""
  more = 'ee', '\u2581two\u2581', 'one', '\u2581t', '', '<s>', '>>deu<<'
  rows = [*dict.fromkeys([*names(spm), *more])]
  random.Random(0).shuffle(rows)
  words, absent = over(spm, rows)
  before = sentencepiece.SentencePieceProcessor(model_file=str(spm))
  ids = words.encode([*LINES, 'zz one'])
  split = [[words.pieces()[i] for i in line] for line in ids]
  expected = before.encode([*LINES, 'zz one'], out_type=str)
  assert split[:-1] == expected[:-1] and UNK in ids[-1]
  assert words.decode(ids[:-1]) == LINES and not absent
  start = 4 + rows.index('>>deu<<')
  assert words.encode(['>>deu<< two']) == [[start, *words.encode(['two'])[0]]]
  foreign = 4 + rows.index('ee')
  assert foreign not in {i for line in ids for i in line}
  assert words.decode([[foreign]]) == ['ee']


def test_pieces_without_a_row(spm: pathlib.Path):
  rows = names(spm)
  words, absent = over(spm, rows[:-2])
  assert absent == sorted(rows[-2:])
  assert len(words) == len(rows) + 2


@pytest.mark.parametrize('kind', ['unigram', 'bpe'])
def test_pieces_of_the_other_model(kind: str, tmp_path: pathlib.Path):
  """Neither model knows all characters of the other's language."""
  german = [f'{a} Äpfel, {b} Öfen' for a, b in zip(GERMAN, GERMAN[1:], strict=False)]
  texts = [[*LINES, 'a Volvo'], [*GERMAN, *german]]
  paths = [
    learn(tmp_path / f'{side}.spm', lines, kind, size)
    for side, lines, size in (('source', texts[0], 28), ('target', texts[1], 36))
  ]
  rows = [*dict.fromkeys(name for path in paths for name in names(path))]
  random.Random(0).shuffle(rows)
  lines = [*texts[0], *texts[1], 'Äpfel for V', 'A Volvo is ÄÖ, ω and Äω', 'zweiÄ']
  differ = 0
  for path in paths:
    words, _ = over(path, rows)
    own = {*names(path)}
    flat, lengths = words.encode_flat(lines)
    np.testing.assert_array_equal(flat, np.concatenate(words.encode(lines)))
    assert [*lengths] == [len(ids) for ids in words.encode(lines)]
    for line, ids in zip(lines, words.encode(lines), strict=True):
      expected = as_marian_tokenizer(path, rows, line)
      assert [words.pieces()[i] for i in ids] == expected, line
      differ += any(piece in rows and piece not in own for piece in expected)
  assert differ > 5, 'pieces that only the other model has'
