"""What a config says of its corpus: how to prepare it, how to cut it into batches."""

import hashlib
import json
import pathlib
import re
from collections.abc import Collection
from typing import NamedTuple

import ml_collections

from transformer_jax.data import token_files
from transformer_jax.data.batches import Batches
from transformer_jax.data.cleaning import Cleaning
from transformer_jax.machine.errors import UserError

# What a preparation appends to the name of its folder, see preparing.py.
LOCK, PARTIAL = '.lock', '.partial'

# Settings of trees, and what they are for all other lines.
TREES_ALONE = {'tags': True, 'numbers': False, 'whole_words': False}


class Corpus(NamedTuple):
  """All settings that decide how a prepared corpus comes out."""

  name: str  # of its folder
  reader: str  # what reads the raw text, see readers.py
  source_language: str
  target_language: str
  files: dict  # the stems of each split's files
  suffix: str  # between a stem and the language
  cleaning: Cleaning
  train_pairs: int  # at most so many of the good ones, drawn by a hash
  vocab_size: int
  target_vocab_size: int  # 0: none is learnt for the target alone
  tags: bool  # of trees: False puts XX in place of every tag in targets
  numbers: bool  # of trees: True puts the words' numbers into targets
  whole_words: bool  # of trees: True gives each word one piece
  vocabulary_pairs: int  # drawn at random to learn the vocabulary from
  character_coverage: float
  byte_fallback: bool
  max_length: int  # tokens of a side, EOS counted
  corpus_seed: int
  given_vocabulary: str  # sha256 of another run's, that encodes it; '': it is learnt

  @property
  def languages(self) -> tuple[str, str]:
    return self.source_language, self.target_language

  def as_json(self) -> dict:
    """The settings as cards and configs hold them: lists for tuples."""
    settings = self._asdict() | {'cleaning': self.cleaning._asdict()}
    return json.loads(json.dumps(settings))


def asked(config: ml_collections.ConfigDict) -> Corpus:
  """The corpus that a config asks for."""
  return Corpus(
    name=config.corpus,
    reader=config.reader,
    source_language=config.source_language,
    target_language=config.target_language,
    files=config.files.to_dict(),
    suffix=config.suffix,
    cleaning=Cleaning(**config.cleaning.to_dict()),
    train_pairs=config.train_pairs,
    vocab_size=config.model.vocab_size,
    target_vocab_size=config.model.target_vocab_size,
    tags=config.tags,
    numbers=config.numbers,
    whole_words=config.whole_words,
    vocabulary_pairs=config.vocabulary_pairs,
    character_coverage=config.character_coverage,
    byte_fallback=config.byte_fallback,
    max_length=config.max_length,
    corpus_seed=config.corpus_seed,
    given_vocabulary=config.init_from.vocabulary,
  )


def folder_of(name: str, data_dir: pathlib.Path) -> pathlib.Path:
  """Where the prepared corpus of this name is, or would be.

  Raises:
    UserError: it would not be a folder of its own in `data_dir`.
  """
  of_its_own = name not in ('', '.', '..') and not re.search(r'[/\\]', name)
  if not of_its_own or not name.isprintable() or name.endswith((LOCK, PARTIAL)):
    raise UserError(
      f'corpus={name!a}: that is no name of a folder in --data_dir; give one without / '
      f'that does not end in {LOCK} or {PARTIAL} (--config.corpus), and the folder '
      'around it as --data_dir'
    )
  return data_dir / name


def name_apart(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  overridden: Collection[str],
) -> None:
  """Renames the config's corpus if overrides change how the corpus is prepared.

  Args:
    config: its key `corpus` gets a hash of the changes, unless `corpus` is overridden.
    plain: the same config without overrides.
    overridden: the keys that are overridden.
  """
  ours, theirs = asked(config).as_json(), asked(plain).as_json()
  changed = {key: value for key, value in ours.items() if value != theirs[key]}
  if changed and 'corpus' not in overridden:
    text = json.dumps(changed, sort_keys=True)
    config.corpus += f'.{hashlib.sha256(text.encode()).hexdigest()[:8]}'


def train_batches(config: ml_collections.ConfigDict, folder: pathlib.Path) -> Batches:
  """The batches that a config cuts a prepared corpus's training set into."""
  return Batches(
    *token_files.read_split(folder, 'train'),
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
