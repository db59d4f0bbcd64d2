"""A user's own folder of parallel text: train.de, train.en, perhaps dev and test."""

import functools
import os
import pathlib
from typing import NamedTuple

from transformer_jax.data import drawn, packed, text_files
from transformer_jax.data import languages as spoken
from transformer_jax.machine.errors import UserError

MOST_DRAWN = 1000  # pairs of dev or test, where there are no files of them
# What other programs call dev.
OTHER_NAMES = ('valid', 'val', 'validation')


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
    UserError: the argument is not of that form, a language's code is unknown, both are
      the same, DIR or train is not there, train is damaged, or dev has the name that
      another program gives it.
  """
  pair, _, name = argument.partition(',')
  languages = tuple(pair.split('-'))
  if len(languages) != 2 or not name:
    raise UserError(f'my.py:{argument}: SOURCE-TARGET,DIR, such as my.py:de-en,texts')
  for language in languages:
    spoken.check_code(language)
  if len({*languages}) == 1:
    raise UserError(f'my.py:{argument}: two different languages, such as de-en')
  folder = pathlib.Path(os.path.expanduser(name)).resolve()
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
  there = lambda stem: any(text_files.there(folder, f'{stem}.{s}') for s in languages)
  others = [] if there('dev') else [name for name in OTHER_NAMES if there(name)]
  if others:
    raise UserError(
      f'{folder} has {others[0]}.* and no dev.*: call them dev.*. (A run that has '
      'begun goes on by train --workdir=RUN alone)'
    )
  for split in ('dev', 'test'):
    have = [s for s in languages if text_files.there(folder, f'{split}.{s}')]
    if len(have) == 1:
      (lacks,) = {*languages} - {*have}
      raise UserError(
        f'{folder} has {split}.{have[0]} and no {split}.{lacks}: add that, or rename '
        f'{split}.{have[0]}; without both, {split} is drawn from train'
      )
    count = max(1, min(MOST_DRAWN, pairs // 10))
    files[split] = (split,) if have else (f'{drawn.PREFIX}{count}',)
  return OwnFiles(folder, *languages, pairs, files)


@functools.cache
def _lines(path: pathlib.Path) -> int:
  """How many lines a file has, the last of which may lack its end."""
  count, last = 0, b'\n'
  for block in packed.blocks(path):
    count, last = count + block.count(b'\n'), block[-1:]
  return count + (last != b'\n')


def characters(of: OwnFiles) -> int:
  """How many different characters train has. One file at a time is held in memory.

  Raises:
    UserError: one of them is damaged.
  """
  found: set[str] = set()
  for language in (of.source_language, of.target_language):
    path = text_files.find(of.folder, f'train.{language}')
    found |= {*b''.join(packed.blocks(path)).decode(errors='replace')}
  return len(found)
