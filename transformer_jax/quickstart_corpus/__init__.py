"""The embedded corpus: English-German sentence pairs, generated from a few tables.

The words come from Unicode CLDR (through Babel), num2words and the tables of words.py,
the sentences from the templates of templates.py. sampling.py chooses both at random;
english.py and german.py inflect the words. Nothing is downloaded.
"""

import functools
import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple
from zlib import crc32

from transformer_jax.data.corpus import Source, Splits
from transformer_jax.machine.errors import UserError
from transformer_jax.quickstart_corpus import english, german
from transformer_jax.quickstart_corpus.sampling import clause, slot
from transformer_jax.quickstart_corpus.templates import FRAMES, Clause, Frame
from transformer_jax.quickstart_corpus.words import Value

SIZES = {'train': 110_000, 'dev': 1_000, 'test': 1_000}
LENGTHS = range(3, 41)  # words of an English sentence
_GRAMMARS = {'en': english, 'de': german}
_SLOT = re.compile(r'\{(\w+):(\w+)\}')


class Sentence(NamedTuple):
  """A frame with its clauses, and the person who speaks in some frames."""

  frame: Frame
  clauses: tuple[Clause, ...]
  speaker: Value


def split_of(one: Clause, seed: int) -> str:
  """Returns the only split that may contain this clause; train has 18 parts of 20."""
  identity = repr((seed, one.shape, one.values)).encode()
  return {0: 'test', 1: 'dev'}.get(crc32(identity) % 20, 'train')


def write(sentence: Sentence, language: str) -> str:
  """Returns a sentence as text in 'en' or 'de'."""
  grammar = _GRAMMARS[language]

  def words(match: re.Match) -> str:
    name, form = match.groups()
    if name == 'speaker':
      return grammar.phrase(sentence.speaker, form)
    one = sentence.clauses[int(name)]
    if not form.startswith('about'):
      return ' '.join(' '.join(grammar.render(one, form)).split())
    subject, rest = grammar.render(one, form.removeprefix('about') or 'main')
    return f'{subject} {grammar.relative(sentence.clauses[1])} {rest}'.strip()

  return _tidy(_SLOT.sub(words, sentence.frame.template[language]))


def _tidy(text: str) -> str:
  """Returns the text with a capital first and without superfluous spaces and commas."""
  text = re.sub(r' (?=[,.])', '', ' '.join(text.split()))
  text = re.sub(r',(?=[,.?])', '', text)
  return text[0].upper() + text[1:]


def sentences(seed: int) -> Iterator[tuple[str, Sentence, str]]:
  """Yields (split, sentence, its English), no English text twice."""
  rng = Random(seed)
  weights = [frame.weight for frame in FRAMES]
  seen: set[str] = set()
  for split, size in SIZES.items():
    goal = len(seen) + size
    while len(seen) < goal:
      frame = rng.choices(FRAMES, weights)[0]
      sentence = _sample(rng, frame, split, seed)
      text = write(sentence, 'en')
      if text not in seen and len(text.split()) in LENGTHS:
        seen.add(text)
        yield split, sentence, text


def _sample(rng: Random, frame: Frame, split: str, seed: int) -> Sentence:
  """Returns a sentence of one frame, all of whose clauses belong to the split."""
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


def read_splits(source: str, target: str, seed: int) -> Splits:
  """Returns the sources of each split, in either direction.

  Raises:
    UserError: the languages are not English and German.
  """
  if {source, target} != {'en', 'de'}:
    raise UserError(f'{source}-{target}: the embedded corpus is en-de or de-en')
  order = 1 if source == 'en' else -1
  splits = {}
  for split, pairs in sentence_pairs(seed).items():
    ordered = functools.partial(iter, [pair[::order] for pair in pairs])
    splits[split] = [Source(f'embedded corpus, seed {seed}', (), ordered)]
  return splits


def sentence_pairs(seed: int) -> dict[str, list[tuple[str, str]]]:
  """Returns the pairs (English, German) of each split.

  They depend on the seed and the versions of Babel and num2words alone.
  """
  pairs: dict[str, list[tuple[str, str]]] = {split: [] for split in SIZES}
  for split, sentence, text in sentences(seed):
    pairs[split].append((text, write(sentence, 'de')))
  return pairs
