"""A corpus of pairs that all have one length: every batch has one shape, no padding."""

import pathlib

import ml_collections
import numpy as np

from transformer_jax.data import token_files
from transformer_jax.data.vocabulary import BOS, EOS, PAD, UNK

FIRST_WORD = max(PAD, EOS, BOS, UNK) + 1


def ids(count: int, length: int, vocab_size: int, seed: int) -> np.ndarray:
  """Random words, [count, length - 1]: with EOS they come to `length`."""
  random = np.random.default_rng(seed)
  return random.integers(FIRST_WORD, vocab_size, (count, length - 1), np.int32)


def corpus(
  config: ml_collections.ConfigDict, rows: int, length: int, folder: pathlib.Path
) -> ml_collections.ConfigDict:
  """Writes a training set of one batch, and gives the config that makes it of it.

  Raises:
    ValueError: the config's slices cannot share the rows.
  """
  if rows % config.slices:
    raise ValueError(f'--rows={rows} must be a multiple of slices={config.slices}')
  for seed, side in enumerate(('source', 'target')):
    words = ids(rows, length, config.model.vocab_size, seed)
    token_files.write_tokens(folder / f'train.{side}', words)
  config = config.copy_and_resolve_references()
  config.tokens_per_batch = rows * length
  return config
