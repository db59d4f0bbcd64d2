"""Dev and test: their text is kept as it is, whole and in its order."""

import pathlib
import sys
from collections.abc import Callable, Sequence

from transformer_jax.data import languages as spoken
from transformer_jax.data import newstest, token_files
from transformer_jax.data.lines import SIDES, Bitext
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine.errors import UserError


def read(
  split: str, bitexts: Sequence[Bitext], languages: tuple[str, str], reorder: bool
) -> tuple[list[tuple[str, str]], dict]:
  """All pairs of dev or test, and what the card says of where they come from.

  Args:
    reorder: whether newstest is put back into the order in which it was published.

  Raises:
    UserError: there are no pairs, a line is no text, or the sides are swapped.
  """
  pairs, origins = [], []
  for bitext in bitexts:
    for number, pair in enumerate(bitext.pairs(), 1):
      for side, line in zip(SIDES, pair, strict=True):
        if line is None or '\n' in line:
          fault = 'not UTF-8' if line is None else 'a line feed inside'
          raise UserError(
            f'{bitext.name}, line {number} of the {side}: {fault}; mend the {split} '
            f'file'
          )
      pairs.append(pair)
    origins.append({'name': bitext.name, **bitext.origin()})
  if not pairs:
    names = ', '.join(bitext.name for bitext in bitexts) or 'no files'
    raise UserError(f'{names}: the {split} split is empty')
  about: dict = {'from': origins}
  official = newstest.recognise(pairs, languages)
  if official is None:
    spoken.check(pairs, languages, origins[0]['name'])
    return pairs, about
  if official['swapped']:
    raise UserError(
      f'{origins[0]["name"]}: this is {official["set"]} with its sides swapped; the '
      f'config has {languages[0]} -> {languages[1]}'
    )
  whole = official['known'] == official['of'] and not official['unknown']
  if reorder and whole:  # Parquet files may have entities and other white space
    pairs = [(newstest.plain(a), newstest.plain(b)) for a, b in pairs]
  if reorder and whole and not official['in_order']:
    pairs = newstest.restore_order(official['set'], pairs, languages)
    official |= {'in_order': True, 'reordered': True}
  elif not whole or not official['in_order']:
    print(
      f'{split}: {official["known"]:,} of the {official["of"]:,} pairs of '
      f'{official["set"]}, {official["unknown"]} others'
      f'{"" if official["in_order"] else ", in another order"}: its scores compare '
      f"with nobody's",
      file=sys.stderr,
    )
  return pairs, about | {'official': official}


def write(
  folder: pathlib.Path,
  split: str,
  pairs: Sequence[tuple[str, str]],
  words: Vocabularies,
  target: Callable[[str], str],
) -> dict:
  """Writes the text and the token files; returns the card's counts of them.

  `target` maps a target line to the text that the model learns to write. The tokens are
  of that text; the text files hold the lines as given.
  """
  tokens = {}
  taught = [lambda line: line, target]
  sides = zip(SIDES, words, zip(*pairs, strict=True), taught, strict=True)
  for side, own, lines, learnt in sides:
    path = folder / f'{split}.{side}'
    text = ''.join(line + '\n' for line in lines)
    path.with_suffix(f'.{side}.txt').write_bytes(text.encode())
    tokens[side] = token_files.write_tokens(path, own.encode([*map(learnt, lines)]))
  return {'read': len(pairs), 'kept': len(pairs), 'tokens': tokens}


def text(folder: pathlib.Path, split: str) -> tuple[list[str], list[str]]:
  """Source and target sentences of dev or test, as given."""
  read = lambda side: (folder / f'{split}.{side}.txt').read_bytes().decode().split('\n')
  return read('source')[:-1], read('target')[:-1]
