"""A SentencePiece model over the rows of a table cuts text as before."""

import pathlib
import random

import pytest
import sentencepiece

from toy import corpus
from transformer_jax.data.vocabulary import UNK, Vocabulary
from transformer_jax.exchange import pieces
from transformer_jax.machine.errors import UserError

LINES = [line.decode() for line in corpus.number_lines(300)[0]]


@pytest.fixture(params=['unigram', 'bpe'])
def spm(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
  path = tmp_path / 'source.spm'
  with path.open('wb') as file:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(LINES),
      model_writer=file,
      vocab_size=24,
      model_type=request.param,
      minloglevel=2,
    )
  return path


def names(path: pathlib.Path) -> list[str]:
  processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
  return [processor.id_to_piece(i) for i in range(3, len(processor))]


def over(path: pathlib.Path, rows: list[str]) -> tuple[Vocabulary, pieces.OverRows]:
  found = pieces.over_rows(path, [*pieces.SPECIALS, *rows])
  new = path.with_name('new.model')
  new.write_bytes(found.spm)
  return Vocabulary(new), found


def test_text_is_cut_as_before(spm: pathlib.Path):
  """Whatever other pieces there are, and in whatever order."""
  more = 'ee', '\u2581two\u2581', 'one', '\u2581t', '', '<s>', '>>deu<<'
  rows = [*dict.fromkeys([*names(spm), *more])]
  random.Random(0).shuffle(rows)
  words, found = over(spm, rows)
  before = sentencepiece.SentencePieceProcessor(model_file=str(spm))
  ids = words.encode([*LINES, 'zz one'])
  shown = [[words.pieces()[i] for i in line] for line in ids]
  expected = before.encode([*LINES, 'zz one'], out_type=str)
  assert shown[:-1] == expected[:-1] and UNK in ids[-1]
  assert words.decode(ids[:-1]) == LINES and not found.absent
  start = 4 + rows.index('>>deu<<')
  assert words.encode(['>>deu<< two']) == [[start, *words.encode(['two'])[0]]]
  foreign = 4 + rows.index('ee')
  assert foreign not in {i for line in ids for i in line}
  assert words.decode([[foreign]]) == ['ee']


def test_pieces_without_a_row_are_told(spm: pathlib.Path):
  rows = names(spm)
  words, found = over(spm, rows[:-2])
  assert found.absent == sorted(rows[-2:]) and found.kept == len(rows) - 2
  assert len(words) == len(rows) + 2


def test_what_fits_is_left_as_it_is(spm: pathlib.Path):
  once = over(spm, names(spm))[1].spm
  assert over(spm.with_name('new.model'), names(spm))[1].spm == once


def test_no_sentencepiece_model(tmp_path: pathlib.Path):
  path = tmp_path / 'source.spm'
  path.write_bytes(b'none')
  with pytest.raises(UserError, match='source.spm: no SentencePiece model'):
    pieces.over_rows(path, pieces.SPECIALS)
