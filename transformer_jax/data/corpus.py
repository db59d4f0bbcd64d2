"""What a corpus is prepared from: the settings that decide how it comes out."""

import json
from typing import NamedTuple

from transformer_jax.data.cleaning import Cleaning


class Corpus(NamedTuple):
  """What to prepare: all that decides how a prepared corpus comes out."""

  name: str
  reader: str  # where it comes from, see readers.py
  source_language: str
  target_language: str
  files: dict  # the stems of each split's files
  suffix: str
  cleaning: Cleaning
  train_pairs: int  # at most; the first of those that are good
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
    """As cards and configs have it: lists for tuples."""
    asked = self._asdict() | {'cleaning': self.cleaning._asdict()}
    return json.loads(json.dumps(asked))
