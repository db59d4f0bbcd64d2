"""The reader of the corpus that comes with the package."""

import importlib.metadata
from collections.abc import Iterator

from transformer_jax import quickstart_corpus
from transformer_jax.data.lines import SIDES, Bitext, Pair
from transformer_jax.machine.errors import UserError


class InMemoryBitext:
  """A bitext whose pairs are all in memory."""

  def __init__(self, name: str, pairs: list[tuple[str, str]], origin: dict):
    self.name, self.paths = name, ()
    self._pairs, self._origin = pairs, origin

  def stamp(self) -> list:
    return [self.name, self._origin]

  def pairs(self) -> Iterator[Pair]:
    yield from self._pairs

  def origin(self) -> dict:
    return self._origin


def bitexts(source: str, target: str, seed: int) -> dict[str, list[Bitext]]:
  """The embedded corpus, in either direction.

  Raises:
    UserError: it does not have this pair of languages.
  """
  if {source, target} != {'en', 'de'}:
    raise UserError(f'{source}-{target}: the embedded corpus is en-de or de-en')
  versions = {name: importlib.metadata.version(name) for name in ('babel', 'num2words')}
  splits = {}
  for split, pairs in quickstart_corpus.sentence_pairs(seed).items():
    if target == 'en':
      pairs = [(german, english) for english, german in pairs]
    origin = {side: {'lines': len(pairs), 'versions': versions} for side in SIDES}
    name = f'embedded corpus, seed {seed}'
    splits[split] = [InMemoryBitext(name, list(pairs), origin)]
  return splits
