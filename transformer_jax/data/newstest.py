"""The official order of newstest2013 and newstest2014, and what is not them.

Copies of these sets go round shuffled (tfds), filtered (newstest2014 en-de with 2,737
of its 3,003 pairs), with other white space or with entities. So that scores and files
compare with everyone's, the folder `newstest_order` has a fingerprint of every pair of
the full sets, in order, one a line. It holds no text.

`write_order` made the lists from the sets as WMT published them, which sacreBLEU calls
`wmt13` and `wmt14/full`. For 2014 sacreBLEU, run on the files of WMT's test-full.tgz,
gives the same pairs in the same order; and Hugging Face's card of wmt14, which has the
text of the files that tfds reads, counts as many bytes as the four sets have.
"""

import collections
import hashlib
import pathlib
from collections.abc import Sequence

from transformer_jax.data.sgml import plain

Pair = tuple[str, str]
Languages = tuple[str, str]  # of the source and of the target

ORDERS = pathlib.Path(__file__).with_name('newstest_order')
SETS = ('newstest2013', 'newstest2014')

# Hexadecimal; equal fingerprints in a list are those of equal pairs.
_DIGITS = 8


def fingerprint(pair: Pair, languages: Languages) -> str:
  """The same for a pair in either direction, with any white space, as SGML or not."""
  sides = sorted(zip(languages, pair, strict=True))
  # No-break spaces are made plain here, as sacreBLEU does.
  text = '\n'.join(' '.join(plain(side).split()) for _, side in sides)
  return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _path(name: str, languages: Languages) -> pathlib.Path:
  return ORDERS / f'{name}.{"-".join(sorted(languages))}.txt'


def write_order(name: str, pairs: Sequence[Pair], languages: Languages) -> None:
  """Makes the list of a set from its text."""
  lines = [fingerprint(pair, languages) + '\n' for pair in pairs]
  _path(name, languages).write_bytes(''.join(lines).encode())


def order(name: str, languages: Languages) -> list[str]:
  """The fingerprints of a set's pairs, in order.

  Raises:
    ValueError: no list is there of that set in those languages.
  """
  path = _path(name, languages)
  if not path.is_file():
    raise ValueError(f'no order is known of {name} in {" and ".join(languages)}')
  return path.read_bytes().decode().split()


def restore_order(name: str, pairs: Sequence[Pair], languages: Languages) -> list[Pair]:
  """The pairs of a set, given in any order, as they are, in the official order.

  Raises:
    ValueError: some are missing or are not of the set.
  """
  official = order(name, languages)
  given = [fingerprint(pair, languages) for pair in pairs]
  missing = collections.Counter(official) - collections.Counter(given)
  unknown = collections.Counter(given) - collections.Counter(official)
  if missing or unknown:
    example = (
      f'such as line {official.index(next(iter(missing))) + 1}' if missing else ''
    )
    if unknown:
      example = f'such as {pairs[given.index(next(iter(unknown)))][0][:80]!r}'
    raise ValueError(
      f'not {name} in {" and ".join(languages)} as published: {missing.total()} of its '
      f'{len(official):,} pairs are missing and {unknown.total()} pairs are not of it, '
      f'{example}'
    )
  of_mark = collections.defaultdict(collections.deque)
  for pair, mark in zip(pairs, given, strict=True):
    of_mark[mark].append(pair)
  return [of_mark[mark].popleft() for mark in official]


def recognise(pairs: Sequence[Pair], languages: Languages) -> dict | None:
  """Which set at least half of the pairs are of, if any.

  Returns:
    set: its name; of: how many pairs that has; known: how many of them are here;
    unknown: how many more are here; in_order: whether the known ones are; swapped:
    whether the source is in the target's language.
  """
  for swapped in (False, True):
    given = [fingerprint(pair, languages[:: -1 if swapped else 1]) for pair in pairs]
    for name in SETS:
      official = order(name, languages) if _path(name, languages).is_file() else []
      left = collections.Counter(official)
      known = []
      for mark in given:
        if left[mark]:
          left[mark] -= 1
          known.append(mark)
      if known and 2 * len(known) >= len(pairs):
        rest = iter(official)
        return {
          'set': name,
          'of': len(official),
          'known': len(known),
          'unknown': len(pairs) - len(known),
          'in_order': all(mark in rest for mark in known),
          'swapped': swapped,
        }
  return None
