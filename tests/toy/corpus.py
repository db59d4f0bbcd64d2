"""A corpus that counts in two languages, for tests that need one prepared."""

import os
import pathlib
import random
from collections.abc import Sequence

import numpy as np
import pytest
from ml_collections import ConfigDict

from toy.config import tiny
from transformer_jax.data import vocabulary
from transformer_jax.data.corpus import SPLITS, Card, Sentences, read_card, token_writer
from transformer_jax.prepare.prepare import write_corpus
from transformer_jax.prepare.sources import Reader
from transformer_jax.tasks import LINES

WORDS = 'one two three four five six seven eight nine ten'.split()
GERMAN = 'eins zwei drei vier fünf sechs sieben acht neun zehn'.split()


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
  *counts: int,
  english: Sequence[str] = WORDS,
  order: int = 1,
) -> pathlib.Path:
  """Writes files of number_lines(); `counts` are the lines of train, dev and test."""
  folder.mkdir(parents=True)
  for seed, (stem, count) in enumerate(zip(SPLITS, counts or (200, 5, 5), strict=True)):
    sides = number_lines(count, seed, english, order)
    write(folder, stem, *(b'\n'.join(side) + b'\n' for side in sides))
  return folder


def prepare(
  raw: pathlib.Path, config: ConfigDict | None = None, reader: Reader = LINES
) -> Card:
  """Prepares the corpus of a config, or tiny()'s, beside `raw`; returns its card."""
  config, data_dir = config or tiny(), raw.parent / 'data'
  write_corpus(config, reader, reader.sources(config, raw, None), data_dir)
  return read_card(data_dir / config.data.name)


def write_tokens(path: pathlib.Path, sentences: Sequence[Sequence[int]]) -> None:
  """Writes PATH.tokens and PATH.offsets."""
  with token_writer(path) as append:
    ids = [i for ids in sentences for i in ids]
    append(np.array(ids, np.int64), np.array([*map(len, sentences)], np.int64))


def decoded(folder: pathlib.Path, name: str) -> list[str]:
  words = vocabulary.Vocabulary(folder / 'vocabulary.model')
  side = Sentences(folder / name)
  return words.decode([side[row] for row in range(len(side))])


@pytest.fixture(autouse=True)
def machine_stays_up(monkeypatch) -> None:
  """Leaves out fsync, which only saves files from a power failure."""
  monkeypatch.setattr(os, 'fsync', lambda file: None)


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  return write_raw(tmp_path / 'raw')
