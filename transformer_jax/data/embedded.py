"""The door to the corpus that comes with the package."""

import importlib.metadata
from collections.abc import Iterator

from transformer_jax.data import embedded_corpus
from transformer_jax.data.lines import SIDES, Bitext, Pair


class InMemoryBitext:
  """A part that is held in memory."""

  def __init__(self, name: str, pairs: list[tuple[str, str]], origin: dict):
    self.name = name
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
    ValueError: it does not have this pair of languages.
  """
  if 'en' not in (source, target):
    raise ValueError(f'{source}-{target}: one side of the embedded corpus is en')
  made = embedded_corpus.sentence_pairs(source if target == 'en' else target, seed)
  versions = {name: importlib.metadata.version(name) for name in ('babel', 'num2words')}
  splits = {}
  for split, pairs in made.items():
    if target == 'en':
      pairs = [(other, english) for english, other in pairs]
    origin = {side: {'lines': len(pairs), 'versions': versions} for side in SIDES}
    splits[split] = [
      InMemoryBitext(f'embedded corpus, seed {seed}', list(pairs), origin)
    ]
  return splits
