"""What a config says of its corpus: how to prepare it, how to cut it into batches."""

import json
import pathlib
from typing import NamedTuple

import ml_collections

from transformer_jax.data import token_files
from transformer_jax.data.batches import Batches
from transformer_jax.data.cleaning import Cleaning


class Corpus(NamedTuple):
  """All settings that decide how a prepared corpus comes out."""

  name: str  # of its folder
  reader: str  # what reads the raw text, see readers.py
  source_language: str
  target_language: str
  files: dict  # the stems of each split's files
  suffix: str  # between a stem and the language
  cleaning: Cleaning
  train_pairs: int  # at most so many: the first that are good
  vocab_size: int
  vocabulary_pairs: int  # drawn at random to learn the vocabulary from
  character_coverage: float
  byte_fallback: bool
  max_length: int  # tokens of a side, EOS counted
  corpus_seed: int

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
    vocabulary_pairs=config.vocabulary_pairs,
    character_coverage=config.character_coverage,
    byte_fallback=config.byte_fallback,
    max_length=config.max_length,
    corpus_seed=config.corpus_seed,
  )


def train_batches(config: ml_collections.ConfigDict, folder: pathlib.Path) -> Batches:
  """The batches that a config cuts a prepared corpus's training set into."""
  return Batches(
    *token_files.read_split(folder, 'train'),
    tokens=config.tokens_per_batch,
    slices=config.slices,
    max_shapes=config.max_shapes,
    seed=config.seed,
  )
