"""Where pairs come from: doors to the text, cleaning, the vocabulary, the card.

A prepared corpus is a folder: `vocabulary.model`, token files for each side and split
(see token_files.py), dev and test text as given, and `card.json`, which says where all
of it came from and what was dropped.
"""

from transformer_jax.corpora.card import (
  CARD,
  SPLITS,
  check_asked,
  held_out,
  read_card,
  verify,
)
from transformer_jax.corpora.cleaning import Cleaning
from transformer_jax.corpora.doors import parts
from transformer_jax.corpora.parts import SIDES
from transformer_jax.corpora.preparing import Corpus, prepare

__all__ = [
  'CARD',
  'SIDES',
  'SPLITS',
  'Cleaning',
  'Corpus',
  'check_asked',
  'held_out',
  'parts',
  'prepare',
  'read_card',
  'verify',
]
