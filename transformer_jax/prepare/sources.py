"""Sources of sentence pairs: files of text, and the test sets of sacreBLEU.

A file is called STEM.LANGUAGE, or the same with .gz, .zst, .bz2 or .xz at its end. Line
n of one language translates line n of the other.
"""

import dataclasses
import functools
import glob
import html
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ml_collections import ConfigDict

from transformer_jax.data.corpus import SACREBLEU
from transformer_jax.data.text import PACKED, read_bytes, read_lines
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare.pieces import Learner
from transformer_jax.scoring.output import Output

_SEGMENT = re.compile(r'<seg\b[^>]*>(.*?)</seg>', re.IGNORECASE | re.DOTALL)
# WMT also writes a bare & ("R&D"), so an entity must end with a semicolon.
_ENTITY = re.compile(r'&#?\w+;')
# No-break spaces stay: newstest2014 in French has 1,478 of them.
_SPACE = re.compile('[ \t\n\r\f\v]+')

# Source and target sentence; None for a side that is not UTF-8.
Pair = tuple[str | None, str | None]


class Source(NamedTuple):
  """Sentence pairs of one publication; a split has one or more sources.

  Attributes:
    name: for the card and for messages, without folders.
    files: what `pairs` reads; may be empty.
    pairs: returns an iterator over the pairs in order. In training it may yield an
      error in place of a flawed pair.
    counts_for_vocabulary: False if its pairs are made of another source's: a vocabulary
      of whole words does not count their words.
  """

  name: str
  files: tuple[pathlib.Path, ...]
  pairs: Callable[[], Iterator[Pair | UserError]]
  counts_for_vocabulary: bool = True


Sources = dict[str, list[Source]]  # by the splits of a corpus


@dataclasses.dataclass(frozen=True)
class Reader:
  """What preparation needs of a task.

  Attributes:
    output: the task's other half, which search and scores need too.
    readers: by the config's `data.reader`. Each takes a config, --raw_dir and
      --tfds_data_dir, and returns the text of all splits.
    learners: takes a config; returns the functions that learn the vocabulary of the
      source or of both languages, and that of the target alone.
  """

  output: Output
  readers: Mapping[
    str, Callable[[ConfigDict, pathlib.Path | None, pathlib.Path | None], Sources]
  ]
  learners: Callable[[ConfigDict], tuple[Learner, Learner]]

  def sources(
    self,
    config: ConfigDict,
    raw_dir: pathlib.Path | None,
    tfds_data_dir: pathlib.Path | None,
  ) -> Sources:
    """Returns the sources of every split, as the corpus's reader finds them.

    Raises:
      UserError: the task has no such reader, or the text is missing.
    """
    if config.data.reader not in self.readers:
      known = ' or '.join(map(repr, self.readers))
      raise UserError(f'reader={config.data.reader!r}: {known} (--config.data.reader)')
    return self.readers[config.data.reader](config, raw_dir, tfds_data_dir)


def read_segments(path: pathlib.Path) -> Iterator[str]:
  """Yields the segments of a test set in WMT's SGML, as WMT's plain files have them.

  Replaces entities, and each run of white space by one space.
  """
  for segment in _SEGMENT.findall(read_bytes(path).decode()):
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), segment)
    yield _SPACE.sub(' ', text).strip(' ')


def read_pairs(
  source: pathlib.Path,
  target: pathlib.Path,
  read: Callable[[pathlib.Path], Iterable[str | None]] = read_lines,
) -> Iterator[Pair]:
  """Yields the pairs of two files, whose lines `read` yields.

  Reads both to their ends, to notice all damage and to count all lines.

  Raises:
    UserError: a file is damaged, or, after the last pair, one file has more lines.
  """
  counts = [0, 0]

  def counted(number: int, path: pathlib.Path) -> Iterator[str | None]:
    for line in read(path):
      counts[number] += 1
      yield line

  texts = counted(0, source), counted(1, target)
  yield from zip(*texts, strict=False)
  for _ in itertools.chain(*texts):
    pass
  if counts[0] != counts[1]:
    raise UserError(
      f'{source} has {counts[0]} lines and {target} has {counts[1]}: they must pair up'
    )


def find_files(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
  """Returns which files exist of folder/NAME and its packed forms, such as NAME.gz.

  Raises UserError for a name that is there and cannot be read, such as a link to
  nowhere, or NAME.zip alone.
  """
  paths = [folder / (name + end) for end in ('', *PACKED)]
  paths = [path for path in paths if os.path.lexists(path)]
  for path in paths:
    if not path.is_file():
      raise UserError(f'{path}: neither a file nor a link to one: put it right')
  if not paths and (others := sorted(folder.glob(f'{glob.escape(name)}.*'))):
    raise UserError(
      f'{others[0]}: its ending is none that is read ({", ".join(PACKED)}): unpack or '
      'rename it'
    )
  return paths


def find_file(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the one file folder/NAME, packed or not; else raises UserError."""
  paths = find_files(folder, name)
  if not paths:
    raise UserError(
      f'{folder / name}: no such file, nor {", ".join(name + end for end in PACKED)}'
    )
  if len(paths) > 1:
    names = ' and '.join(path.name for path in paths)
    raise UserError(f'{folder} has {names}: keep one of them')
  return paths[0]


def file_source(folder: pathlib.Path, stem: str, languages: tuple[str, str]) -> Source:
  """Returns the pairs of folder/STEM.SOURCE and folder/STEM.TARGET."""
  source, target = paths = tuple(
    find_file(folder, f'{stem}.{language}') for language in languages
  )
  name = ' and '.join(path.name for path in paths)
  return Source(name, paths, functools.partial(read_pairs, source, target))


def sacrebleu_source(stem: str, languages: tuple[str, str]) -> Source:
  """Returns the test set `sacrebleu:SET` in its official order.

  Reads its SGML, since the text that sacreBLEU extracts from it has entities and lacks
  no-break spaces. sacreBLEU downloads a set when it is first used.

  Raises:
    UserError: sacreBLEU has no such set in SGML, or cannot download it.
  """
  import sacrebleu.dataset
  from sacrebleu import utils

  name, pair = stem.removeprefix(SACREBLEU), '-'.join(languages)
  dataset = sacrebleu.dataset.DATASETS.get(name)
  members = dataset.langpairs.get(pair, ()) if dataset else ()
  if (
    dataset is None
    or len(members) != 2
    or not all(str(member).endswith('.sgm') for member in members)
  ):
    raise UserError(
      f'{stem}: sacreBLEU has no such set of two SGML files in {pair}. It has some up '
      'to WMT18; `sacrebleu --list` names them'
    )
  folder = pathlib.Path(utils.SACREBLEU_DIR, name)
  paths = tuple(folder / 'raw' / member for member in members)
  if not all(path.is_file() for path in paths):
    try:
      dataset.maybe_download()
    except (OSError, EOFError, SystemExit) as error:  # it exits if a sum is wrong
      raise UserError(
        f'{stem} could not be downloaded ({error}). Delete {folder} and try again, set '
        'SACREBLEU to a folder that has the set, or name other files in '
        '--config.data.files'
      ) from error
  source, target = paths
  read = functools.partial(read_pairs, source, target, read_segments)
  return Source(' and '.join(path.name for path in paths), paths, read)
