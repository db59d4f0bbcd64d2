"""Token files: the source or the target sentences of a split, as ids.

SIDE.tokens holds the ids of all sentences one after another as little-endian uint16,
without EOS. SIDE.offsets holds the start of each sentence and the end of the last one,
as int64. Both are written block by block and memory-mapped.
"""

import contextlib
import copy
import itertools
import mmap
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

# The ids of padding, of the end and the start of a sentence, and of unknown text.
PAD, EOS, BOS, UNK = 0, 1, 2, 3

TOKENS, OFFSETS = np.dtype('<u2'), np.dtype('<i8')
BLOCK = 2**16  # so many entries of a file are read at once


def _paths(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
  return tuple(path.with_name(path.name + end) for end in ('.tokens', '.offsets'))


class TokenWriter:
  """Writes PATH.tokens and PATH.offsets, a block of sentences at a time.

  Attributes:
    sentences, tokens: their numbers so far.
  """

  def __init__(self, path: pathlib.Path):
    self.sentences = self.tokens = 0
    self._path = path

  def __enter__(self) -> 'TokenWriter':
    with contextlib.ExitStack() as stack:
      stack.enter_context(files.named(self._path))  # in errors, such as of a full disk
      paths = _paths(self._path)
      self._files = [stack.enter_context(path.open('wb')) for path in paths]
      self._files[1].write(np.zeros(1, OFFSETS))
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *error: object) -> None:
    self._stack.__exit__(*error)

  def append(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
    """Adds sentences of these `lengths`; `tokens` [sum(lengths)] has the ids of all."""
    ends = self.tokens + np.cumsum(lengths, dtype=OFFSETS)
    self._files[0].write(np.ascontiguousarray(tokens, TOKENS))
    self._files[1].write(ends)
    self.sentences += len(ends)
    self.tokens += len(tokens)


def write_tokens(path: pathlib.Path, sentences: Sequence[Sequence[int]]) -> int:
  """Writes PATH.tokens and PATH.offsets; returns the number of tokens."""
  with TokenWriter(path) as writer:
    ids = np.fromiter(itertools.chain.from_iterable(sentences), np.int64)
    writer.append(ids, np.fromiter(map(len, sentences), np.int64))
  return writer.tokens


def _mapped(path: pathlib.Path) -> np.ndarray:
  """Returns the bytes of a file, memory-mapped."""
  with path.open('rb') as file:
    if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
      return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


class Side:
  """One side of a split, memory-mapped from its two files.

  Attributes:
    tokens: [tokens] uint16, of all sentences.
    offsets: [sentences + 1] int64, the start of each sentence and the end of the last.
    ends: [sentences] int64, the end of each sentence.
    longest: tokens of the longest sentence with its EOS; 0 without sentences.

  Raises:
    UserError: the two files contradict each other.
  """

  def __init__(self, path: pathlib.Path):
    self._path, offsets = _paths(path)
    tokens, starts = _mapped(self._path), _mapped(offsets)
    if not len(starts) or len(starts) % OFFSETS.itemsize:
      self._refuse(f'{offsets.name} has {len(starts)} bytes')
    self.offsets = starts.view(OFFSETS)
    last = int(self.offsets[-1])
    if self.offsets[0] or len(tokens) != last * TOKENS.itemsize:
      self._refuse(
        f'{len(tokens)} bytes, but {offsets.name} goes from {self.offsets[0]} to {last}'
      )
    self.tokens = tokens.view(TOKENS)
    self.ends, self.longest = self.offsets[1:], 0
    for start in range(0, len(self), BLOCK):
      block = self.offsets[start : start + BLOCK + 1]
      falls = np.flatnonzero(block[1:] < block[:-1])
      if falls.size:
        self._refuse(f'sentence {start + falls[0] + 1} ends before it starts')
      self.longest = max(self.longest, int(np.diff(block).max()) + 1)

  def _refuse(self, why: str) -> None:
    raise UserError(
      f'{self._path}: {why}; delete {self._path.parent} and run scripts.prepare_data '
      'again'
    )

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @property
  def lengths(self) -> np.ndarray:
    """The number of tokens of each sentence with its EOS: [sentences] int32."""
    return self.lengths_between(0, len(self))

  def lengths_between(self, start: int, stop: int) -> np.ndarray:
    """Returns the lengths of sentences start..stop-1: [stop - start] int32."""
    lengths = self.ends[start:stop] - self.offsets[:-1][start:stop] + 1
    return lengths.astype(np.int32)

  def cut(self, longest: int) -> 'Side':
    """Returns the same sentences, each cut to `longest` tokens with its EOS."""
    side = copy.copy(self)
    side.ends = np.minimum(self.ends, self.offsets[:-1] + longest - 1)
    side.longest = min(self.longest, longest)
    return side

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


def pad_ids(sentences: Sequence[Sequence[int]], rows: int, length: int) -> np.ndarray:
  """Returns ids of sentences, padded with PAD: [rows, length] int32.

  Rows beyond the sentences are empty.
  """
  block = np.full((rows, length), PAD, np.int32)
  for row, ids in zip(block, sentences, strict=False):
    row[: len(ids)] = ids
  return block


def read_split(folder: pathlib.Path, split: str) -> tuple[Side, Side]:
  """Returns source and target of a split of a prepared corpus."""
  return Side(folder / f'{split}.source'), Side(folder / f'{split}.target')
