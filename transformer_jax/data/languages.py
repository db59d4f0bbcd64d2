"""Tells the language of a text by its commonest words, to notice swapped sides."""

from collections.abc import Iterable, Sequence

from transformer_jax.machine.errors import UserError

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
