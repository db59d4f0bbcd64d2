"""Clean text -> token files, with all cores, a block of pairs at a time."""

import collections
import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from transformer_jax.data.token_files import TokenWriter
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine import environment

BLOCK = 5_000  # pairs

Lines = tuple[list[bytes], list[bytes]]  # of source and target


class Encoded(NamedTuple):
  """How many pairs were read and written; each list has an entry a side."""

  read: int
  kept: int
  tokens: list[int]
  longest: list[int]  # sentence, in tokens without EOS


class _Block(NamedTuple):
  pairs: int  # that were read
  kept: Lines
  sides: list[tuple[np.ndarray, np.ndarray]]  # tokens and lengths of those kept


def encode(
  words: Vocabularies,
  texts: Sequence[pathlib.Path],
  sides: Sequence[pathlib.Path],
  max_length: int,
  pairs: int,
  look: Callable[[Sequence[bytes], Sequence[bytes]], None],
) -> Encoded:
  """Encodes two files of lines into two token files.

  Pairs with a side of over `max_length` tokens, its EOS counted, are left out.

  Args:
    texts: source and target, a sentence a line, equally many.
    sides: where their token files go, without the ends of their names.
    pairs: how many there are, for the progress bar.
    look: is shown the lines of all that are not left out, a block at a time.
  """
  read, longest = 0, [0, 0]
  with (
    TokenWriter(sides[0]) as source,
    TokenWriter(sides[1]) as target,
    tqdm(desc='encoding', total=pairs, unit=' pairs', unit_scale=True) as bar,
  ):
    for block in _encoded_blocks(words, _blocks(texts), max_length):
      for i, writer in enumerate((source, target)):
        tokens, lengths = block.sides[i]
        writer.append(tokens, lengths)
        longest[i] = max(longest[i], int(lengths.max(initial=0)))
      look(*block.kept)
      read += block.pairs
      bar.update(block.pairs)
    return Encoded(read, source.sentences, [source.tokens, target.tokens], longest)


def _blocks(texts: Sequence[pathlib.Path]) -> Iterator[Lines]:
  with texts[0].open('rb') as source, texts[1].open('rb') as target:
    while lines := list(itertools.islice(source, BLOCK)):
      yield lines, list(itertools.islice(target, BLOCK))


def _encoded_blocks(
  words: Vocabularies, blocks: Iterator[Lines], max_length: int
) -> Iterator[_Block]:
  """The blocks in their order, encoded by as many threads as there are cores."""
  cores = len(environment.cores())
  with ThreadPoolExecutor(cores) as pool:
    ahead: collections.deque[Future[_Block]] = collections.deque()
    for block in blocks:
      ahead.append(pool.submit(_encode_block, words, block, max_length))
      if len(ahead) > 2 * cores:
        yield ahead.popleft().result()
    while ahead:
      yield ahead.popleft().result()


def _encode_block(words: Vocabularies, block: Lines, max_length: int) -> _Block:
  encoded = [
    side.encode_flat([line.decode().removesuffix('\n') for line in lines])
    for side, lines in zip(words, block, strict=True)
  ]
  fits = np.all([lengths < max_length for _, lengths in encoded], 0)
  source, target = (list(itertools.compress(lines, fits)) for lines in block)
  return _Block(
    pairs=len(block[0]),
    kept=(source, target),
    sides=[(ids[np.repeat(fits, n)], n[fits]) for ids, n in encoded],
  )
