"""Learns a vocabulary from a random sample of a text's pairs.

SentencePiece learns and stores it. Since translations are compared with raw references,
it changes nothing in the text but spaces at the ends and runs of spaces.
"""

import functools
import hashlib
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
from ml_collections import ConfigDict

from transformer_jax.data.vocabulary import BOS, EOS, PAD, TARGETS, UNK, Vocabulary
from transformer_jax.machine.errors import UserError

# SentencePiece ignores longer lines, which cleaning drops by default.
MAX_LINE_BYTES = 100_000
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
      reason = str(error).rpartition('] ')[2]
      if needed := re.search(r'smaller than required_chars. \d+ vs (\d+)', reason):
        reason = (
          f'its characters alone, and bytes if there are any, take {needed[1]}: give '
          f'more pieces, or a lower --config.data.character_coverage'
        )
      raise UserError(
        f'no vocabulary of {size} pieces (--config.model.{key}) can be made from '
        f'this corpus: {reason}'
      ) from error


def check_vocabulary(config: ConfigDict) -> None:
  """Raises UserError unless data.vocabulary is a model that the config can use."""
  path = pathlib.Path(config.data.vocabulary)
  if not path.is_file():
    raise UserError(f'{path}: no such file (--config.data.vocabulary)')
  ours, size = Vocabulary(path), config.model.vocab_size
  if config.model.target_vocab_size or config.init_from.vocabulary:
    raise UserError(
      'data.vocabulary is of both languages: it goes neither with '
      '--config.model.target_vocab_size nor with --init_from'
    )
  ours.check()
  if len(ours) != size:
    raise UserError(
      f'{path} has {len(ours)} pieces, and the config says {size}: give '
      f'--config.model.vocab_size={len(ours)}'
    )
