"""Token files: the source or the target sentences of a split, as ids.

PATH.tokens holds the ids of all sentences one after another as little-endian uint16,
without EOS. PATH.offsets holds the start of each sentence and the end of the last one,
as int64. Both are written block by block and memory-mapped.
"""

import copy
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np

from transformer_jax.machine.errors import UserError

# The ids of padding, of the end and the start of a sentence, and of unknown text.
PAD, EOS, BOS, UNK = 0, 1, 2, 3

TOKENS, OFFSETS = np.dtype('<u2'), np.dtype('<i8')


class TokenWriter:
  """Writes PATH.tokens and PATH.offsets, a block of sentences at a time.

  Attributes:
    tokens: their number so far.
  """

  def __init__(self, path: pathlib.Path):
    self.tokens, self._paths = 0, _paths(path)

  def __enter__(self) -> 'TokenWriter':
    self._files = [path.open('wb') for path in self._paths]
    self._files[1].write(np.zeros(1, OFFSETS))
    return self

  def __exit__(self, *_: object) -> None:
    for file in self._files:
      file.close()

  def append(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
    """Adds sentences of these `lengths`; `tokens` [sum(lengths)] has the ids of all."""
    ends = self.tokens + np.cumsum(lengths, dtype=OFFSETS)
    self._files[0].write(np.ascontiguousarray(tokens, TOKENS))
    self._files[1].write(ends)
    self.tokens += len(tokens)


def _paths(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
  return tuple(path.with_name(path.name + end) for end in ('.tokens', '.offsets'))


def write_tokens(path: pathlib.Path, sentences: Sequence[Sequence[int]]) -> int:
  """Writes PATH.tokens and PATH.offsets; returns the number of tokens."""
  with TokenWriter(path) as writer:
    ids = np.fromiter(itertools.chain.from_iterable(sentences), np.int64)
    writer.append(ids, np.fromiter(map(len, sentences), np.int64))
  return writer.tokens


class Sentences:
  """The sentences of one language of a split, memory-mapped from their two files.

  Attributes:
    tokens: [tokens] uint16, of all sentences.
    offsets: [sentences + 1] int64, the start of each sentence and the end of the last.
    ends: [sentences] int64, the end of each sentence.

  Raises:
    UserError: the two files contradict each other.
  """

  def __init__(self, path: pathlib.Path):
    self.tokens, self.offsets = map(_mapped, _paths(path), (TOKENS, OFFSETS))
    self.ends = self.offsets[1:]
    ends = [*self.offsets[:1], *self.offsets[-1:]]
    if ends != [0, len(self.tokens)] or (np.diff(self.offsets) < 0).any():
      raise UserError(
        f'{path}.tokens and .offsets do not fit each other; delete {path.parent} and '
        'run scripts.prepare_data again'
      )

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @property
  def lengths(self) -> np.ndarray:
    """The number of tokens of each sentence with its EOS: [sentences] int32."""
    return (self.ends - self.offsets[:-1] + 1).astype(np.int32)

  def cut(self, longest: int) -> 'Sentences':
    """Returns the same sentences, each cut to `longest` tokens with its EOS."""
    cut = copy.copy(self)
    cut.ends = np.minimum(self.ends, self.offsets[:-1] + longest - 1)
    return cut

  def pad(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Returns sentences with EOS, padded: [len(rows), length] int32.

    Args:
      rows: the numbers of the sentences; -1 is an empty row, without EOS.
    """
    position = np.arange(length)
    starts = self.offsets[rows]
    counts = self.ends[rows] - starts  # none for row -1, which starts at the end
    tokens = np.zeros((len(rows), length), TOKENS)
    if len(self.tokens):
      # Each row reads on into the next sentence, which is faster than selecting the
      # tokens of its own. The others are replaced below.
      np.take(self.tokens, starts[:, None] + position, out=tokens, mode='clip')
    block = np.where(position < counts[:, None], tokens, PAD).astype(np.int32)
    real = np.flatnonzero(rows >= 0)
    block[real, counts[real]] = EOS
    return block


def _mapped(path: pathlib.Path, dtype: np.dtype) -> np.ndarray:
  """Returns the numbers of a file, memory-mapped."""
  count = path.stat().st_size // dtype.itemsize
  if not count:  # an empty file cannot be mapped
    return np.zeros(0, dtype)
  return np.asarray(np.memmap(path, dtype, 'r', shape=(count,)))


def pad_ids(sentences: Sequence[Sequence[int]], rows: int, length: int) -> np.ndarray:
  """Returns ids of sentences, padded with PAD: [rows, length] int32.

  Rows beyond the sentences are empty.
  """
  block = np.full((rows, length), PAD, np.int32)
  for row, ids in zip(block, sentences, strict=False):
    row[: len(ids)] = ids
  return block


def read_split(folder: pathlib.Path, split: str) -> tuple[Sentences, Sentences]:
  """Returns source and target of a split of a prepared corpus."""
  return Sentences(folder / f'{split}.source'), Sentences(folder / f'{split}.target')
