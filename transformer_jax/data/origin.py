"""What a prepared corpus was made from, and whether that is what is given now."""

import functools
import json
from collections.abc import Mapping, Sequence

from transformer_jax.data.lines import SIDES, Bitext
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

Splits = Mapping[str, Sequence[Bitext]]

_MOST_NAMES = 9  # that are told


def stamps(splits: Splits) -> dict:
  """The stamps of all bitexts, as a card holds them."""
  found = {split: [b.stamp() for b in bitexts] for split, bitexts in splits.items()}
  return json.loads(json.dumps(found))


def describe(card: dict) -> str:
  """The names of all that a corpus was made from."""
  entries = (entry for split in card['splits'].values() for entry in split['from'])
  names = [*dict.fromkeys(entry['name'] for entry in entries)]
  more = [f'{len(names) - _MOST_NAMES} more'] if len(names) > _MOST_NAMES else []
  return ', '.join(names[:_MOST_NAMES] + more)


def check_same(card: dict, given: Splits) -> None:
  """Raises UserError if a corpus was made from other files than those given.

  If every file has the size and the time that the card says, none is read; otherwise
  all are.
  """
  if 'stamps' in card and card['stamps'] == stamps(given):
    return
  digest = functools.cache(sha256)
  for split, bitexts in given.items():
    made = [file for entry in card['splits'][split]['from'] for file in _files(entry)]
    paths = [path for bitext in bitexts for path in bitext.paths]
    if [path.name for path in paths] != [name for name, _ in made]:
      names = ', '.join(bitext.name for bitext in bitexts)
      raise UserError(
        f'it was made from {describe(card)}; for {split} there is {names}'
      )
    for path, (name, expected) in zip(paths, made, strict=True):
      if digest(path) != expected:
        raise UserError(
          f'{path} ({digest(path)[:12]}) is not the {name} ({expected[:12]}) that it '
          'was made from'
        )
    for bitext, entry in zip(bitexts, card['splits'][split]['from'], strict=False):
      # A treebank of many files has one sum of all their sums.
      many = entry[SIDES[0]].get('sha256sums')
      if many and bitext.origin()[SIDES[0]]['sha256sums'] != many:
        raise UserError(f'{bitext.name} is not what it was when it was read')


def _files(entry: dict) -> list[tuple[str, str]]:
  """Name and sha256 of the file of each side, if it was read from files."""
  sides = [entry[side] for side in SIDES if 'sha256' in entry[side]]
  return [(side['file'], side['sha256']) for side in sides]
