"""Cleaned text -> token files, with all cores, a block of pairs at a time.

A journal says how far the files are whole, so that a killed process's work is gone on
with and not begun anew.
"""

import collections
import itertools
import json
import pathlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from transformer_jax.data.token_files import TokenWriter
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine import files, processor

BLOCK = 5_000  # pairs
JOURNAL_EVERY = 40  # blocks


class Progress(NamedTuple):
  """How far a corpus is encoded; each list has an entry a side."""

  read: int  # pairs
  kept: int
  bytes: list[int]  # of the text
  tokens: list[int]  # written
  longest: list[int]  # sentence, in tokens

  @classmethod
  def load(cls, journal: pathlib.Path) -> 'Progress':
    if journal.is_file():
      return cls(**json.loads(journal.read_text()))
    return cls(0, 0, [0, 0], [0, 0], [0, 0])

  def save(self, journal: pathlib.Path) -> None:
    files.write(journal, json.dumps(self._asdict()))


class _Block(NamedTuple):
  pairs: int
  bytes: list[int]
  sides: list[tuple[np.ndarray, np.ndarray]]  # tokens, lengths; too long ones left out


def encode(
  words: Vocabulary,
  texts: list[pathlib.Path],
  sides: list[pathlib.Path],
  max_length: int,
  pairs: int,
  journal: pathlib.Path,
) -> Progress:
  """Encodes two files of lines into two token files.

  Pairs with a side of over `max_length` tokens, its EOS counted, are left out.

  Args:
    texts: source and target, a sentence a line, equally many.
    sides: where their token files go, without the ends of their names.
    pairs: how many there are, for the progress bar.
    journal: a file that says how far the token files are whole.
  """
  done = Progress.load(journal)
  with (
    TokenWriter(sides[0], done.kept, done.tokens[0]) as source,
    TokenWriter(sides[1], done.kept, done.tokens[1]) as target,
    tqdm(desc='encoding', total=pairs, unit=' pairs', unit_scale=True) as bar,
  ):
    bar.update(done.read)
    writers = source, target
    blocks = _encoded(words, _blocks(texts, done.bytes), max_length)
    for number, block in enumerate(blocks, 1):
      for writer, (tokens, lengths) in zip(writers, block.sides, strict=True):
        writer.append(tokens, lengths)
      longest = [lengths.max(initial=0) for _, lengths in block.sides]
      done = Progress(
        read=done.read + block.pairs,
        kept=source.sentences,
        bytes=[a + b for a, b in zip(done.bytes, block.bytes, strict=True)],
        tokens=[writer.tokens for writer in writers],
        longest=[max(a, int(b)) for a, b in zip(done.longest, longest, strict=True)],
      )
      if number % JOURNAL_EVERY == 0:
        for writer in writers:
          writer.sync()
        done.save(journal)
      bar.update(block.pairs)
    for writer in writers:
      writer.sync()
  done.save(journal)
  return done


def _blocks(texts: list[pathlib.Path], start: list[int]) -> Iterator[list[list[bytes]]]:
  with texts[0].open('rb') as source, texts[1].open('rb') as target:
    files = source, target
    for file, offset in zip(files, start, strict=True):
      file.seek(offset)
    while True:
      block = [list(itertools.islice(file, BLOCK)) for file in files]
      if not block[0]:
        return
      yield block


def _encoded(
  words: Vocabulary, blocks: Iterator[list[list[bytes]]], max_length: int
) -> Iterator[_Block]:
  """The blocks in their order, encoded by as many threads as there are cores."""
  cores = len(processor.cores())
  with ThreadPoolExecutor(cores) as pool:
    ahead: collections.deque[Future[_Block]] = collections.deque()
    for block in blocks:
      ahead.append(pool.submit(_encode, words, block, max_length))
      if len(ahead) > 2 * cores:
        yield ahead.popleft().result()
    while ahead:
      yield ahead.popleft().result()


def _encode(words: Vocabulary, block: list[list[bytes]], max_length: int) -> _Block:
  encoded = [
    words.encode_flat([line.decode().removesuffix('\n') for line in lines])
    for lines in block
  ]
  fits = np.all([lengths < max_length for _, lengths in encoded], 0)
  return _Block(
    pairs=len(block[0]),
    bytes=[sum(map(len, lines)) for lines in block],
    sides=[(ids[np.repeat(fits, n)].astype(np.uint16), n[fits]) for ids, n in encoded],
  )


def sample_lines(
  texts: list[pathlib.Path], pairs: int, wanted: int, seed: int
) -> Iterator[str]:
  """Sources, then targets, of `wanted` of the `pairs`, or of all if they are fewer.

  Which ones `seed` decides; all of a corpus is drawn from, not its beginning.
  """
  chosen = np.ones(pairs, bool)
  if wanted < pairs:
    chosen[:] = False
    chosen[np.random.default_rng(seed).choice(pairs, wanted, replace=False)] = True
  for path in texts:
    with path.open('rb') as file:
      for line in itertools.compress(file, chosen):
        yield line.decode().removesuffix('\n')
