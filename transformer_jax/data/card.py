"""A prepared corpus's card: it lists the folder's files and how they were made."""

import hashlib
import json
import pathlib

from transformer_jax.data import token_files
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.lines import SIDES
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

SPLITS = ('train', 'dev', 'test')
CARD = 'card.json'

_AGAIN = 'Delete the folder and prepare it again'


def read_card(folder: pathlib.Path) -> dict:
  """The card of a prepared corpus, with its own sha256 added as `corpus`."""
  path = folder / CARD
  if not path.is_file():
    raise UserError(f'{path}: not there; run scripts.prepare_data')
  content = path.read_bytes()
  try:
    card = json.loads(content)
  except ValueError as error:
    raise UserError(f'{path}: damaged ({error}). {_AGAIN}') from error
  return card | {'corpus': hashlib.sha256(content).hexdigest()}


def check_asked(folder: pathlib.Path, asked: Corpus) -> None:
  """Raises UserError unless the folder was prepared as is asked now."""
  card, settings = read_card(folder), asked.as_json()
  del settings['name']  # a folder may be renamed
  for key, value in settings.items():
    if key not in card or card[key] != value:
      found = f'{key}={card[key]}' if key in card else f'no {key}'
      raise UserError(
        f'{folder} was prepared with {found}, the config says {value}: delete that '
        'folder to prepare it again, or give the corpus another name (--config.corpus)'
      )


def write_card(folder: pathlib.Path, card: dict) -> None:
  """Writes the card, with the sha256 sums of all files beside it."""
  paths = sorted(path for path in folder.iterdir() if path.name != CARD)
  card = card | {'sha256': {path.name: sha256(path) for path in paths}}
  text = json.dumps(card, indent=1, ensure_ascii=False) + '\n'
  (folder / CARD).write_text(text, encoding='utf-8')


def verify(folder: pathlib.Path) -> None:
  """Checks a prepared folder against its card: sums, counts, every token.

  Raises:
    UserError: it differs; the message names the files.
  """
  try:
    _verify(folder, read_card(folder))
  except (KeyError, TypeError, AttributeError) as error:
    raise UserError(f'{folder / CARD}: damaged ({error!r}). {_AGAIN}') from error


def _verify(folder: pathlib.Path, card: dict) -> None:
  there = {path.name for path in folder.iterdir()} - {CARD}
  listed = card['sha256']
  wrong = [f'{name} is missing' for name in sorted(listed.keys() - there)]
  wrong += [f'{name} is not on the card' for name in sorted(there - listed.keys())]
  for name in sorted(listed.keys() & there):
    if sha256(folder / name) != listed[name]:
      wrong.append(f'{name} is not as it was written')
  if wrong:
    raise UserError(f'{folder}: {"; ".join(wrong)}. {_AGAIN}')
  pieces = len(Vocabulary(folder / 'vocabulary.model'))
  if pieces != card['vocabulary']['pieces']:
    raise UserError(f'{folder}: the vocabulary has {pieces} pieces, not as the card')
  for split in SPLITS:
    about = card['splits'][split]
    for name, side in zip(SIDES, token_files.read_split(folder, split), strict=True):
      side.check(pieces)
      found = len(side), len(side.tokens)
      if found != (about['kept'], about['tokens'][name]):
        raise UserError(
          f'{folder}: {split}.{name} has {found[0]} sentences and {found[1]} tokens, '
          f'the card says {about["kept"]} and {about["tokens"][name]}'
        )
