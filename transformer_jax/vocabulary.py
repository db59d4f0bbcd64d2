"""The byte-pair vocabulary both sides share (section 5.1), by SentencePiece.

Text enters SentencePiece as it is ('identity' normalisation): what the model learns to
write is compared with raw references, so nothing may be rewritten on the way in.
"""

import hashlib
import pathlib
from collections.abc import Iterable, Sequence

import sentencepiece

PAD, EOS, BOS, UNK = 0, 1, 2, 3

# SentencePiece drops longer lines without a word; the corpus is cleaned before it
# gets here, so that the limit only has to be larger than any line that is kept.
MAX_LINE_BYTES = 100_000


def train(sentences: Iterable[str], path: pathlib.Path, size: int) -> None:
  """Learns a BPE vocabulary of `size` pieces from both sides' sentences.

  Every character of the sentences gets a piece, so that <unk> cannot come up in them
  (but for what SentencePiece keeps to itself: U+2585, <s>, </s>, <pad>, <unk>).

  Raises:
    ValueError: the sentences cannot fill `size` pieces, or cannot fit in it.
  """
  if size > 65536:
    raise ValueError(f'vocab_size={size}: token files hold uint16, so 65536 at most')
  partial = path.with_suffix('.partial')
  with partial.open('wb') as model:
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        model_type='bpe',
        character_coverage=1.0,
        normalization_rule_name='identity',
        max_sentence_length=MAX_LINE_BYTES,
        pad_id=PAD,
        eos_id=EOS,
        bos_id=BOS,
        unk_id=UNK,
        minloglevel=2,
      )
    except RuntimeError as error:
      partial.unlink()
      reason = str(error).rpartition('] ')[2] or 'there is no text'
      raise ValueError(
        f'no vocabulary of {size} pieces (--config.model.vocab_size) can be made from '
        f'this corpus: {reason}'
      ) from error
  partial.rename(path)


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

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    """Ids up to the first EOS, PAD and BOS left out, as text."""
    return self._processor.decode([_words(sequence) for sequence in ids])

  def pieces(self, ids: Sequence[int]) -> list[str]:
    return [self._processor.id_to_piece(int(i)) for i in ids]


def _words(sequence: Sequence[int]) -> list[int]:
  words = []
  for i in sequence:
    if i == EOS:
      break
    if i not in (PAD, BOS):
      words.append(int(i))
  return words
