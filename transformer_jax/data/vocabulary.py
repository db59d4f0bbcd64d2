"""Vocabularies: byte pairs (section 5.1), or one id for each token between spaces.

SentencePiece learns and stores them. Since translations are compared with raw
references, it changes nothing in the text but spaces at the ends and runs of spaces.
"""

import functools
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from ml_collections import ConfigDict
from sentencepiece import sentencepiece_model_pb2

from transformer_jax.data.corpus import read_card
from transformer_jax.machine.errors import UserError

# The ids of padding, of the end and the start of a sentence, and of unknown text.
PAD, EOS, BOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # ids that stand for no text: PAD, EOS, BOS, UNK

# Files in the folder of a corpus or a run; the second if the target has its own.
SHARED, TARGETS = 'vocabulary.model', 'vocabulary.target.model'
FILES = {SHARED, TARGETS}

# SentencePiece ignores longer lines, which cleaning drops by default.
MAX_LINE_BYTES = 100_000
# What SentencePiece writes for a space, and for unknown text.
SPACE, UNKNOWN = '\u2581', '\u2585'
UNKNOWN_TOKEN = '\u2047'  # what it decodes UNK to
_ONLY_ERRORS = 2  # SentencePiece's minloglevel
# Fibonacci hashing's constant, 2**64 / phi (Knuth, volume 3, section 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


# Learns a vocabulary of this many pieces from lines, and writes it to a file.
Learner = Callable[[Iterable[str], pathlib.Path, int], None]


# Random samples of pairs


def choose_pairs(
  texts: Sequence[pathlib.Path], pairs: int, count: int, seed: int
) -> np.ndarray:
  """Returns which pairs are in a random sample of `count` pairs: [pairs] bool.

  They are the pairs with the smallest hashes of text and seed, so the order of the text
  does not matter.

  Args:
    texts: two files with a sentence a line, UTF-8.
    pairs: the number of lines of each file.
  """
  chosen = np.ones(pairs, bool)
  if count < pairs:
    chosen[:] = False
    chosen[np.argpartition(_hashes(texts, seed), count)[:count]] = True
  return chosen


def _hashes(texts: Sequence[pathlib.Path], seed: int) -> np.ndarray:
  """Returns a hash of each pair's text and its number among equals: [pairs] uint64."""
  salt = (seed % 2**128).to_bytes(hashlib.blake2b.SALT_SIZE, 'little')
  digests = bytearray()
  with texts[0].open('rb') as source, texts[1].open('rb') as target:
    for a, b in zip(source, target, strict=True):
      digests += hashlib.blake2b(a + b, digest_size=8, salt=salt).digest()
  hashes = np.frombuffer(digests, '<u8')
  order = np.argsort(hashes, kind='stable')
  ordered, position = hashes[order], np.arange(len(hashes))
  is_first = np.diff(ordered, prepend=~ordered[:1]) != 0
  number = position - np.maximum.accumulate(np.where(is_first, position, 0))
  # Spread the hashes of equal pairs, or all or none of them would be chosen.
  spread = np.empty_like(hashes)
  spread[order] = ordered + number.astype(np.uint64) * _GOLDEN
  return spread


def chosen_lines(
  path: pathlib.Path, chosen: Iterable[bool] = itertools.repeat(True)
) -> Iterator[str]:
  """Yields the lines of a file that are chosen ([lines] bool), or all."""
  with path.open(encoding='utf-8', newline='\n') as file:
    for line in itertools.compress(file, chosen):
      yield line.removesuffix('\n')


# Learning


def learners(config: ConfigDict) -> tuple[Learner, Learner]:
  """Returns learners of byte pairs: of source or both languages, and of the target.

  The rarest characters, beyond `character_coverage`, get no piece. They become <unk>,
  or, with `byte_fallback`, are spelt in bytes, which take 256 pieces.
  """
  names = 'character_coverage', 'byte_fallback'
  options = {'model_type': 'bpe'} | {name: config.data[name] for name in names}
  learn_pieces = functools.partial(learn, options=options)
  return learn_pieces, learn_pieces


def learn(
  lines: Iterable[str], path: pathlib.Path, size: int, options: Mapping[str, Any]
) -> None:
  """Runs SentencePiece on lines, which are those of a text or its counted tokens.

  Raises:
    UserError: the lines have fewer pieces, or more characters than pieces.
  """
  with path.open('wb') as model:
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        **options,
        normalization_rule_name='identity',
        max_sentence_length=MAX_LINE_BYTES,
        pad_id=PAD,
        eos_id=EOS,
        bos_id=BOS,
        unk_id=UNK,
        minloglevel=_ONLY_ERRORS,
      )
    except RuntimeError as error:
      key = 'target_vocab_size' if path.name == TARGETS else 'vocab_size'
      raise UserError(
        f'no vocabulary of {size} pieces (--config.model.{key}) can be made from '
        f'this corpus: {str(error).rpartition("] ")[2]}'
      ) from error


# Text to ids and back


class Vocabulary:
  """A SentencePiece model, which maps text to ids, without BOS and EOS, and back.

  Attributes:
    path: its file.
    sha256: the file's sum.
    tokens: the id of each whole token; None if the pieces are byte pairs.

  Raises:
    UserError: the file is no such model.
  """

  def __init__(self, path: pathlib.Path):
    # SentencePiece raises no error for an empty model, but for b'0'.
    self.path, content = path, path.read_bytes() or b'0'
    self.sha256 = hashlib.sha256(content).hexdigest()
    try:
      self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
      model = sentencepiece_model_pb2.ModelProto.FromString(content)
    except (RuntimeError, DecodeError) as error:
      raise UserError(f'{path}: no SentencePiece model, or damaged') from error
    self.tokens: dict[str, int] | None = None
    if model.trainer_spec.model_type == sentencepiece_model_pb2.TrainerSpec.WORD:
      normal = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL
      self.tokens = {
        piece.piece.removeprefix(SPACE): number
        for number, piece in enumerate(model.pieces)
        if piece.type == normal
      }
      self._texts = {number: token for token, number in self.tokens.items()}
      self._texts[UNK] = UNKNOWN_TOKEN

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
    """Returns the id of a space that is no part of a word's piece, or -1."""
    number = self._processor.piece_to_id(SPACE)
    return -1 if number == UNK else number

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each sentence; uses all cores."""
    return [ids.tolist() for ids in self._encode(sentences)]

  def encode_flat(self, sentences: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of all sentences [tokens], and their numbers [sentences]."""
    ids = self._encode(sentences)
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.concatenate([np.zeros(0, np.int32), *ids]), lengths

  def _encode(self, sentences: Iterable[str]) -> list[np.ndarray]:
    if self.tokens is None:
      return self._processor.encode([*sentences], num_threads=-1, return_type='numpy')
    # An id for each token: SentencePiece has one for neighbouring UNKs.
    ids = lambda s: [self.tokens.get(token, UNK) for token in s.split(' ') if token]
    return [np.array(ids(sentence), np.int32) for sentence in sentences]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Returns the text of ids up to the first EOS, without PAD and BOS."""
    until_end = (itertools.takewhile(lambda i: i != EOS, one) for one in ids)
    texts = [[int(i) for i in text if i not in (PAD, BOS)] for text in until_end]
    if self.tokens is not None:
      known = self._texts
      return [' '.join(known[i] for i in text if i in known) for text in texts]
    return self._processor.decode(texts)


class Vocabularies(NamedTuple):
  """The vocabularies of source and target, which may be one and the same."""

  source: Vocabulary
  target: Vocabulary


def read(folder: pathlib.Path) -> Vocabularies:
  """Returns the vocabularies of a prepared corpus, or of a run, as its card says."""
  source = Vocabulary(folder / SHARED)
  own_target = TARGETS in read_card(folder).sha256
  return Vocabularies(source, Vocabulary(folder / TARGETS) if own_target else source)
