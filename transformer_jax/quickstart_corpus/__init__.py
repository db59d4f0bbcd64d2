"""The embedded corpus: English-German and English-French pairs made on the spot.

Values come from Unicode CLDR (Babel) and num2words, sentences from the tables of
clauses.py and shapes.py. Nothing is downloaded.
"""

import re
from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import NamedTuple
from zlib import crc32

from transformer_jax.quickstart_corpus import english, french, german
from transformer_jax.quickstart_corpus.sampling import clause, slot
from transformer_jax.quickstart_corpus.shapes import FRAMES, Clause, Frame
from transformer_jax.quickstart_corpus.values import Value

SIZES = {'train': 110_000, 'dev': 1_000, 'test': 1_000}
LENGTHS = range(3, 41)
_GRAMMARS: dict[str, ModuleType] = {
  'en': english,
  'de': german,
  'fr': french,
}
_SLOT = re.compile(r'\{(\w+):(\w+)\}')


class Sentence(NamedTuple):
  """A frame with its clauses; `speaker` says or asks them where the frame needs one."""

  frame: Frame
  clauses: tuple[Clause, ...]
  speaker: Value


def split_of(one: Clause, seed: int) -> str:
  """The only split that a clause with these values may stand in (18 : 1 : 1)."""
  identity = repr((seed, one.shape, one.values)).encode()
  return {0: 'test', 1: 'dev'}.get(crc32(identity) % 20, 'train')


def say(sentence: Sentence, locale: str) -> str:
  """A sentence in one language."""
  grammar = _GRAMMARS[locale]

  def word(match: re.Match) -> str:
    name, form = match.groups()
    if name == 'speaker':
      return grammar.phrase(sentence.speaker, form)
    one = sentence.clauses[int(name)]
    if not form.startswith('about'):
      return ' '.join(' '.join(grammar.render(one, form)).split())
    subject, rest = grammar.render(one, form.removeprefix('about') or 'main')
    return f'{subject} {grammar.relative(sentence.clauses[1])} {rest}'.strip()

  return grammar.finish(_SLOT.sub(word, sentence.frame.template[locale]))


def _draw(rng: Random, frame: Frame, split: str, seed: int) -> Sentence:
  """A sentence of one frame, all of whose clauses belong to the split."""
  clauses: list[Clause] = []
  for spec in frame.specs:
    before = clauses[0] if clauses else None
    while True:
      one = clause(rng, spec, before)
      if one is not None and split_of(one, seed) == split:
        clauses.append(one)
        break
  speaker = slot(rng, 'speaker')
  while speaker in [one.subject for one in clauses]:
    speaker = slot(rng, 'speaker')
  return Sentence(frame, tuple(clauses), speaker)


def sentences(seed: int) -> Iterator[tuple[str, Sentence, str]]:
  """(split, sentence, its English), each English once; the same for every language."""
  rng = Random(seed)
  weights = [frame.weight for frame in FRAMES]
  seen: set[str] = set()
  for split, size in SIZES.items():
    goal = len(seen) + size
    while len(seen) < goal:
      frame = rng.choices(FRAMES, weights)[0]
      sentence = _draw(rng, frame, split, seed)
      english = say(sentence, 'en')
      if english not in seen and len(english.split()) in LENGTHS:
        seen.add(english)
        yield split, sentence, english


def sentence_pairs(target_language: str, seed: int) -> dict[str, list[tuple[str, str]]]:
  """{'train': [(English, foreign), ...], 'dev': ..., 'test': ...}.

  Depends on the seed and the versions of Babel and num2words alone. The foreign
  language is 'de' or 'fr'.
  """
  pairs: dict[str, list[tuple[str, str]]] = {split: [] for split in SIZES}
  for split, sentence, in_english in sentences(seed):
    pairs[split].append((in_english, say(sentence, target_language)))
  return pairs
