"""A prepared corpus's card: it lists the folder's files and how they were made.

A corpus's identity is a hash of what is in its folder: vocabulary, token files, and the
text of dev and test. Where that came from stands on the card and is no part of it.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping

from transformer_jax.data import token_files, vocabulary
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.lines import SIDES
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

SPLITS = ('train', 'dev', 'test')
CARD = 'card.json'

_AGAIN = 'Delete the folder and prepare it again'
# What is raised on reading a card whose values are missing or have the wrong type.
_OTHER_JSON = (KeyError, TypeError, AttributeError)


def read_card(folder: pathlib.Path) -> dict:
  """The card of a prepared corpus; its identity is added where it lacks one.

  Raises:
    UserError: there is no card, or it is damaged.
  """
  path = folder / CARD
  if not path.is_file():
    raise UserError(f'{path}: not there; run scripts.prepare_data, or give --data_dir')
  try:
    card = json.loads(path.read_bytes())
    _check_types(card)
    return {'identity': identity(card['sha256'])} | card
  except (ValueError, RecursionError, *_OTHER_JSON) as error:
    raise UserError(f'{path}: damaged ({error!r}). {_AGAIN}') from error


def _check_types(card: dict) -> None:
  """Raises one of _OTHER_JSON if what readers take for granted is of another type."""
  splits = [split for split in card['splits'].values() if 'from' in split]
  texts = [entry['name'] for split in splits for entry in split['from']]
  texts += [card['vocabulary']['sha256'], *card['sha256'].values()]
  if not all(isinstance(text, str) for text in texts):
    raise TypeError('a name or a sum is no text')


def identity(sums: Mapping[str, str]) -> str:
  """The sha256 of the sums of a folder's files, as the command sha256sum lists them."""
  lines = [f'{digest}  {name}\n' for name, digest in sorted(sums.items())]
  return hashlib.sha256(''.join(lines).encode()).hexdigest()


def check_asked(folder: pathlib.Path, asked: Corpus) -> None:
  """Raises UserError unless the folder was prepared as is asked now."""
  card, settings = read_card(folder), asked.as_json()
  del settings['name']  # a folder may be renamed
  if settings.keys() - card.keys():
    raise UserError(f'{folder} was written by an older version: prepare it again')
  for key, value in settings.items():
    if card[key] != value:
      raise UserError(
        f'{folder} was prepared with {key}={card[key]}, the config says {value}: give '
        'the corpus another name (--config.data.name), or delete that folder to '
        'prepare it again, if no run needs it'
      )


def write_card(folder: pathlib.Path, card: dict) -> None:
  """Writes the card, with the identity and the sha256 sums of all files beside it."""
  paths = sorted(path for path in folder.iterdir() if path.name != CARD)
  sums = {path.name: sha256(path) for path in paths}
  card = card | {'identity': identity(sums), 'sha256': sums}
  text = json.dumps(card, indent=1, ensure_ascii=False) + '\n'
  (folder / CARD).write_text(text, encoding='utf-8')


def vocabularies(folder: pathlib.Path) -> Vocabularies:
  """The vocabularies beside a card, of a corpus or of a run."""
  return vocabulary.read(folder, vocabulary.TARGETS in read_card(folder)['sha256'])


def verify(folder: pathlib.Path) -> None:
  """Checks a prepared folder against its card: sums, counts, every token.

  Raises:
    UserError: it differs; the message names the files.
  """
  try:
    _verify(folder, read_card(folder))
  except _OTHER_JSON as error:
    raise UserError(f'{folder / CARD}: damaged ({error!r}). {_AGAIN}') from error


def _verify(folder: pathlib.Path, card: dict) -> None:
  there = {path.name for path in folder.iterdir()} - {CARD}
  listed = card['sha256']
  wrong = [f'{name} is missing' for name in sorted(listed.keys() - there)]
  wrong += [f'{name} is not on the card' for name in sorted(there - listed.keys())]
  for name in sorted(listed.keys() & there):
    if sha256(folder / name) != listed[name]:
      wrong.append(f'{name} is not as it was written')
  if card['identity'] != identity(listed):
    wrong.append(f'the identity on the {CARD} is not that of its sums')
  if wrong:
    raise UserError(f'{folder}: {"; ".join(wrong)}. {_AGAIN}')
  pieces = [len(side) for side in vocabularies(folder)]
  for kind, found in zip(('vocabulary', 'target_vocabulary'), pieces, strict=True):
    if kind in card and found != card[kind]['pieces']:
      raise UserError(
        f'{folder}: the {kind} has {found} pieces, the card says {card[kind]["pieces"]}'
      )
  for split in SPLITS:
    about = card['splits'][split]
    sides = token_files.read_split(folder, split)
    for name, side, size in zip(SIDES, sides, pieces, strict=True):
      side.check(size)
      found = len(side), len(side.tokens)
      if found != (about['kept'], about['tokens'][name]):
        raise UserError(
          f'{folder}: {split}.{name} has {found[0]} sentences and {found[1]} tokens, '
          f'the card says {about["kept"]} and {about["tokens"][name]}'
        )
