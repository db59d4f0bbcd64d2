"""Another run's vocabulary, which a corpus is encoded with for that run's model."""

import pathlib
import shutil
import sys

from transformer_jax.data import token_files, vocabulary
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.lines import SIDES
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError


def take(corpus: Corpus, given: pathlib.Path, folder: pathlib.Path) -> dict[str, dict]:
  """Copies the vocabularies from `given`; what the card says of them.

  Raises:
    UserError: they are not those that the corpus asks for.
  """
  names = {'vocabulary': vocabulary.SHARED}
  if ' ' in corpus.given_vocabulary:  # the target has its own
    names['target_vocabulary'] = vocabulary.TARGETS
  there = all((given / name).is_file() for name in names.values())
  sums = [files.sha256(given / name) for name in names.values()] if there else []
  if ' '.join(sums) != corpus.given_vocabulary:
    raise UserError(
      f'{given} does not have the vocabulary ({corpus.given_vocabulary[:12]}) that '
      f'{corpus.name} is to be encoded with: put that run back, or give --init_from '
      'anew. A run that has begun has it too (scripts.train --workdir=RUN)'
    )
  for name in names.values():
    shutil.copy(given / name, folder / name)
    files.sync(folder / name)
  return {kind: {'given': True} for kind in names}


def unknown(folder: pathlib.Path) -> dict[str, float]:
  """Which part of each side's training tokens the vocabulary does not know."""
  sides = zip(SIDES, token_files.read_split(folder, 'train'), strict=True)
  found = {name: side.share(vocabulary.UNK) for name, side in sides}
  told = ', '.join(f'{share:.2%} of the {name} tokens' for name, share in found.items())
  print(f'unknown to the given vocabulary: {told}', file=sys.stderr)
  return found
