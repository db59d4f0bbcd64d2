"""The card of a prepared corpus: its files with their sums, and what they come from.

A corpus's identity is a hash of what is in its folder: vocabulary, token files, and the
text of dev and test. The files that it was prepared from are no part of the identity.
"""

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import msgspec

from transformer_jax.data import vocabulary
from transformer_jax.data.corpus import SIDES, Corpus
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

CARD = 'card.json'

_AGAIN = 'Delete the folder and prepare it again'


class VocabularyEntry(msgspec.Struct, omit_defaults=True):
  """What a card says of a vocabulary."""

  sha256: str
  pieces: int = 0
  from_run: bool = False  # whether it is another run's
  sentences: int = 0  # the number of sentences that it was learnt from


class SourceEntry(msgspec.Struct, omit_defaults=True):
  """What a card says of a source."""

  name: str
  files: dict[str, str] = {}  # names to sha256 sums
  read: int = 0  # pairs
  dropped: dict[str, int] = {}  # by reason


class Split(msgspec.Struct, omit_defaults=True):
  """What a card says of a split; numbers count pairs unless they are of tokens."""

  read: int = 0
  kept: int = 0
  tokens: dict[str, int] = {}  # of source and target
  sources: list[SourceEntry] = []
  dropped: dict[str, int] = {}  # of training, by reason
  longest: dict[str, int] = {}  # tokens of the longest training sentences
  in_train: int = 0  # of dev or test: source sentences that training has too


class Card(msgspec.Struct, omit_defaults=True):
  """The content of card.json."""

  vocabulary: VocabularyEntry
  splits: dict[str, Split]
  corpus: dict[str, Any] = {}  # Corpus.as_json()
  target_vocabulary: VocabularyEntry | None = None  # None: both languages share one
  versions: dict[str, str] = {}
  identity: str = ''
  sha256: dict[str, str] = {}  # of all files beside it


def read_card(folder: pathlib.Path) -> Card:
  """Returns the card of a prepared corpus, or of a run.

  Raises:
    UserError: there is no card, or it is damaged.
  """
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
  paths = sorted(path for path in folder.iterdir() if path.name != CARD)
  sums = {path.name: sha256(path) for path in paths}
  card = msgspec.structs.replace(card, identity=identity(sums), sha256=sums)
  text = msgspec.json.format(msgspec.json.encode(card), indent=1)
  (folder / CARD).write_bytes(text + b'\n')


def identity(sums: Mapping[str, str]) -> str:
  """Returns the sha256 of the sums of files, as the command sha256sum lists them."""
  lines = [f'{digest}  {name}\n' for name, digest in sorted(sums.items())]
  return hashlib.sha256(''.join(lines).encode()).hexdigest()


def check_settings(folder: pathlib.Path, corpus: Corpus) -> None:
  """Raises UserError unless the folder was prepared as `corpus` says."""
  card, settings = read_card(folder), corpus.as_json()
  del settings['name']  # a folder may be renamed
  for key, value in settings.items():
    if (before := card.corpus.get(key)) != value:
      raise UserError(
        f'{folder} was prepared with {key}={before}, the config says {value}: give the '
        'corpus another name (--config.data.name), or delete that folder to prepare it '
        'again, if no run needs it'
      )


def read_text(folder: pathlib.Path, split: str) -> tuple[list[str], list[str]]:
  """Returns the source and target sentences of dev or test, as their files had them.

  Raises:
    UserError: the text is not the one on the card.
  """
  sums = read_card(folder).sha256
  paths = [folder / f'{split}.{side}.txt' for side in SIDES]
  for path in paths:
    if sha256(path) != sums.get(path.name):
      raise UserError(f'{path} is not as it was written. {_AGAIN}')
  source, target = (path.read_bytes().decode().split('\n')[:-1] for path in paths)
  return source, target


def vocabularies(folder: pathlib.Path) -> Vocabularies:
  """Returns the vocabularies of a prepared corpus, or of a run."""
  return vocabulary.read(folder, vocabulary.TARGETS in read_card(folder).sha256)


def verify(folder: pathlib.Path) -> None:
  """Raises UserError if a folder is not what its card says; it names what differs."""
  card = read_card(folder)
  names = {path.name for path in folder.iterdir()} - {CARD}
  wrong = [f'{name} is missing' for name in sorted(card.sha256.keys() - names)]
  wrong += [f'{name} is not on the card' for name in sorted(names - card.sha256.keys())]
  for name in sorted(card.sha256.keys() & names):
    if sha256(folder / name) != card.sha256[name]:
      wrong.append(f'{name} is not as it was written')
  if card.identity != identity(card.sha256):
    wrong.append(f'the identity on the {CARD} is not that of its sums')
  if wrong:
    raise UserError(f'{folder}: {"; ".join(wrong)}. {_AGAIN}')
