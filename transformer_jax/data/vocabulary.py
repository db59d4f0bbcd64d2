"""The byte-pair vocabulary both sides share (section 5.1), by SentencePiece.

Text enters SentencePiece as it is ('identity' normalisation): what the model learns to
write is compared with raw references, so nothing may be rewritten on the way in.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import numpy as np
import sentencepiece

PAD, EOS, BOS, UNK = 0, 1, 2, 3

# SentencePiece drops longer lines without a word; the corpus is cleaned before it
# gets here, so that the limit only has to be larger than any line that is kept.
MAX_LINE_BYTES = 100_000


def train(
  sentences: Iterable[str],
  path: pathlib.Path,
  size: int,
  character_coverage: float,
  byte_fallback: bool,
) -> dict:
  """Learns a BPE vocabulary of `size` pieces from both sides' sentences.

  Characters beyond `character_coverage`, the rarest, get no piece. They are spelt in
  bytes with `byte_fallback`, which takes 256 pieces, and become <unk> without. What
  SentencePiece keeps to itself (U+2585, <s>, </s>, <pad>, <unk>) has none in any case.

  Returns:
    What SentencePiece made of it, for the card: `sentences` given, `used` of them (it
    leaves some out without a word), `characters` that got a piece.

  Raises:
    ValueError: the sentences cannot fill `size` pieces, or cannot fit in it.
  """
  if size > 65536:
    raise ValueError(f'vocab_size={size}: token files hold uint16, so 65536 at most')
  given = _Counted(sentences)
  partial = path.with_suffix('.partial')
  with partial.open('wb') as model, _standard_error_to_file() as log:
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
        minloglevel=0,
      )
    except RuntimeError as error:
      partial.unlink()
      if given.error is not None:  # not SentencePiece's own
        raise given.error from None
      reason = str(error).rpartition('] ')[2] or 'there is no text'
      raise ValueError(
        f'no vocabulary of {size} pieces (--config.model.vocab_size) can be made from '
        f'this corpus: {reason}'
      ) from error
    log.seek(0)
    said = log.read()
  partial.rename(path)
  number = lambda pattern: int(re.search(pattern, said)[1])
  return {
    'sentences': given.count,
    'used': number(r'Done! preprocessed (\d+) sentences'),
    'characters': number(r'Alphabet size=(\d+)'),
  }


class _Counted:
  """Counts what is taken from it, and keeps the error that ends it too early."""

  def __init__(self, items: Iterable[str]):
    self._items, self.count = items, 0
    self.error: BaseException | None = None

  def __iter__(self) -> Iterator[str]:
    try:
      for item in self._items:
        self.count += 1
        yield item
    except BaseException as error:  # whatever it is, it is raised again
      self.error = error
      raise


@contextlib.contextmanager
def _standard_error_to_file() -> Iterator[TextIO]:
  """What C++ code writes to standard error goes to a file: that is all it tells."""
  with tempfile.TemporaryFile('w+', errors='replace') as file:
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
      yield file
    finally:
      os.dup2(kept, 2)
      os.close(kept)


class Vocabulary:
  """A trained SentencePiece model: text <-> ids. Ids leave here without BOS or EOS."""

  def __init__(self, path: pathlib.Path):
    if not path.is_file():
      raise FileNotFoundError(f'{path}: no vocabulary there; run scripts.prepare_data')
    model = path.read_bytes()
    self.sha256 = hashlib.sha256(model).hexdigest()
    self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

  def __len__(self) -> int:
    return self._processor.get_piece_size()

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    return self._processor.encode(list(sentences), num_threads=-1)

  def encode_flat(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All sentences' ids one after another [tokens], and each one's count [sentences].

    In the calling thread, which does not hold Python's lock meanwhile.
    """
    ids = self._processor.encode(list(sentences), num_threads=1, return_type='numpy')
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.concatenate([np.zeros(0, np.int32), *ids]), lengths

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Ids up to the first EOS, PAD and BOS left out, as text."""
    return self._processor.decode([_words(sequence) for sequence in ids])


def _words(sequence: Sequence[int]) -> list[int]:
  words = []
  for i in sequence:
    if i == EOS:
      break
    if i not in (PAD, BOS):
      words.append(int(i))
  return words
