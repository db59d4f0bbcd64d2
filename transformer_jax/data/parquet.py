"""Reads Hugging Face's WMT14: Parquet files with a column `translation`.

A file is called train-00000-of-00003.parquet, say. It is in the folder itself, or in
its folder of the two languages, such as de-en.
"""

import functools
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transformer_jax.data.corpus import Pair, Source
from transformer_jax.data.text import decode_line
from transformer_jax.machine.errors import UserError

if TYPE_CHECKING:
  import pyarrow

_NAME = re.compile(r'train-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?\.parquet')
_COLUMN = 'translation'


def training_files(
  raw_dir: pathlib.Path, languages: tuple[str, str]
) -> list[pathlib.Path]:
  """Returns the files of training text, in the order of their numbers, or [].

  Raises:
    UserError: a file is missing, or they are of several uploads.
  """
  for folder in ('-'.join(languages), '-'.join(languages[::-1]), '.'):
    files = sorted((raw_dir / folder).glob('train-*.parquet'))
    names = [_NAME.fullmatch(path.name) for path in files]
    if files and all(names):
      numbers = [(int(name[1]), int(name[2])) for name in names]
      if numbers != [(n, len(files)) for n in range(len(files))]:
        raise UserError(
          f'{files[0].parent}: {", ".join(path.name for path in files)} are not all '
          'of one upload: get what is missing, and keep one set of files'
        )
      return files
  return []


def source(path: pathlib.Path, languages: tuple[str, str]) -> Source:
  """Returns the rows of one file."""
  return Source(path.name, (path,), functools.partial(read_pairs, path, languages))


def read_pairs(path: pathlib.Path, languages: tuple[str, str]) -> Iterator[Pair]:
  """Yields the pair of every row; None for a sentence that is null or not UTF-8.

  Raises:
    UserError: the file is damaged, or lacks one of the languages.
  """
  import pyarrow  # of an extra
  from pyarrow import dataset

  try:
    table = dataset.dataset(str(path), format='parquet')
    if _COLUMN not in table.schema.names:
      raise UserError(
        f'{path}: no column {_COLUMN!r}, but {", ".join(table.schema.names)}'
      )
    kind = table.schema.field(_COLUMN).type
    fields = {field.name for field in kind} if pyarrow.types.is_struct(kind) else set()
    if not fields.issuperset(languages):
      raise UserError(
        f'{path}: column {_COLUMN!r} has no text in {" and ".join(languages)}: it is '
        f'{kind}'
      )
    # As bytes: a string that is not UTF-8 would end the reading.
    columns = {
      side: dataset.field(_COLUMN, language).cast(pyarrow.large_binary())
      for side, language in zip(('source', 'target'), languages, strict=True)
    }
    for batch in table.to_batches(columns=columns):
      yield from zip(*(_decoded(column) for column in batch.columns), strict=True)
  except (pyarrow.ArrowException, OSError) as error:
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error


def _decoded(column: 'pyarrow.Array') -> list[str | None]:
  lines = column.to_pylist()
  return [None if line is None else decode_line(line) for line in lines]
