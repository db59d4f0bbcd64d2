"""The reader of Hugging Face's wmt14: Parquet files with a column `translation`.

Their names are such as `train-00000-of-00003.parquet`. They lie in the folder given, or
in a folder inside it that is named after the languages, such as `de-en`.
"""

import operator
import pathlib
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transformer_jax.data.lines import (
  MAX_LINE_BYTES,
  SIDES,
  Bitext,
  Pair,
  file_stamp,
  taken_off,
  unchanged,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

# Hugging Face's names of the splits. Older uploads have a hash after the numbers.
_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_NAME = re.compile(r'(\w+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?\.parquet')
EXAMPLE = 'train-00000-of-00003.parquet'

_COLUMN = 'translation'
_ROWS = 4096  # decoded at once
_BUFFER = 1 << 20  # bytes of a column read at once
_TEXT = (pa.string(), pa.large_string())


class ParquetBitext:
  """One Parquet file, its rows in their order.

  A changed byte is noticed if it breaks the format, or if the file has checksums of its
  pages, which pyarrow writes only when asked. To be sure, compare the card's sha256.
  """

  def __init__(self, path: pathlib.Path, languages: tuple[str, str]):
    self.name, self.paths = path.name, (path, path)
    self._path, self._languages = path, languages
    self._origin: dict = {}

  def stamp(self) -> list:
    return [*file_stamp(self._path), *self._languages]

  def pairs(self) -> Iterator[Pair]:
    """Source and target of every row, None for one that is null or not UTF-8."""
    rows, carriage_returns = 0, [0, 0]
    with unchanged(self._path):
      for batch in self._batches():
        names = [field.name for field in batch.type]
        texts = dict(zip(names, batch.flatten(), strict=True))
        sides = [self._lines(texts[language], rows) for language in self._languages]
        # A CR at the end is removed, as it is from a file of lines.
        for i, lines in enumerate(sides):
          sides[i] = [line and line.removesuffix('\r') for line in lines]
          carriage_returns[i] += sum(map(operator.ne, lines, sides[i]))
        yield from zip(*sides, strict=True)
        rows += len(batch)
      digest = sha256(self._path)
    for side, language, count in zip(
      SIDES, self._languages, carriage_returns, strict=True
    ):
      about = {'file': self.name, 'sha256': digest, 'field': language, 'lines': rows}
      self._origin[side] = about | taken_off(count)

  def origin(self) -> dict:
    return self._origin

  def _batches(self) -> Iterator[pa.StructArray]:
    """The column, _ROWS rows at a time, which are all that memory holds of it."""
    try:
      # Given a name such as s3:x, ParquetFile would look on the network.
      with (
        pa.OSFile(str(self._path)) as file,
        pq.ParquetFile(
          file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as table,
      ):
        self._check(table.schema_arrow)
        columns = [f'{_COLUMN}.{language}' for language in self._languages]
        rows = 0
        for batch in table.iter_batches(_ROWS, columns=columns, use_threads=False):
          batch.validate()
          rows += len(batch)
          yield batch.column(0)
        if rows != table.metadata.num_rows:
          raise pa.ArrowInvalid(f'{rows} of {table.metadata.num_rows} rows')
    except (pa.ArrowException, OSError) as error:
      raise UserError(
        f'{self._path}: truncated, damaged or no Parquet file ({error}); get it again'
      ) from error

  def _check(self, schema: pa.Schema) -> None:
    if _COLUMN not in schema.names:
      raise UserError(
        f'{self._path}: no column {_COLUMN!r}, but {", ".join(schema.names)}'
      )
    kind = schema.field(_COLUMN).type
    fields = (
      {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    )
    for language in self._languages:
      if language not in fields or fields[language] not in _TEXT:
        raise UserError(
          f'{self._path}: column {_COLUMN!r} has no text in {language!r}: it is {kind}'
        )

  def _lines(self, texts: pa.Array, rows: int) -> list[str | None]:
    """The strings of an array; `rows` rows of the file come before it."""
    lengths = pc.binary_length(texts)
    if (pc.max(lengths).as_py() or 0) > MAX_LINE_BYTES:
      row = rows + pc.index(pc.greater(lengths, MAX_LINE_BYTES), True).as_py() + 1
      raise UserError(
        f'{self._path}, row {row}: over {MAX_LINE_BYTES:,} bytes; a row has a sentence'
      )
    try:
      return texts.to_pylist()
    except UnicodeDecodeError:
      return [_decoded(text) for text in texts.cast(pa.large_binary()).to_pylist()]


def _decoded(text: bytes | None) -> str | None:
  try:
    return None if text is None else text.decode('utf-8')
  except UnicodeDecodeError:
    return None


def bitexts(
  raw_dir: pathlib.Path, source_language: str, target_language: str
) -> dict[str, list[Bitext]]:
  """The files of all splits, in the order of their numbers.

  Raises:
    UserError: there are no files; a split has none, or lacks some that the names of the
      others tell of; or the folder holds files of several uploads.
  """
  languages = source_language, target_language
  found = in_folder(raw_dir, languages)
  if not found:
    raise UserError(f'{raw_dir} has no {EXAMPLE}, nor has {"-".join(languages)} in it')
  return {
    split: [ParquetBitext(path, languages) for path in _shards(name, found)]
    for split, name in _SPLITS.items()
  }


def in_folder(raw_dir: pathlib.Path, languages: tuple[str, str]) -> list[pathlib.Path]:
  """The files of a data set: in a folder of its languages there, else in `raw_dir`."""
  pairs = '-'.join(languages), '-'.join(languages[::-1])
  for folder in (*(raw_dir / pair for pair in pairs), raw_dir):
    paths = sorted(folder.glob('*.parquet'))
    if found := [path for path in paths if _NAME.fullmatch(path.name)]:
      return found
  return []


def _shards(name: str, found: list[pathlib.Path]) -> list[pathlib.Path]:
  """The files of a split, by number. UserError unless all are there, each once."""
  numbered: dict[int, pathlib.Path] = {}
  counts = {1}
  for path in found:
    split, number, count = _NAME.fullmatch(path.name).groups()
    if split == name:
      counts = {int(count)} | (counts if numbered else set())
      if len(counts) > 1 or int(number) in numbered or int(number) >= int(count):
        raise UserError(f'{path}: does not go with the others; keep one set of files')
      numbered[int(number)] = path
  count = counts.pop()
  missing = [f'{name}-{n:05}-of-{count:05}' for n in range(count) if n not in numbered]
  if missing:
    more = f' and {len(missing) - 5} more' if len(missing) > 5 else ''
    folder = found[0].parent
    raise UserError(f'{folder} lacks {", ".join(missing[:5])}{more} (.parquet)')
  return [numbered[n] for n in range(count)]
