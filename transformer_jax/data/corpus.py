"""A corpus as a config describes it, and a source of text as all readers give it."""

import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import ml_collections
from absl import flags

from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError

SIDES = ('source', 'target')
SPLITS = ('train', 'dev', 'test')

# Source and target sentence; None for a side that is not UTF-8.
Pair = tuple[str | None, str | None]

# In a config, names of files that start so are sacreBLEU's names of test sets.
SACREBLEU = 'sacrebleu:'
# The files that configs/base.py names, as sacreBLEU calls their sets.
WMT14 = {'newstest2013': 'sacrebleu:wmt13', 'newstest2014': 'sacrebleu:wmt14/full'}

# What a preparation appends to the name of its folder, see prepare.py.
LOCK, PARTIAL = '.lock', '.partial'

# Settings of trees, and what they are for all other lines.
TREE_SETTINGS = {'tags': True, 'numbers': False, 'whole_words': False}


class Source(NamedTuple):
  """Sentence pairs that were published together; a split has one or more of them."""

  name: str  # for the card and for messages, without folders
  files: tuple[pathlib.Path, ...]  # that the pairs are read from, if any are
  # Reads them in order, from the start; in training an error stands for a flawed one.
  pairs: Callable[[], Iterator[Pair | UserError]]
  # Whether its words count as text: not if its pairs are pieces of another source's.
  is_text: bool = True


Splits = dict[str, list[Source]]  # by SPLITS


class Cleaning(NamedTuple):
  """Limits of a training pair. The limit on tokens is applied when it is encoded."""

  off: bool  # no limits: only what is no text is left out
  max_characters: int  # of either side
  max_ratio: float  # words of one side to words of the other, as Moses cleans
  drop_untranslated: bool  # both sides the same, and no list of names or numbers
  min_alphanumeric: float  # letters and digits, as a fraction; spaces do not count


class Corpus(NamedTuple):
  """A corpus as a config describes it: the keys of config.data, and three more."""

  name: str  # of its folder
  reader: str  # what reads the raw text, see sources.py
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
  train_pairs: int  # at most so many of the good ones, chosen by a hash
  vocabulary_pairs: int  # chosen by a hash to learn the vocabulary from
  character_coverage: float
  byte_fallback: bool
  max_length: int  # tokens of a side, EOS counted
  seed: int  # of what is chosen by a hash
  vocab_size: int
  target_vocab_size: int  # 0: none is learnt for the target alone
  run_vocabulary: str  # sha256 of another run's, that encodes it; '': it is learnt

  @classmethod
  def of(cls, config: ml_collections.ConfigDict) -> 'Corpus':
    """The corpus of a config.

    Raises:
      UserError: the names of a split's files are no tuple.
    """
    data = config.data.to_dict()
    for split, stems in data['files'].items():
      if isinstance(stems, str):
        raise UserError(
          f"data.files.{split}={stems!r}: a tuple of names, such as ('{stems}',) "
          f'(--config.data.files.{split})'
        )
    return cls(
      **data | {'cleaning': Cleaning(**data['cleaning'])},
      vocab_size=config.model.vocab_size,
      target_vocab_size=config.model.target_vocab_size,
      run_vocabulary=config.init_from.vocabulary,
    )

  @property
  def languages(self) -> tuple[str, str]:
    return self.source_language, self.target_language

  def as_json(self) -> dict:
    """What decides how it comes out, as its card holds it: lists for tuples."""
    settings = self._asdict() | {'cleaning': self.cleaning._asdict()}
    del settings['raw_dir'], settings['tokenized']
    return json.loads(json.dumps(settings))


def set_name(stem: str) -> str:
  """The name of the text that a config calls `stem`; WMT's for what sacreBLEU has."""
  of_wmt = {ours: name for name, ours in WMT14.items()}
  if stem in of_wmt:
    return of_wmt[stem]
  return stem if stem.startswith(SACREBLEU) else stem.rpartition('/')[2]


def folder_of(name: str, data_dir: pathlib.Path) -> pathlib.Path:
  """The folder of the prepared corpus of this name, which need not exist.

  Raises:
    UserError: the name is not that of a folder in `data_dir`.
  """
  is_name = name not in ('', '.', '..') and not re.search(r'[/\\]', name)
  if not is_name or not name.isprintable() or name.endswith((LOCK, PARTIAL)):
    raise UserError(
      f'data.name={name!a}: that is no name of a folder in --data_dir; give one '
      f'without / that does not end in {LOCK} or {PARTIAL} (--config.data.name), '
      'and the folder around it as --data_dir'
    )
  return data_dir / name


def rename_if_changed(
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


def data_dir(table: Flags) -> flags.FlagHolder[pathlib.Path]:
  """Defines --data_dir."""
  return table.path('data_dir', 'data', 'Where prepared corpora live.')


class DataFlags:
  """--data_dir, --raw_dir and --tfds_data_dir: the folders that a preparation needs."""

  def __init__(self, table: Flags):
    self._holders = (
      data_dir(table),
      table.path(
        'raw_dir',
        None,
        'Folder with what to prepare from: files of text, one sentence a line, '
        "treebanks, or Hugging Face's Parquet files of WMT14. Without it, WMT14 comes "
        'from tensorflow-datasets.',
      ),
      table.path(
        'tfds_data_dir', None, 'Where tensorflow-datasets has or puts its data sets.'
      ),
    )

  def folders(self) -> tuple[pathlib.Path, pathlib.Path | None, pathlib.Path | None]:
    """The folders, in the order in which prepare_corpus takes them."""
    return tuple(holder.value for holder in self._holders)

  def command_line(self) -> list[str]:
    """Those that have a value, for the command line of another script."""
    return [f'--{flag.name}={flag.value}' for flag in self._holders if flag.value]
