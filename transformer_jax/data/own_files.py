"""A user's own folder of parallel text: train.de, train.en, perhaps dev and test."""

import difflib
import functools
import pathlib
import re
from typing import NamedTuple

from transformer_jax.data import drawn, packed, text_files
from transformer_jax.data.lines import DAMAGE
from transformer_jax.machine.errors import UserError

MOST_DRAWN = 1000  # pairs of dev or test, where there are no files of them
CODE = re.compile('[a-z]{2,3}(_[A-Za-z0-9]+)?')  # de, hsb, pt_BR


class OwnFiles(NamedTuple):
  """What a folder holds."""

  folder: pathlib.Path  # absolute
  source_language: str
  target_language: str
  pairs: int  # lines of train
  files: dict[str, tuple[str, ...]]  # the stems of each split, as a config has them


def look(argument: str) -> OwnFiles:
  """The folder and the languages of 'SOURCE-TARGET,DIR'.

  Dev and test are drawn from train where there is none of their files.

  Raises:
    UserError: a language is none, or train is not there or damaged.
  """
  pair, _, name = argument.partition(',')
  languages = tuple(pair.split('-'))
  if len(languages) != 2 or not name:
    raise UserError(f'my.py:{argument}: SOURCE-TARGET,DIR, such as my.py:de-en,texts')
  for language in languages:
    _check_language(language)
  if len({*languages}) == 1:
    raise UserError(f'my.py:{argument}: two different languages, such as de-en')
  folder = pathlib.Path(name).expanduser().resolve()
  if not folder.is_dir():
    raise UserError(f'my.py:{argument}: {folder} is no folder')
  for language in languages:
    if not text_files.there(folder, f'train.{language}'):
      raise UserError(
        f'{folder} has no train.{language}, a sentence a line, plain or compressed '
        f'({" ".join(packed.ENDS)})'
      )
  pairs = _lines(text_files.find(folder, f'train.{languages[0]}'))
  files = {'train': ('train',)}
  for split in ('dev', 'test'):
    own = any(text_files.there(folder, f'{split}.{language}') for language in languages)
    count = max(1, min(MOST_DRAWN, pairs // 10))
    files[split] = (split,) if own else (f'{drawn.PREFIX}{count}',)
  return OwnFiles(folder, *languages, pairs, files)


def _check_language(code: str) -> None:
  """Raises UserError for what is no code of a language, and says what is meant."""
  from babel import Locale  # here, since it loads slowly
  from babel.core import get_global

  language = code.partition('_')[0]
  short = get_global('language_aliases').get(language, '')
  # A scorer knows how to split Japanese by the code ja alone.
  if len(language) == 3 and len(short) == 2:
    raise UserError(f'{code!r}: this language has a code of two letters, {short}')
  names = {name.lower(): key for key, name in Locale('en').languages.items()}
  if CODE.fullmatch(code) and (len(language) == 3 or language in names.values()):
    return
  near = difflib.get_close_matches(code.lower(), names, 1)
  hint = f': {near[0].title()} is {names[near[0]]}' if near else ', such as de or hsb'
  raise UserError(f'{code!r} is no code of a language (ISO 639){hint}')


@functools.cache
def _lines(path: pathlib.Path) -> int:
  """How many lines a file has, the last of which may lack its end."""
  count, last = 0, b'\n'
  try:
    with packed.opened(path) as stream:
      while block := stream.read(1 << 20):
        count, last = count + block.count(b'\n'), block[-1:]
  except PermissionError:
    raise
  except DAMAGE as error:
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error
  return count + (last != b'\n')
