"""Vocabularies: byte pairs (section 5.1), or one id for each token between spaces."""

import functools
import hashlib
import itertools
import pathlib
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as _protobuf

from transformer_jax.machine.errors import UserError

model_pb2: Any = _protobuf  # which makes its classes as it is imported
# The ids of padding, of the end and the start of a sentence, and of unknown text.
PAD, EOS, BOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # ids that stand for no text: PAD, EOS, BOS, UNK

# Files in the folder of a corpus or a run; the second if the target has its own.
SHARED, TARGETS = 'vocabulary.model', 'vocabulary.target.model'
FILES = {SHARED, TARGETS}

SPACE = '\u2581'  # what SentencePiece writes for a space


class Vocabulary:
  """A SentencePiece model, which maps text to ids, without BOS and EOS, and back.

  Attributes:
    path: its file.
    sha256: the file's sum.
    has_whole_tokens: whether a piece is all text between two spaces, as in
      SentencePiece's model `word`.

  Raises:
    UserError: the file is not such a model.
  """

  def __init__(self, path: pathlib.Path):
    # SentencePiece accepts an empty model, but not b'0'.
    self.path, content = path, path.read_bytes() or b'0'
    self.sha256 = hashlib.sha256(content).hexdigest()
    try:
      self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
      spec = model_pb2.ModelProto.FromString(content).trainer_spec
    except (RuntimeError, DecodeError) as error:
      raise UserError(f'{path}: not a SentencePiece model, or damaged') from error
    self.has_whole_tokens = spec.model_type == model_pb2.TrainerSpec.WORD

  def __len__(self) -> int:
    return self._processor.get_piece_size()

  def pieces(self) -> list[str]:
    """Returns the text of every id, in which U+2581 stands for a space."""
    return self._processor.id_to_piece([*range(len(self))])

  @functools.cached_property
  def is_unknown(self) -> np.ndarray:
    """Returns which ids stand for unknown text or a byte of rare text: [ids] bool."""
    is_byte = self._processor.is_byte
    return np.array([i == UNK or is_byte(i) for i in range(len(self))])

  @functools.cached_property
  def space(self) -> int:
    """Returns the id of the piece that is a space alone, or -1 if there is none."""
    number = self._processor.piece_to_id(SPACE)
    return -1 if number == UNK else number

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each sentence; uses all cores."""
    return [ids.tolist() for ids in self._encode(sentences)]

  def encode_flat(self, sentences: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of all sentences [tokens], and how many each has [sentences]."""
    ids = self._encode(sentences)
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.concatenate([np.zeros(0, np.int32), *ids]), lengths

  def _encode(self, sentences: Iterable[str]) -> list[np.ndarray]:
    if not self.has_whole_tokens:
      return self._processor.encode([*sentences], num_threads=-1, return_type='numpy')
    # Token by token: encode() would merge neighbouring UNKs into one id.
    pieces = ([SPACE + token for token in s.split(' ') if token] for s in sentences)
    return [np.array(self._processor.piece_to_id(some), np.int32) for some in pieces]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Returns the text of ids up to the first EOS, without PAD and BOS."""
    before_eos = (itertools.takewhile(lambda i: i != EOS, text) for text in ids)
    texts = [[int(i) for i in text if i not in (PAD, BOS)] for text in before_eos]
    return self._processor.decode(texts)


class Vocabularies(NamedTuple):
  """The vocabularies of source and target, which may be one and the same."""

  source: Vocabulary
  target: Vocabulary


def read(folder: pathlib.Path, names: Container[str]) -> Vocabularies:
  """Returns the vocabularies of a folder, whose files have these `names`."""
  source = Vocabulary(folder / SHARED)
  return Vocabularies(
    source, Vocabulary(folder / TARGETS) if TARGETS in names else source
  )
