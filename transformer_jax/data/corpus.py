"""Describes a corpus: its settings in a config, its sources of text, its folder."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import ml_collections
from absl import flags

from transformer_jax.config import KEYS, Cleaning, Data, Tag
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError

SIDES = ('source', 'target')  # of a pair, in the names of files and on cards
SPLITS = ('train', 'dev', 'test')

# Source and target sentence; None for a side that is not UTF-8.
Pair = tuple[str | None, str | None]

# In config.data.files, what the name of a sacreBLEU test set begins with.
SACREBLEU = 'sacrebleu:'
# sacreBLEU's names of the files of base.
WMT14 = {'newstest2013': 'sacrebleu:wmt13', 'newstest2014': 'sacrebleu:wmt14/full'}

# The paper's test sets of section 6, and how many pairs they have.
NEWSTEST = {'newstest2013': 3_000, 'newstest2014': 3_003}


class Source(NamedTuple):
  """Sentence pairs of one publication; a split has one or more sources.

  Attributes:
    name: for the card and for messages, without folders.
    files: what `pairs` reads; may be empty.
    pairs: returns an iterator over the pairs in order. In training it may yield an
      error in place of a flawed pair.
    is_text: False if its pairs are made of another source's: a vocabulary of whole
      words does not count their words.
  """

  name: str
  files: tuple[pathlib.Path, ...]
  pairs: Callable[[], Iterator[Pair | UserError]]
  is_text: bool = True


Splits = dict[str, list[Source]]  # by SPLITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus(Data):
  """The settings of a corpus: the keys of config.data, and three more."""

  files: dict[str, tuple[str, ...]]
  vocab_size: int
  target_vocab_size: int  # 0 if both languages share one vocabulary
  run_vocabulary: str  # sha256 of the vocabulary of --init_from; '' learns one

  @classmethod
  def of(cls, config: ml_collections.ConfigDict) -> 'Corpus':
    """Returns the corpus of a config, whose values are not checked here."""
    data = config.data.to_dict()
    return cls(
      **data | {'cleaning': Cleaning(**data['cleaning'])},
      vocab_size=config.model.vocab_size,
      target_vocab_size=config.model.target_vocab_size,
      run_vocabulary=config.init_from.vocabulary,
    )

  @property
  def languages(self) -> tuple[str, str]:
    """The codes of source and target language."""
    return self.source_language, self.target_language

  def as_json(self) -> dict:
    """Returns the settings that decide its content, as its card holds them."""
    settings = json.loads(json.dumps(dataclasses.asdict(self)))
    for name, key in KEYS.items():
      if name.startswith('data.') and Tag.CORPUS not in key.tags:
        del settings[name.removeprefix('data.')]
    return settings


def set_name(stem: str) -> str:
  """Returns WMT's name of a test set, or the last part of another stem."""
  for name, set_of_sacrebleu in WMT14.items():
    if stem == set_of_sacrebleu:
      return name
  return stem if stem.startswith(SACREBLEU) else stem.rpartition('/')[2]


def rename_if_changed(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  overridden: Collection[str],
) -> None:
  """Appends a hash of the overrides to `data.name` if they change the corpus.

  Args:
    config: the config with overrides.
    plain: the same config without overrides.
    overridden: the overridden keys; `data.name` among them is left as it is.
  """
  settings, before = (Corpus.of(one).as_json() for one in (config, plain))
  changed = {key: value for key, value in settings.items() if value != before[key]}
  if changed and 'data.name' not in overridden:
    text = json.dumps(changed, sort_keys=True)
    config.data.name += f'.{hashlib.sha256(text.encode()).hexdigest()[:8]}'


def data_dir(table: Flags) -> flags.FlagHolder[pathlib.Path]:
  """Defines --data_dir."""
  return table.path('data_dir', 'data', 'Folder of prepared corpora.')


class DataFlags:
  """Defines --data_dir, --raw_dir and --tfds_data_dir, the folders of a preparation."""

  def __init__(self, table: Flags):
    self._holders = (
      data_dir(table),
      table.path(
        'raw_dir',
        None,
        'Folder of the raw text: files with a sentence a line, treebanks, or Hugging '
        "Face's Parquet files of WMT14. Without it, WMT14 comes from "
        'tensorflow-datasets.',
      ),
      table.path(
        'tfds_data_dir', None, 'Where tensorflow-datasets has or puts its data sets.'
      ),
    )

  def folders(self) -> tuple[pathlib.Path, pathlib.Path | None, pathlib.Path | None]:
    """Returns the three folders, in the order of prepare_corpus's arguments."""
    return tuple(holder.value for holder in self._holders)

  def command_line(self) -> list[str]:
    """Returns the flags that have a value, for the command line of another script."""
    return [f'--{flag.name}={flag.value}' for flag in self._holders if flag.value]
