"""Recognises newstest2013 and newstest2014 and restores their official order.

Copies of these sets are shuffled (tfds), filtered (newstest2014 en-de with 2,737 of its
3,003 pairs), or have other white space or entities. Scores compare with other people's
only on the full set in its order. So the folder `newstest_order` has a fingerprint of
every pair of the full sets, in order, one a line. It holds no text.

`write_order` made these lists from the sets as WMT published them, which sacreBLEU
calls `wmt13` and `wmt14/full`. Two checks confirm them. For 2014, sacreBLEU run on the
files of WMT's test-full.tgz gives the same pairs in the same order. And Hugging Face's
card of wmt14, which has the text that tfds reads, counts as many bytes as the four sets
have.
"""

import collections
import hashlib
import pathlib
from collections.abc import Sequence

from transformer_jax.data.sgml import plain
from transformer_jax.machine.errors import UserError

Pair = tuple[str, str]
Languages = tuple[str, str]  # of the source and of the target

ORDERS = pathlib.Path(__file__).with_name('newstest_order')
SETS = ('newstest2013', 'newstest2014')

# Hexadecimal digits of a fingerprint. In each list, only equal pairs share one.
_DIGITS = 8


def fingerprint(pair: Pair, languages: Languages) -> str:
  """A hash of a pair: the same in both directions, with any white space or entities."""
  sides = sorted(zip(languages, pair, strict=True))
  # split() takes no-break spaces for white space too, as sacreBLEU does.
  text = '\n'.join(' '.join(plain(side).split()) for _, side in sides)
  return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _path(name: str, languages: Languages) -> pathlib.Path:
  return ORDERS / f'{name}.{"-".join(sorted(languages))}.txt'


def write_order(name: str, pairs: Sequence[Pair], languages: Languages) -> None:
  """Writes the list of a set, given its pairs in the official order."""
  lines = [fingerprint(pair, languages) + '\n' for pair in pairs]
  _path(name, languages).write_bytes(''.join(lines).encode())


def order(name: str, languages: Languages) -> list[str]:
  """The fingerprints of a set's pairs, in order.

  Raises:
    UserError: there is no list of that set in those languages.
  """
  path = _path(name, languages)
  if not path.is_file():
    raise UserError(f'no order is known of {name} in {" and ".join(languages)}')
  return path.read_bytes().decode().split()


def restore_order(name: str, pairs: Sequence[Pair], languages: Languages) -> list[Pair]:
  """The pairs of a set, given in any order, in the official order, text unchanged.

  Raises:
    UserError: some pairs are missing or are not of the set.
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
    raise UserError(
      f'not {name} in {" and ".join(languages)} as published: {missing.total()} of its '
      f'{len(official):,} pairs are missing and {unknown.total()} pairs are not of it, '
      f'{example}'
    )
  of_mark = collections.defaultdict(collections.deque)
  for pair, mark in zip(pairs, given, strict=True):
    of_mark[mark].append(pair)
  return [of_mark[mark].popleft() for mark in official]


def recognise(pairs: Sequence[Pair], languages: Languages) -> dict | None:
  """Which set at least half of the pairs belong to; None if there is no such set.

  Returns:
    set: the name of the set.
    of: how many pairs the set has.
    known: how many of them are among `pairs`.
    unknown: how many other pairs there are.
    in_order: whether the known ones are in the official order.
    swapped: whether the source is in the target's language.
  """
  for swapped in (False, True):
    sides = languages[::-1] if swapped else languages
    given = [fingerprint(pair, sides) for pair in pairs]
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
          # `in` moves `rest` on past the mark, so each must come after the one before.
          'in_order': all(mark in rest for mark in known),
          'swapped': swapped,
        }
  return None
