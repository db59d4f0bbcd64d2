"""Vocabularies by SentencePiece: byte pairs (section 5.1), trees' tokens, whole words.

SentencePiece takes text as it is ('identity' normalisation), but for spaces at the ends
and runs of spaces: what the model learns to write is compared with raw references.
"""

import collections
import hashlib
import itertools
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece

from transformer_jax.data import word_classes
from transformer_jax.data.word_classes import CLASS
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

PAD, EOS, BOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # that many ids stand for no text

# Files in a corpus's and in a run's folder; the second only if the target has its own.
FILES = {SHARED := 'vocabulary.model', TARGETS := 'vocabulary.target.model'}

# SentencePiece learns nothing from longer lines. No line is longer that is within the
# limits of cleaning by default.
MAX_LINE_BYTES = 100_000
# What SentencePiece writes for a space, and for an unknown character.
_SPACE, _UNKNOWN = '\u2581', '\u2585'
_ONLY_ERRORS = 2  # SentencePiece's minloglevel
# Its multiples modulo 2**64 spread evenly, however many (Knuth, volume 3, section 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def sample_lines(
  texts: Sequence[pathlib.Path],
  pairs: int,
  wanted: int,
  seed: int,
  sides: Sequence[int] = (0, 1),
) -> Iterator[str]:
  """The lines of `wanted` pairs drawn from all: those of texts[0], then of texts[1].

  Args:
    texts, pairs, wanted, seed: as drawn() has them.
    sides: the texts whose lines are wanted; all decide which pairs are drawn.
  """
  chosen = drawn(texts, pairs, wanted, seed)
  for side in sides:
    with texts[side].open(encoding='utf-8', newline='\n') as file:
      for line in itertools.compress(file, chosen):
        yield line.removesuffix('\n')


def drawn(
  texts: Sequence[pathlib.Path], pairs: int, wanted: int, seed: int
) -> np.ndarray:
  """Which of all pairs are drawn: [pairs] bool.

  They are those with the smallest hashes of their text. So they are the same in
  whatever order the pairs come.

  Args:
    texts: two files with a sentence a line, UTF-8.
    pairs: how many lines each file has.
    wanted: how many are drawn, without replacement; all if there are no more.
    seed: decides which.
  """
  chosen = np.ones(pairs, bool)
  if wanted < pairs:
    chosen[:] = False
    chosen[np.argpartition(_hashes(texts, seed), wanted)[:wanted]] = True
  return chosen


def _hashes(texts: Sequence[pathlib.Path], seed: int) -> np.ndarray:
  """A hash of each pair, of its text and of its number among equals: [pairs] uint64."""
  salt = (seed % 2**128).to_bytes(hashlib.blake2b.SALT_SIZE, 'little')
  found = bytearray()
  with texts[0].open('rb') as source, texts[1].open('rb') as target:
    for a, b in zip(source, target, strict=True):
      found += hashlib.blake2b(a + b, digest_size=8, salt=salt).digest()
  hashes = np.frombuffer(found, '<u8')
  order = np.argsort(hashes, kind='stable')
  ordered, place = hashes[order], np.arange(len(hashes))
  is_first = np.diff(ordered, prepend=~ordered[:1]) != 0
  number = place - np.maximum.accumulate(np.where(is_first, place, 0))
  # Without this spread of their hashes, equal pairs would be drawn all or none.
  spread = np.empty_like(hashes)
  spread[order] = ordered + number.astype(np.uint64) * _GOLDEN
  return spread


def train(
  sentences: Iterable[str],
  path: pathlib.Path,
  size: int,
  character_coverage: float,
  byte_fallback: bool,
) -> dict:
  """Learns a vocabulary of `size` pieces and writes it to `path`.

  The rarest characters, beyond `character_coverage`, get no piece. With `byte_fallback`
  they are spelt in bytes, which take 256 pieces; without it they become <unk>.

  Returns:
    What the card says of it: the number of `sentences` given, of those `used`, and of
    `characters` that got a piece.

  Raises:
    UserError: the sentences do not fill `size` pieces, or do not fit in them.
  """
  if size > 65536:
    raise UserError(f'vocab_size={size}: token files hold uint16, so 65536 at most')
  options = {
    'model_type': 'bpe',
    'character_coverage': character_coverage,
    'byte_fallback': byte_fallback,
  }
  given = _Usable(sentences)
  _learn(given, given, path, size, options)
  return {
    'sentences': given.count,
    'used': given.used,
    'characters': sum(len(piece) == 1 for piece in Vocabulary(path).pieces()),
  }


def train_tokens(sentences: Iterable[str], path: pathlib.Path, size: int) -> dict:
  """Makes a vocabulary of the tokens between spaces; the rarest ones become <unk>.

  It always has `size` pieces, one for each row of the model's embedding. Spare pieces
  are control symbols, which occur in no text.

  Returns:
    As train(), but with the number of `tokens` in place of `characters`.
  """
  given = _Usable(sentences)
  counts = collections.Counter(token for line in given for token in line.split(' '))
  del counts['']
  spare = size - SPECIAL - len(counts)
  if spare < 0:
    key = 'target_vocab_size' if path.name == TARGETS else 'vocab_size'
    print(
      f'{-spare} of {len(counts)} different tokens get no piece and become <unk>: '
      f'--config.model.{key}={size - spare} would hold all',
      file=sys.stderr,
    )
  unused = [f'<unused{i}>' for i in range(spare)]
  options = {'model_type': 'word', 'input_format': 'tsv'}
  options |= {'character_coverage': 1.0}  # a token of rarer characters would be lost
  options |= {'control_symbols': unused} if unused else {}
  lines = (f'{token}\t{count}' for token, count in counts.items())
  _learn(lines, given, path, size, options)
  return {'sentences': given.count, 'used': given.used, 'tokens': len(counts)}


def train_words(sentences: Iterable[str], path: pathlib.Path, size: int) -> dict:
  """Makes a vocabulary of whole words; rare ones are of a class (word_classes.py).

  All words that occur once are rare, and the rarest of the others if `size` pieces
  cannot hold them. A class has a piece if a word of the text is of it.

  Returns:
    As train_tokens(), and the number of `words` with a piece of their own.
  """
  given = _Usable(sentences)
  lines = [*given]
  counts = collections.Counter(word for line in lines for word in line.split(' '))
  kept = {word for word, count in counts.items() if count > 1}
  # A word that loses its piece may be the first of its class, which then takes a piece.
  # So words are dropped until the pieces fit.
  over = 1
  while over > 0:
    text = [word_classes.classed(line, kept.__contains__) for line in lines]
    pieces = len({word for line in text for word in line.split(' ')}) + SPECIAL
    # Without any words, the rarest classes are left out by train_tokens().
    over = min(pieces - size, len(kept))
    kept -= set(sorted(kept, key=lambda word: (counts[word], word))[: max(0, over)])
  made = train_tokens(text, path, size)
  return made | {'sentences': given.count, 'used': given.used, 'words': len(kept)}


def _learn(
  lines: Iterable[str],
  given: '_Usable',
  path: pathlib.Path,
  size: int,
  options: Mapping[str, Any],
) -> None:
  """Has SentencePiece learn from lines that come of those given."""
  partial = path.with_suffix('.partial')
  with partial.open('wb') as model:
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
      partial.unlink()
      if given.error is not None:
        raise given.error from None
      key = 'target_vocab_size' if path.name == TARGETS else 'vocab_size'
      reason = str(error).rpartition('] ')[2] or str(error)
      reason = reason if given.used else 'there is no text'
      raise UserError(
        f'no vocabulary of {size} pieces (--config.model.{key}) can be made from '
        f'this corpus: {reason}'
      ) from error
  files.sync(partial)
  partial.rename(path)


class _Usable:
  """The sentences that SentencePiece learns from; it would leave out the others itself.

  Attributes:
    count, used: how many sentences were read, and how many were passed on.
    error: what the sentences' source raised. SentencePiece makes a RuntimeError of it.
  """

  def __init__(self, sentences: Iterable[str]):
    self._sentences = sentences
    self.count = self.used = 0
    self.error: BaseException | None = None

  def __iter__(self) -> Iterator[str]:
    try:
      for sentence in self._sentences:
        self.count += 1
        if _is_used(sentence):
          self.used += 1
          yield sentence
    except BaseException as error:
      self.error = error
      raise


def _is_used(sentence: str) -> bool:
  """Whether SentencePiece learns from it: not if empty, too long or with its marks."""
  blank = not sentence.strip(f' {_SPACE}')
  too_long = len(sentence.encode()) > MAX_LINE_BYTES
  return not (blank or too_long or _UNKNOWN in sentence)


class Vocabulary:
  """A trained SentencePiece model: text <-> ids. Ids leave here without BOS or EOS."""

  def __init__(self, path: pathlib.Path):
    if not path.is_file():
      raise UserError(f'{path}: no vocabulary there; run scripts.prepare_data')
    model = path.read_bytes()
    self.sha256 = hashlib.sha256(model).hexdigest()
    try:
      # Without the b'0', empty bytes would count as no model given: no error is raised.
      self._processor = sentencepiece.SentencePieceProcessor(model_proto=model or b'0')
    except RuntimeError as error:
      raise UserError(f'{path}: no SentencePiece model, or damaged') from error

    pieces = self.pieces()
    # Only a vocabulary of whole words has classes; text is then read by words.
    has_classes = any(piece.startswith(_SPACE + CLASS) for piece in pieces)
    self._words = {p.removeprefix(_SPACE) for p in pieces} if has_classes else None
    # The pieces of an imported model's other language (exchange/pieces.py).
    self._unused = {p: i for i, p in enumerate(pieces) if self._processor.is_unused(i)}

  def _read(self, sentences: Sequence[str]) -> list[str]:
    """The sentences, their rare words as classes where the vocabulary has such."""
    if self._words is None:
      return [*sentences]
    return [word_classes.classed(s, self._words.__contains__) for s in sentences]

  def __len__(self) -> int:
    return self._processor.get_piece_size()

  def pieces(self) -> list[str]:
    """The text of every id, in which U+2581 stands for a space."""
    return self._processor.id_to_piece([*range(len(self))])

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    """The ids of each sentence, with all cores."""
    read = self._read(sentences)
    ids = self._processor.encode(read, num_threads=-1)
    if not self._unused:
      return ids
    return [self._look_up(*pair) for pair in zip(read, ids, strict=True)]

  def _look_up(self, sentence: str, ids: Sequence[int]) -> list[int]:
    """The ids, with unused pieces for unknown parts of the sentence that equal them."""
    names = self._processor.encode(sentence, out_type=str) if UNK in ids else ids
    pairs = zip(ids, names, strict=True)
    return [self._unused.get(name, UNK) if i == UNK else int(i) for i, name in pairs]

  def encode_flat(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All sentences' ids one after another [tokens], and each one's count [sentences].

    It works in the calling thread, and SentencePiece does not hold Python's lock.
    """
    read = self._read(sentences)
    ids = self._processor.encode(read, num_threads=1, return_type='numpy')
    if self._unused:
      ids = [self._look_up(*pair) for pair in zip(read, ids, strict=True)]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.concatenate([np.zeros(0, np.int32), *ids]), lengths

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Text of ids up to the first EOS; PAD and BOS are left out."""
    return self._processor.decode([_text_ids(sequence) for sequence in ids])


def _text_ids(sequence: Sequence[int]) -> list[int]:
  until_end = itertools.takewhile(lambda i: i != EOS, sequence)
  return [int(i) for i in until_end if i not in (PAD, BOS)]


class Vocabularies(NamedTuple):
  """Those of source and target; the same object twice where both sides share one."""

  source: Vocabulary
  target: Vocabulary


def read(folder: pathlib.Path, apart: bool) -> Vocabularies:
  """The vocabularies in a folder; `apart` if the target has its own."""
  source = Vocabulary(folder / SHARED)
  return Vocabularies(source, Vocabulary(folder / TARGETS) if apart else source)
