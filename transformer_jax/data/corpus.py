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
  """What a config says of its corpus: the keys of config.data, and three more."""

  name: str  # of its folder
  reader: str  # what reads the raw text, see readers.py
  source_language: str
  target_language: str
  raw_dir: str  # where the raw text lies, if --raw_dir does not tell
  files: dict  # the stems of each split's files
  suffix: str  # between a stem and the language
  tokenized: bool  # scored as it is
  cleaning: Cleaning
  tags: bool  # of trees: False puts XX in place of every tag in targets
  numbers: bool  # of trees: True puts the words' numbers into targets
  whole_words: bool  # of trees: True gives each word one piece
  train_pairs: int  # at most so many of the good ones, drawn by a hash
  vocabulary_pairs: int  # drawn at random to learn the vocabulary from
  character_coverage: float
  byte_fallback: bool
  max_length: int  # tokens of a side, EOS counted
  seed: int  # of what is drawn
  vocab_size: int
  target_vocab_size: int  # 0: none is learnt for the target alone
  given_vocabulary: str  # sha256 of another run's, that encodes it; '': it is learnt

  @classmethod
  def of(cls, config: ml_collections.ConfigDict) -> 'Corpus':
    """The corpus that a config names."""
    data = config.data.to_dict()
    return cls(
      **data | {'cleaning': Cleaning(**data['cleaning'])},
      vocab_size=config.model.vocab_size,
      target_vocab_size=config.model.target_vocab_size,
      given_vocabulary=config.init_from.vocabulary,
    )

  @property
  def languages(self) -> tuple[str, str]:
    return self.source_language, self.target_language

  def as_json(self) -> dict:
    """What decides how it comes out, as its card holds it: lists for tuples."""
    settings = self._asdict() | {'cleaning': self.cleaning._asdict()}
    del settings['raw_dir'], settings['tokenized']
    return json.loads(json.dumps(settings))


def folder_of(name: str, data_dir: pathlib.Path) -> pathlib.Path:
  """Where the prepared corpus of this name is, or would be.

  Raises:
    UserError: it would not be a folder of its own in `data_dir`.
  """
  of_its_own = name not in ('', '.', '..') and not re.search(r'[/\\]', name)
  if not of_its_own or not name.isprintable() or name.endswith((LOCK, PARTIAL)):
    raise UserError(
      f'data.name={name!a}: that is no name of a folder in --data_dir; give one '
      f'without / that does not end in {LOCK} or {PARTIAL} (--config.data.name), '
      'and the folder around it as --data_dir'
    )
  return data_dir / name


def name_apart(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  overridden: Collection[str],
) -> None:
  """Renames a config's corpus if overrides change how the corpus is prepared.

  Args:
    config: its key `data.name` gets a hash of the changes, unless that is overridden.
    plain: the same config without overrides.
    overridden: the keys that are overridden.
  """
  ours, theirs = (Corpus.of(one).as_json() for one in (config, plain))
  changed = {key: value for key, value in ours.items() if value != theirs[key]}
  if changed and 'data.name' not in overridden:
    text = json.dumps(changed, sort_keys=True)
    config.data.name += f'.{hashlib.sha256(text.encode()).hexdigest()[:8]}'


def train_batches(config: ml_collections.ConfigDict, folder: pathlib.Path) -> Batches:
  """The batches that a config cuts a prepared corpus's training set into."""
  return Batches(
    *token_files.read_split(folder, 'train'),
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
