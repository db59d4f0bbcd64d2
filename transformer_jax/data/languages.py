"""Whether a text is in the language that it should be in, by its commonest words."""

from collections.abc import Iterable, Sequence

# The commonest words, less those that two of these languages share.
_COMMON = {
  'en': {'the', 'of', 'and', 'to', 'that', 'is', 'for', 'it', 'with', 'this', 'are'},
  'de': {'der', 'und', 'den', 'das', 'ist', 'von', 'nicht', 'zu', 'auf', 'ein', 'eine'},
  'fr': {'le', 'la', 'les', 'et', 'que', 'il', 'est', 'une', 'dans', 'pour', 'qui'},
}

# Of the words of a text: with fewer, or in other languages, nothing is said.
_ENOUGH = 0.02


def looks_like(lines: Iterable[str]) -> str | None:
  """The one of en, de and fr whose commonest words come up most, if they do at all."""
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
  """Raises ValueError if the sides of `pairs` are, it seems, the wrong way round."""
  found = tuple(looks_like(side) for side in zip(*pairs, strict=True))
  if found == languages[::-1]:
    raise ValueError(
      f'{what}: the source looks like {found[0]} and the target like {found[1]}, but '
      f'the config has {languages[0]} -> {languages[1]}: are the two swapped?'
    )
