"""The reader of the corpus that comes with the package."""

import functools

from transformer_jax import quickstart_corpus
from transformer_jax.data.corpus import Source, Splits
from transformer_jax.machine.errors import UserError


def read_splits(source: str, target: str, seed: int) -> Splits:
  """The embedded corpus, in either direction.

  Raises:
    UserError: it does not have this pair of languages.
  """
  if {source, target} != {'en', 'de'}:
    raise UserError(f'{source}-{target}: the embedded corpus is en-de or de-en')
  name, splits = f'embedded corpus, seed {seed}', {}
  for split, pairs in quickstart_corpus.sentence_pairs(seed).items():
    order = 1 if target == 'de' else -1
    pairs = [pair[::order] for pair in pairs]
    splits[split] = [Source(name, (), functools.partial(iter, pairs))]
  return splits
