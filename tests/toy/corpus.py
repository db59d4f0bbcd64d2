"""A corpus that counts in two languages, for tests that need one prepared."""

import dataclasses
import pathlib
import random
from collections.abc import Sequence

import ml_collections

from transformer_jax.config import Cleaning
from transformer_jax.data import batches, corpus, vocabulary
from transformer_jax.data.corpus import Card, read_card
from transformer_jax.data.prepare import write_corpus
from transformer_jax.data.task import Task
from transformer_jax.tasks import TRANSLATION

WORDS = 'one two three four five six seven eight nine ten'.split()
GERMAN = 'eins zwei drei vier fünf sechs sieben acht neun zehn'.split()
INIT = {'run': '', 'vocabulary': ''}
CORPUS = corpus.Corpus(
  name='toy',
  reader='files',
  source_language='en',
  target_language='de',
  raw_dir='',
  files={'train': ('train',), 'dev': ('dev',), 'test': ('test',)},
  suffix='',
  tokenized=False,
  cleaning=Cleaning(
    off=False,
    max_characters=5000,
    max_ratio=9.0,
    drop_untranslated=False,
    min_alphanumeric=0.0,
  ),
  train_pairs=10**9,
  tags=True,
  numbers=False,
  whole_words=False,
  vocabulary_pairs=1000,
  character_coverage=1.0,
  byte_fallback=False,
  max_length=64,
  seed=1,
  vocab_size=60,
  target_vocab_size=0,
  run_vocabulary='',
)


def config_of(corpus: corpus.Corpus) -> ml_collections.ConfigDict:
  """Returns a config with this corpus."""
  settings = dataclasses.asdict(corpus)
  del settings['run_vocabulary']
  model = {key: settings.pop(key) for key in ('vocab_size', 'target_vocab_size')}
  values = {'data': settings, 'init_from': INIT, 'model': model}
  return ml_collections.ConfigDict(values)


def number_lines(
  count: int, seed: int = 0, english: Sequence[str] = WORDS, order: int = 1
) -> tuple[list[bytes], list[bytes]]:
  """Returns numbers in English, and in German in the same order, or (-1) in reverse."""
  rng = random.Random(seed)
  rows = [rng.choices(range(10), k=rng.randint(1, 7)) for _ in range(count)]
  say = lambda words, order: [
    ' '.join(words[i] for i in row[::order]).encode() for row in rows
  ]
  return say(english, 1), say(GERMAN, order)


def write(folder: pathlib.Path, stem: str, source: bytes, target: bytes) -> None:
  (folder / f'{stem}.en').write_bytes(source)
  (folder / f'{stem}.de').write_bytes(target)


def write_raw(
  folder: pathlib.Path,
  held_out: int = 5,
  english: Sequence[str] = WORDS,
  order: int = 1,
) -> pathlib.Path:
  """Writes a folder with train, dev and test files of number_lines()."""
  folder.mkdir(parents=True)
  for seed, stem in enumerate(('train', 'dev', 'test')):
    sides = number_lines(held_out if seed else 200, seed, english, order)
    write(folder, stem, *(b'\n'.join(side) + b'\n' for side in sides))
  return folder


def prepare(
  raw: pathlib.Path, corpus: corpus.Corpus = CORPUS, task: Task = TRANSLATION
) -> Card:
  """Prepares it beside `raw`, in data/NAME; returns its card."""
  data_dir = raw.parent / 'data'
  splits = task.splits(corpus, raw, None)
  write_corpus(corpus, task, splits, data_dir)
  return read_card(data_dir / corpus.name)


def decoded(folder: pathlib.Path, name: str) -> list[str]:
  words = vocabulary.Vocabulary(folder / 'vocabulary.model')
  side = batches.Sentences(folder / name)
  rows = [side.tokens[a:b] for a, b in zip(side.offsets, side.ends, strict=False)]
  return words.decode(rows)
