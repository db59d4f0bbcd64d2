"""The folder of a prepared corpus: its keys in a config, its card, its files.

The card lists the files of the folder, their checksums and their origins. A corpus's
identity is a hash of what is in its folder: vocabulary, token files, and the text of
dev and test. The files that it was prepared from do not matter.

PATH.tokens holds the ids of all sentences one after another as little-endian uint16,
without EOS. PATH.offsets holds the start of each sentence and the end of the last one,
as int64. Both are written block by block and memory-mapped.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import ml_collections
import msgspec
import numpy as np

from transformer_jax.config import KEYS, Tag, as_json, values
from transformer_jax.data import vocabulary
from transformer_jax.data.vocabulary import EOS, PAD, Vocabularies
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

STREAMS = ('source', 'target')  # of a pair, in the names of files and on cards
SPLITS = ('train', 'dev', 'test')
CARD = 'card.json'

_AGAIN = 'Delete the folder and prepare it again'

# In config.data.files, what the name of a sacreBLEU test set begins with.
SACREBLEU = 'sacrebleu:'
# sacreBLEU's names of the files of base.
WMT14 = {'newstest2013': 'sacrebleu:wmt13', 'newstest2014': 'sacrebleu:wmt14/full'}

# The paper's sets of section 6, by how the sha256 of their references begins.
NEWSTEST = {
  'd7ea35ab91ff': 'newstest2013',  # German
  'ace268a1d972': 'newstest2013',  # English
  '909b63be5df3': 'newstest2013',  # French
  'ae5d110486bc': 'newstest2014',  # German
  '7294bccf2879': 'newstest2014',  # English, of de-en
  '9a12cb6e8efb': 'newstest2014',  # English, of fr-en
  '2bd07dc204f9': 'newstest2014',  # French
}


def corpus_settings(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns the keys that decide what is in a config's corpus, as its card has them."""
  return values(as_json(config), Tag.CORPUS)


def languages(config: ml_collections.ConfigDict) -> tuple[str, str]:
  """Returns the codes of source and target language."""
  return config.data.source_language, config.data.target_language


def paper_set(stem: str) -> str | None:
  """Returns which of the paper's sets a stem seems to name, or None."""
  for name, set_of_sacrebleu in WMT14.items():
    if name in stem or stem.startswith(set_of_sacrebleu.partition('/')[0]):
      return name
  return None


def set_name(stem: str) -> str:
  """Returns WMT's name of a test set, or the last part of another stem."""
  if stem.startswith(SACREBLEU):
    return {of_sacrebleu: name for name, of_sacrebleu in WMT14.items()}.get(stem, stem)
  return stem.rpartition('/')[2]


def rename_if_changed(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  overridden: Collection[str],
) -> None:
  """Appends a hash of the overrides to `data.name` if they change the corpus.

  `plain` is the config without them. A name that is itself `overridden` stays.
  """
  ours, before = corpus_settings(config), corpus_settings(plain)
  changed = {key: value for key, value in ours.items() if value != before[key]}
  if changed and 'data.name' not in overridden:
    text = json.dumps(changed, sort_keys=True)
    config.data.name += f'.{hashlib.sha256(text.encode()).hexdigest()[:8]}'


# The card


class VocabularyEntry(msgspec.Struct, omit_defaults=True):
  """A card's entry of a vocabulary."""

  sha256: str
  pieces: int = 0
  from_run: bool = False  # whether it is another run's
  sentences: int = 0  # the number of sentences that it was learnt from


class SourceEntry(msgspec.Struct, omit_defaults=True):
  """A card's entry of a source."""

  name: str
  files: dict[str, str] = {}  # names to sha256 sums
  read: int = 0  # pairs
  dropped: dict[str, int] = {}  # by reason


class Overlap(msgspec.Struct):
  """The sentences of dev or test that another split has too, for a card or a result."""

  source: int  # sentences
  target: int | None = None  # None: a former card did not count them
  pair: int | None = None

  def __str__(self) -> str:
    counts = self.counts().items()
    return ', '.join(f'{n:,} {name}{"s" * (n != 1)}' for name, n in counts)

  def counts(self) -> dict[str, int]:
    """Returns the numbers that the card has, by name."""
    return {k: n for k, n in msgspec.structs.asdict(self).items() if n is not None}


class SplitEntry(msgspec.Struct, omit_defaults=True):
  """A card's entry of a split; numbers count pairs unless they are of tokens."""

  read: int = 0
  kept: int = 0
  tokens: dict[str, int] = {}  # of source and target
  sources: list[SourceEntry] = []
  dropped: dict[str, int] = {}  # of training, by reason
  # Of dev or test, by the other split. A number: of former cards, which count sources.
  overlap: dict[str, int | Overlap] = {}
  # Fraction of the pieces, spaces aside, that are unknown or bytes of rare text
  unknown: dict[str, float] = {}


class Card(msgspec.Struct, omit_defaults=True):
  """The content of card.json."""

  vocabulary: VocabularyEntry
  splits: dict[str, SplitEntry]
  corpus: dict[str, Any] = {}  # corpus_settings()
  target_vocabulary: VocabularyEntry | None = None  # None: both languages share one
  versions: dict[str, str] = {}
  identity: str = ''
  sha256: dict[str, str] = {}  # of all files beside it


def read_card(folder: pathlib.Path) -> Card:
  """Returns the card of a prepared corpus or a run; raises UserError if damaged."""
  path = folder / CARD
  if not path.is_file():
    raise UserError(
      f'{path}: no such file; run scripts.prepare_data, or give --data_dir or another '
      '--config.data.name. A run needs the card of its corpus: copy it'
    )
  try:
    return msgspec.json.decode(path.read_bytes(), type=Card)
  except (msgspec.DecodeError, UnicodeDecodeError) as error:
    raise UserError(
      f'{path}: damaged ({error}). In the folder of a run, put back a copy: its corpus '
      f'has the same card. In that of a corpus: {_AGAIN.lower()}'
    ) from error


def write_card(folder: pathlib.Path, card: Card) -> None:
  """Writes the card, with the identity and the sha256 sums of all files beside it."""
  sums = _sums(folder)
  card = msgspec.structs.replace(card, identity=identity(sums), sha256=sums)
  text = msgspec.json.format(msgspec.json.encode(card), indent=1)
  (folder / CARD).write_bytes(text + b'\n')


def _sums(folder: pathlib.Path) -> dict[str, str]:
  paths = sorted(path for path in folder.iterdir() if path.name != CARD)
  return {path.name: sha256(path) for path in paths}


def identity(sums: Mapping[str, str]) -> str:
  """Returns the sha256 of the sums of files, as the command sha256sum lists them."""
  lines = [f'{digest}  {name}\n' for name, digest in sorted(sums.items())]
  return hashlib.sha256(''.join(lines).encode()).hexdigest()


# Token files

TOKENS, OFFSETS = np.dtype('<u2'), np.dtype('<i8')


@contextlib.contextmanager
def token_writer(
  path: pathlib.Path,
) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
  """Writes PATH.tokens and PATH.offsets while the context is open.

  Yields a function that adds sentences. It takes the ids of all of them [tokens], and
  the number of ids of each [sentences].
  """
  with (
    open(f'{path}.tokens', 'wb') as ids_file,
    open(f'{path}.offsets', 'wb') as ends_file,
  ):
    ends_file.write(np.zeros(1, OFFSETS).tobytes())
    end = 0

    def append(ids: np.ndarray, lengths: np.ndarray) -> None:
      nonlocal end
      ids_file.write(np.ascontiguousarray(ids, TOKENS).data)
      ends_file.write((end + np.cumsum(lengths, dtype=OFFSETS)).tobytes())
      end += len(ids)

    yield append


class Sentences:
  """The sentences of one language of a split, memory-mapped from their two files.

  Attributes:
    tokens: [tokens] uint16, of all sentences.
    offsets: [sentences + 1] int64, the start of each sentence and the end of the last.
  """

  def __init__(self, path: pathlib.Path):
    self.tokens = _mapped(f'{path}.tokens', TOKENS)
    self.offsets = _mapped(f'{path}.offsets', OFFSETS)

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @property
  def lengths(self) -> np.ndarray:
    """Returns each sentence's number of tokens, EOS included: [sentences] int32."""
    return (np.diff(self.offsets) + 1).astype(np.int32)

  def __getitem__(self, row: int) -> list[int]:
    """Returns the ids of a sentence, with EOS."""
    start, end = self.offsets[row : row + 2]
    return [*self.tokens[start:end].tolist(), EOS]

  def pad(self, rows: np.ndarray, length: int) -> np.ndarray:
    """Returns sentences with EOS, padded: [len(rows), length] int32.

    Args:
      rows: the numbers of the sentences; -1 is an empty row, without EOS.
    """
    position = np.arange(length)
    starts = self.offsets[rows]
    counts = self.offsets[rows + 1] - starts  # of row -1, 0 or less
    tokens = np.zeros((len(rows), length), TOKENS)
    if len(self.tokens):
      # Each row reads on into the next sentence, which is faster than selecting its
      # tokens. Those of the next sentence are replaced below.
      np.take(self.tokens, starts[:, None] + position, out=tokens, mode='clip')
    block = np.where(position < counts[:, None], tokens, PAD).astype(np.int32)
    real = np.flatnonzero(rows >= 0)
    block[real, counts[real]] = EOS
    return block


def _mapped(path: str, dtype: np.dtype) -> np.ndarray:
  """Returns the numbers of a file, memory-mapped."""
  count = os.path.getsize(path) // dtype.itemsize
  if not count:  # an empty file cannot be mapped
    return np.zeros(0, dtype)
  return np.asarray(np.memmap(path, dtype, 'r', shape=(count,)))


class Split(NamedTuple):
  """The pairs of train, dev or test as token ids."""

  source: Sentences
  target: Sentences


def read_split(folder: pathlib.Path, split: str) -> Split:
  """Returns a split of a folder, without comparing its files as Corpus.split() does."""
  return Split(*(Sentences(folder / f'{split}.{x}') for x in ('source', 'target')))


# The folder


class Corpus(NamedTuple):
  """A prepared corpus: its folder and its card.

  A file's checksum is compared with the card's before it is read, so that damaged text
  is neither trained on nor scored. For 4.5 M training pairs, 0.63 GB, that takes 0.6 s
  of a core (AMD EPYC, files in memory).

  Attributes:
    folder: the corpus's.
    card: the content of its card.json.
  """

  folder: pathlib.Path
  card: Card

  @classmethod
  def open(cls, folder: pathlib.Path) -> 'Corpus':
    """Reads the card; raises UserError if it is missing or damaged."""
    return cls(folder, read_card(folder))

  def check_settings(self, config: ml_collections.ConfigDict) -> None:
    """Raises UserError unless the corpus was prepared as the config says."""
    needed = corpus_settings(config)
    del needed['data.name']  # a folder may be renamed
    for key, value in needed.items():
      if (before := self.card.corpus.get(key, KEYS[key].before)) != value:
        raise UserError(
          f'{self.folder} was prepared with {key}={before}, the config says {value}: '
          'give the corpus another name (--config.data.name), or delete that folder to '
          'prepare it again, if no run needs it'
        )

  def vocabularies(self) -> Vocabularies:
    """Returns the vocabularies of source and target."""
    self._verify(vocabulary.FILES & self.card.sha256.keys())
    return vocabulary.read(self.folder, self.card.sha256)

  def split(self, name: str) -> Split:
    """Returns the token ids of train, dev or test.

    Raises UserError if a file is not the one on the card.
    """
    parts = 'tokens', 'offsets'
    self._verify({f'{name}.{stream}.{part}' for stream in STREAMS for part in parts})
    return read_split(self.folder, name)

  def text(self, split: str) -> tuple[list[str], list[str]]:
    """Returns the sources and targets of dev or test, lower-cased if data.lowercase.

    Raises UserError if a file is not the one on the card.
    """
    names = [f'{split}.{stream}.txt' for stream in STREAMS]
    self._verify({*names})
    read = lambda name: (self.folder / name).read_bytes().decode().split('\n')[:-1]
    source, target = map(read, names)
    return source, target

  def copy_description(self, folder: pathlib.Path) -> None:
    """Copies the card and the vocabularies, which a run keeps, into a folder."""
    for name in (vocabulary.FILES & self.card.sha256.keys()) | {CARD}:
      shutil.copy(self.folder / name, folder / name)

  def verify(self) -> None:
    """Raises UserError unless the folder has what its card says, and nothing else."""
    sums = self.card.sha256
    wrong = {name for name, _ in _sums(self.folder).items() ^ sums.items()}
    if self.card.identity != identity(sums):
      wrong.add(CARD)
    self._refuse(wrong)

  def _verify(self, names: Collection[str]) -> None:
    paths = [self.folder / name for name in names]
    is_right = lambda path: sha256(path) == self.card.sha256.get(path.name)
    self._refuse({p.name for p in paths if not p.is_file() or not is_right(p)})

  def _refuse(self, wrong: Collection[str]) -> None:
    if wrong:
      names = ', '.join(sorted(wrong))
      raise UserError(
        f'{self.folder}: changed, missing or not on the card: {names}. {_AGAIN}'
      )
