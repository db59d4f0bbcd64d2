"""The reader of WMT14 from TensorFlow Datasets, German or French with English.

A folder that tfds has prepared is read where it lies. If there is none, tfds downloads
and prepares WMT14. It holds whole files in memory meanwhile, several GB for de-en and
tens of GB for fr-en; on a small machine, read WMT's archives instead (archives.py).

Training text comes as it is in WMT's files, `&amp;` included, because those are plain
text. A CR at the end of a side is removed, as it is from a file of lines. tfds shuffles
every split; dev and test come out in their official order, without mark-up.

tfds is imported inside functions: the import takes a second, and other readers do not
need it.
"""

import contextlib
import importlib.util
import pathlib
from collections.abc import Iterator
from typing import Any

from transformer_jax.data import newstest, tfds_preparing
from transformer_jax.data.lines import (
  SIDES,
  Bitext,
  Pair,
  file_stamp,
  taken_off,
  unchanged,
)
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

NAME = 'wmt14_translate'
_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_SETS = {'dev': 'newstest2013', 'test': 'newstest2014'}

# Pairs with text on both sides. Hugging Face's card of wmt14 has the same counts.
COUNTS = {
  'de-en': {'train': 4_508_785, 'dev': 3_000, 'test': 3_003},
  'fr-en': {'train': 40_836_715, 'dev': 3_000, 'test': 3_003},
}

# Records read at once. Reading them one by one is a hundred times slower.
_BATCH = 4096


class TfdsBitext:
  """One split of WMT14 as tfds has prepared it.

  Args:
    builder: tfds's; _check() has found its folder complete.
    split: train, dev or test.
    languages: of the source and of the target.
  """

  def __init__(self, builder: Any, split: str, languages: newstest.Languages):
    self.name, self.paths = f'{builder.info.full_name} {_SPLITS[split]}', ()
    self._builder, self._split, self._languages = builder, split, languages
    info = builder.info.splits[_SPLITS[split]]
    paths = [pathlib.Path(path) for path in info.filepaths]
    self._shards = dict(zip(paths, info.shard_lengths, strict=True))
    self._origin: dict = {}

  def stamp(self) -> list:
    return [self.name, *self._languages, *map(file_stamp, self._shards)]

  def pairs(self) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
      for path in self._shards:
        stack.enter_context(unchanged(path))
      yield from self._official() if self._split in _SETS else self._as_prepared()

  def origin(self) -> dict:
    sums = {path.name: files.sha256(path) for path in self._shards}
    return {**self._origin, 'files': sums}

  def _official(self) -> list[Pair]:
    pairs = [(newstest.plain(a), newstest.plain(b)) for a, b in self._as_prepared()]
    try:
      return newstest.restore_order(_SETS[self._split], pairs, self._languages)
    except (UserError, ValueError) as error:
      raise UserError(
        f'{self._builder.data_dir}: the split {_SPLITS[self._split]!r} is {error}; '
        f'remove the folder to have it prepared again, or {tfds_preparing.WAYS_OUT}'
      ) from error

  def _as_prepared(self) -> Iterator[Pair]:
    from tensorflow_datasets.proto import tf_example_pb2

    parse = tf_example_pb2.Example.FromString
    carriage_returns = [0, 0]
    for record in self._records():
      texts = parse(record).features.feature
      pair = [texts[side].bytes_list.value[0].decode() for side in self._languages]
      for i, side in enumerate(pair):
        if side.endswith('\r'):
          pair[i] = side[:-1]
          carriage_returns[i] += 1
      yield tuple(pair)
    for side, field, count in zip(
      SIDES, self._languages, carriage_returns, strict=True
    ):
      about = {'file': self.name, 'field': field, 'lines': sum(self._shards.values())}
      self._origin[side] = about | taken_off(count)

  def _records(self) -> Iterator[bytes]:
    start = 0
    for path, count in self._shards.items():
      # One shard at a time, because tfds never closes a shard that it has opened.
      if self._builder.info.file_format.value == 'tfrecord':
        records = _tfrecords(path)
      else:
        slice_ = f'{_SPLITS[self._split]}[{start}:{start + count}]'
        records = _array_records(self._builder, slice_, path)
      read = 0
      for batch in records:
        yield from batch
        read += len(batch)
      if read != count:
        raise UserError(
          f'{path}: {read:,} pairs, but dataset_info.json beside it says {count:,}; '
          f'remove the folder to have it prepared again'
        )
      start += count


def _array_records(
  builder: Any, split: str, path: pathlib.Path
) -> Iterator[list[bytes]]:
  from tensorflow_datasets import decode

  # Parsing the records ourselves is four times as fast as tfds's decoding.
  raw = decode.DeserializeMethod.RAW_BYTES
  source = builder.as_data_source(split, deserialize_method=raw)
  for start in range(0, len(source), _BATCH):
    places = range(start, min(start + _BATCH, len(source)))
    try:
      records = source.__getitems__(places)
    except RuntimeError as error:
      raise _damaged(path, error) from error
    yield records


def _tfrecords(path: pathlib.Path) -> Iterator[list[bytes]]:
  import tensorflow as tf

  # TensorFlow must not take the memory of accelerators, which JAX uses.
  for kind in ('GPU', 'TPU'):
    tf.config.set_visible_devices([], kind)
  batches = tf.data.TFRecordDataset(str(path)).batch(_BATCH).as_numpy_iterator()
  try:
    for batch in batches:
      yield batch.tolist()
  except tf.errors.OpError as error:
    raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> UserError:
  return UserError(
    f'{path}: truncated or damaged ({error}); remove its folder to have it prepared '
    f'again, or {tfds_preparing.WAYS_OUT}'
  )


def bitexts(
  source_language: str,
  target_language: str,
  tfds_data_dir: pathlib.Path | None = None,
) -> dict[str, list[Bitext]]:
  """The splits of WMT14, downloaded and prepared first if they are not there.

  Args:
    tfds_data_dir: where tfds keeps its data sets; None for tfds's default.

  Raises:
    UserError: there are no such languages; or WMT14 could not be downloaded or written;
      or what is there is not all of WMT14 or has a format that cannot be read.
  """
  languages = source_language, target_language
  config = next((c for c in COUNTS if sorted(c.split('-')) == sorted(languages)), None)
  if not config:
    raise UserError(
      f'{source_language}-{target_language}: from tfds there is WMT14 in '
      f'{" and ".join(COUNTS)}, in either direction'
    )
  builder = _builder(config, tfds_data_dir)
  if not builder.data_path.exists():
    folder = pathlib.Path(builder.data_dir_root)
    folder.mkdir(parents=True, exist_ok=True)
    with files.in_turn(folder / f'{NAME}.lock', f'prepares {NAME} in {folder}'):
      builder = _builder(config, tfds_data_dir)  # the other process may have made it
      if not builder.data_path.exists():
        tfds_preparing.prepare(builder)
  _check(builder, config)
  return {split: [TfdsBitext(builder, split, languages)] for split in _SPLITS}


def _builder(config: str, folder: pathlib.Path | None) -> Any:
  from google.protobuf import json_format
  from tensorflow_datasets.core import constants
  from tensorflow_datasets.translate import wmt14

  for inner in [folder, *folder.parents] if folder else []:
    if inner.name == NAME and (inner / config).is_dir():
      raise UserError(
        f'{folder} is {NAME} or inside it: give the folder around that, '
        f'--tfds_data_dir={inner.parent}'
      )
  try:
    return wmt14.Wmt14Translate(config=config, data_dir=folder)
  except (json_format.ParseError, AssertionError, ValueError) as error:
    raise UserError(
      f'{folder or constants.DATA_DIR}: the dataset_info.json of {NAME}/{config} is '
      f'damaged ({error}); remove its folder to have it prepared again'
    ) from error


def _check(builder: Any, config: str) -> None:
  """Raises UserError if the folder does not hold what tfds prepares."""
  again = 'remove it to have it prepared again, or name another --tfds_data_dir'
  for split, count in COUNTS[config].items():
    name = _SPLITS[split]
    if name not in builder.info.splits:
      raise UserError(f'{builder.data_dir}: only half prepared, no {name!r}; {again}')
    info = builder.info.splits[name]
    if info.num_examples != count:
      raise UserError(
        f'{builder.data_dir}: {info.num_examples:,} pairs in {name!r}, where WMT14 '
        f'{config} has {count:,}; {again}'
      )
    for path in info.filepaths:
      if not path.is_file():
        raise UserError(f'{path}: not there, its folder is half a copy; {again}')
  format_ = builder.info.file_format.value
  if format_ not in ('array_record', 'tfrecord'):
    raise UserError(f'{builder.data_dir}: {format_}, not array_record; {again}')
  if format_ == 'tfrecord' and not importlib.util.find_spec('tensorflow'):
    raise UserError(
      f'{builder.data_dir}: prepared as TFRecord, which takes TensorFlow to read: '
      f"pip install '.[tensorflow]', or name another --tfds_data_dir to have it "
      f'prepared as array_record'
    )
