"""The byte-pair vocabulary that both sides share (section 5.1), by SentencePiece.

SentencePiece takes text as it is ('identity' normalisation): what the model learns to
write is compared with raw references, so nothing may be rewritten on the way in.
"""

import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sentencepiece

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

PAD, EOS, BOS, UNK = 0, 1, 2, 3

# SentencePiece leaves out longer lines. The limit has to be larger than any line that
# cleaning lets through.
MAX_LINE_BYTES = 100_000
# What SentencePiece writes for a space, and for an unknown character.
_SPACE, _UNKNOWN = '\u2581', '\u2585'
_ONLY_ERRORS = 2  # SentencePiece's minloglevel


def sample_lines(
  texts: Sequence[pathlib.Path], pairs: int, wanted: int, seed: int
) -> Iterator[str]:
  """The lines of `wanted` pairs drawn from all: those of texts[0], then of texts[1].

  Args:
    texts: two files with a sentence a line, UTF-8.
    pairs: how many lines each file has.
    wanted: how many are drawn, without replacement; all if there are no more.
    seed: decides which.
  """
  chosen = np.ones(pairs, bool)
  if wanted < pairs:
    chosen[:] = False
    chosen[np.random.default_rng(seed).choice(pairs, wanted, replace=False)] = True
  for path in texts:
    with path.open(encoding='utf-8', newline='\n') as file:
      for line in itertools.compress(file, chosen):
        yield line.removesuffix('\n')


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
  given = _Usable(sentences)
  partial = path.with_suffix('.partial')
  with partial.open('wb') as model:
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(given),
        model_writer=model,
        vocab_size=size,
        model_type='bpe',
        character_coverage=character_coverage,
        byte_fallback=byte_fallback,
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
      reason = str(error).rpartition('] ')[2] or 'there is no text'
      raise UserError(
        f'no vocabulary of {size} pieces (--config.model.vocab_size) can be made from '
        f'this corpus: {reason}'
      ) from error
  files.sync(partial)
  partial.rename(path)
  return {
    'sentences': given.count,
    'used': given.used,
    'characters': sum(len(piece) == 1 for piece in Vocabulary(path).pieces()),
  }


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
    self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

  def __len__(self) -> int:
    return self._processor.get_piece_size()

  def pieces(self) -> list[str]:
    """The text of every id, in which U+2581 stands for a space."""
    return self._processor.id_to_piece([*range(len(self))])

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    """The ids of each sentence, with all cores."""
    return self._processor.encode(list(sentences), num_threads=-1)

  def encode_flat(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All sentences' ids one after another [tokens], and each one's count [sentences].

    It works in the calling thread and does not hold Python's lock meanwhile.
    """
    ids = self._processor.encode(list(sentences), num_threads=1, return_type='numpy')
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.concatenate([np.zeros(0, np.int32), *ids]), lengths

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Text of ids up to the first EOS; PAD and BOS are left out."""
    return self._processor.decode([_text_ids(sequence) for sequence in ids])


def _text_ids(sequence: Sequence[int]) -> list[int]:
  until_end = itertools.takewhile(lambda i: i != EOS, sequence)
  return [int(i) for i in until_end if i not in (PAD, BOS)]
