"""Checks language codes, and tells a text's language to notice swapped sides."""

import difflib
import re
from collections.abc import Iterable, Sequence

from transformer_jax.machine.errors import UserError

CODE = re.compile('[a-z]{2,3}(_[A-Za-z0-9]+)?')  # de, hsb, pt_BR

# The commonest words of each language, without those that another of them shares.
_COMMON = {
  'en': {'the', 'of', 'and', 'to', 'that', 'is', 'for', 'it', 'with', 'this', 'are'},
  'de': {'der', 'und', 'den', 'das', 'ist', 'von', 'nicht', 'zu', 'auf', 'ein', 'eine'},
  'fr': {'le', 'la', 'les', 'et', 'que', 'il', 'est', 'une', 'dans', 'pour', 'qui'},
}

# The share of common words that a text must have. In other languages it has fewer.
_ENOUGH = 0.02


def looks_like(lines: Iterable[str]) -> str | None:
  """The one of en, de and fr whose common words occur most; None if they are rare."""
  counts, total = dict.fromkeys(_COMMON, 0), 0
  for line in lines:
    words = line.lower().split()
    total += len(words)
    for language, common in _COMMON.items():
      counts[language] += sum(word in common for word in words)
  best = max(counts, key=lambda language: counts[language])
  return best if counts[best] > _ENOUGH * total else None


def check(
  pairs: Sequence[tuple[str, str]], languages: tuple[str, str], what: str
) -> None:
  """Raises UserError if the sides of `pairs`, called `what`, look swapped."""
  found = tuple(looks_like(side) for side in zip(*pairs, strict=True))
  if found == languages[::-1]:
    raise UserError(
      f'{what}: the source looks like {found[0]} and the target like {found[1]}, but '
      f'the config has {languages[0]} -> {languages[1]}: are the two swapped?'
    )


def beside_english(source: str, target: str) -> str | None:
  """'de' or 'fr' if the other language is 'en'; None for any other pair."""
  other = source if target == 'en' else target
  return other if 'en' in (source, target) and other in ('de', 'fr') else None


def check_code(code: str) -> None:
  """Raises UserError for what is no code of a language, and says what is meant."""
  from babel import Locale  # here, since it loads slowly
  from babel.core import get_global

  language = code.partition('_')[0]
  short = get_global('language_aliases').get(language, '')
  # A scorer knows how to split Japanese by the code ja alone.
  if len(language) == 3 and len(short) == 2:
    raise UserError(f'{code!r}: this language has a code of two letters, {short}')
  names = {name.lower(): key for key, name in Locale('en').languages.items()}
  if CODE.fullmatch(code) and (len(language) == 3 or language in names.values()):
    return
  near = difflib.get_close_matches(code.lower(), names, 1)
  hint = f': {near[0].title()} is {names[near[0]]}' if near else ', such as de or hsb'
  raise UserError(f'{code!r} is no code of a language (ISO 639){hint}')
