"""SentencePiece models whose ids are the rows of a table that two languages share.

Marian's models split source and target by one SentencePiece model each. `vocab.json`
has the row of every piece of both. Our runs have no such file: an id is a row. So each
SentencePiece model gets the pieces of all rows, in order. The pieces that it lacked are
of the type "unused", so SentencePiece splits text as before. Like MarianTokenizer,
Vocabulary takes such a piece for unknown text that equals it.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence

from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from transformer_jax.data.vocabulary import SPACE, SPECIAL, UNK
from transformer_jax.machine.errors import UserError

SPECIALS = ('<pad>', '</s>', '<s>', '<unk>')  # the first rows of our tables, in order
# A code of the target language, such as >>deu<<, which begins a source text. It has a
# row of its own. Its piece includes the space that SentencePiece puts before a text.
CODE = re.compile('>>.+<<')

_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
_UNLIKELY = 1e6  # unused pieces have scores that are lower by so much than all others


def over_rows(path: pathlib.Path, rows: Sequence[str]) -> tuple[bytes, list[str]]:
  """Returns a SentencePiece model that splits text as that in `path`, into ids of rows.

  Args:
    rows: the piece of every row; the first four are SPECIALS.

  Returns:
    The new model, and the pieces of the original that no row has.

  Raises:
    UserError: the file holds no SentencePiece model.
  """
  original = path.read_bytes()
  try:
    model = sentencepiece_model_pb2.ModelProto.FromString(original)
  except message.DecodeError as error:
    raise UserError(f'{path}: no SentencePiece model, or damaged') from error
  # In a file the normaliser follows the pieces, so one that is cut short lacks it.
  if not model.pieces or not model.HasField('normalizer_spec'):
    raise UserError(f'{path}: no SentencePiece model, or damaged')
  text = {_Piece.NORMAL, _Piece.USER_DEFINED, _Piece.BYTE}
  known = {as_marian(p.piece): p for p in model.pieces if p.type in text}
  absent = sorted(known.keys() - {*rows})
  if [as_marian(p.piece) for p in model.pieces] == [*rows]:
    return original, absent
  # A BPE model also merges unused pieces, and then splits them again. With the lowest
  # score such merges come last, so they change no other.
  lowest = min((p.score for p in known.values()), default=0.0) - _UNLIKELY
  pieces = [_piece(row, piece, known, lowest) for row, piece in enumerate(rows)]
  del model.pieces[:]
  model.pieces.extend(pieces)
  spec = model.trainer_spec
  spec.vocab_size = len(pieces)
  spec.pad_id, spec.eos_id, spec.bos_id, spec.unk_id = range(SPECIAL)
  spec.pad_piece, spec.eos_piece, spec.bos_piece, spec.unk_piece = SPECIALS
  return model.SerializeToString(), absent


def as_marian(piece: str) -> str:
  """Returns a piece as vocab.json has it: codes of languages without a space before."""
  return re.sub(f'^{SPACE}(>>.+<<)$', r'\1', piece)


def _piece(row: int, piece: str, known: Mapping[str, _Piece], lowest: float) -> _Piece:
  if row < SPECIAL:
    kind = _Piece.UNKNOWN if row == UNK else _Piece.CONTROL
    return _Piece(piece=SPECIALS[row], type=kind, score=0.0)
  if piece in known:
    return known[piece]
  if CODE.fullmatch(piece):
    return _Piece(piece=f'{SPACE}{piece}', type=_Piece.USER_DEFINED, score=0.0)
  # SentencePiece takes no piece that is empty or occurs twice.
  own = piece if piece and piece not in SPECIALS else f'<row {row}>'
  return _Piece(piece=own, type=_Piece.UNUSED, score=lowest)
