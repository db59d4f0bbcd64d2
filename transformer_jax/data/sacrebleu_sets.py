"""Test sets that sacreBLEU keeps or downloads, such as `wmt13` and `wmt14/full`.

Their SGML is read here, not the text that sacreBLEU makes of it: that has entities in
it and has lost its no-break spaces.
"""

import contextlib
import http.client
import pathlib
import socket
from collections.abc import Iterator

import sacrebleu.dataset
from sacrebleu import utils

from transformer_jax.data import downloads
from transformer_jax.data.text_files import FileBitext
from transformer_jax.machine.errors import UserError

# In a config, names of files that start so are sacreBLEU's names of sets.
PREFIX = 'sacrebleu:'


def bitext(stem: str, source: str, target: str) -> FileBitext:
  """A set by the name `sacrebleu:SET`, downloaded if sacreBLEU does not have it.

  Raises:
    UserError: there is no such set in SGML in these languages, or it cannot be had.
  """
  name, pair = stem.removeprefix(PREFIX), f'{source}-{target}'
  if name not in sacrebleu.dataset.DATASETS:
    raise UserError(f'{stem}: sacreBLEU has no such set; `sacrebleu --list` names them')
  found = sacrebleu.dataset.DATASETS[name]
  if pair not in found.langpairs:
    raise UserError(f'{stem}: sacreBLEU has it in {", ".join(found.langpairs)}')
  members = found.langpairs[pair]
  if len(members) != 2 or not all(str(member).endswith('.sgm') for member in members):
    raise UserError(f'{stem}: only sets of two SGML files are read, as up to WMT18')
  folder = pathlib.Path(utils.SACREBLEU_DIR, name)
  paths = [folder / 'raw' / member for member in members]
  if not all(path.is_file() for path in paths):
    with _explained(stem, folder, found.data):
      found.maybe_download()
  missing = [path.name for path in paths if not path.is_file()]
  if missing:
    raise UserError(f'{folder} lacks {missing[0]}: delete it to have {stem} downloaded')
  return FileBitext(*paths)


@contextlib.contextmanager
def _explained(stem: str, folder: pathlib.Path, urls: list[str]) -> Iterator[None]:
  """Says in one line what to do if the set cannot be downloaded."""
  ways = (
    f'set SACREBLEU to a folder that has it, unpack it into {folder / "raw"}, or name '
    f'other files in --config.data.files'
  )
  if dead := downloads.unanswered(urls):
    raise UserError(
      f'{stem} is not in {folder}; {downloads.describe(dead)}. You can {ways}'
    )
  before = socket.getdefaulttimeout()
  socket.setdefaulttimeout(downloads.STALLED)
  try:
    yield
  except (OSError, EOFError, http.client.HTTPException, SystemExit) as error:
    # sacreBLEU exits if a sum is wrong.
    reason = error if isinstance(error, Exception) else 'not what sacreBLEU expects'
    raise UserError(
      f'{stem} could not be downloaded from {" ".join(urls)}: {reason}. Delete '
      f'{folder} and try again, or {ways}'
    ) from error
  finally:
    socket.setdefaulttimeout(before)
