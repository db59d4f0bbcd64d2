"""Training batches of one fixed shape, without padding."""

import pathlib

import ml_collections
import numpy as np

from transformer_jax.data import token_files
from transformer_jax.data.lines import SIDES
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK
from transformer_jax.machine.errors import UserError

FIRST_WORD = max(PAD, EOS, BOS, UNK) + 1


def vocabulary_of_targets(config: ml_collections.ConfigDict) -> int:
  """How many pieces the target's vocabulary has, its own or the shared one."""
  return config.model.target_vocab_size or config.model.vocab_size


def random_words(count: int, length: int, vocab_size: int, seed: int) -> np.ndarray:
  """[count, length - 1] ids; EOS, which is added later, completes `length` tokens."""
  random = np.random.default_rng(seed)
  return random.integers(FIRST_WORD, vocab_size, (count, length - 1), np.int32)


def write_corpus(
  config: ml_collections.ConfigDict, rows: int, length: int, folder: pathlib.Path
) -> ml_collections.ConfigDict:
  """Writes a training set of one batch; returns the config that trains on it.

  Raises:
    UserError: the config's slices cannot share the rows equally.
  """
  if rows % config.slices:
    raise UserError(f'--rows={rows} must be a multiple of slices={config.slices}')
  sizes = config.model.vocab_size, vocabulary_of_targets(config)
  for seed, (side, size) in enumerate(zip(SIDES, sizes, strict=True)):
    words = random_words(rows, length, size, seed)
    token_files.write_tokens(folder / f'train.{side}', words)
  config = config.copy_and_resolve_references()
  config.tokens_per_batch = rows * length
  return config
