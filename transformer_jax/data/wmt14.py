"""WMT14's training text from TensorFlow Datasets, German or French with English.

A folder that tfds has prepared is read in place. Without one, tfds downloads
WMT14 and prepares it as array_record, without TensorFlow. That takes several GB of
memory for de-en and tens of GB for fr-en. tfds shuffles dev and test, so they come from
sacreBLEU, which has the same text in its official order.

tfds is imported inside functions: the import takes a second, and other readers do not
need it.
"""

import contextlib
import functools
import os
import pathlib
import resource
import types
from collections.abc import Iterator
from typing import Any

from transformer_jax.data.corpus import Pair, Source
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

NAME = 'wmt14_translate'
# Training pairs with text on both sides. Hugging Face's card has the same counts.
COUNTS = {'de-en': 4_508_785, 'fr-en': 40_836_715}

WAYS = (
  'try again later, remove a damaged folder to have it prepared again, name '
  "a folder with text files or Hugging Face's Parquet files by --raw_dir, or one that "
  'tfds has prepared by --tfds_data_dir'
)

# Records read at once. Reading them one by one is a hundred times slower.
_BATCH = 4096


def source(
  languages: tuple[str, str], tfds_data_dir: pathlib.Path | None = None
) -> Source:
  """Returns the training text of WMT14; tfds downloads and prepares it if needed.

  Args:
    languages: of source and target.
    tfds_data_dir: where tfds keeps its data sets; None for its default.

  Raises:
    UserError: WMT14 has no such languages, cannot be downloaded or written, or its
      folder is incomplete.
  """
  config = next((c for c in COUNTS if {*c.split('-')} == {*languages}), None)
  if config is None:
    raise UserError(
      f'{"-".join(languages)}: tfds has WMT14 in {" and ".join(COUNTS)}, either way'
    )
  from google.protobuf import json_format

  try:
    builder = _prepared_builder(config, tfds_data_dir)
  except (json_format.ParseError, AssertionError, ValueError, OSError) as error:
    raise UserError(f'tfds cannot get WMT14 ({error}): {WAYS}') from error
  info = builder.info.splits.get('train')
  if info is None or info.num_examples != COUNTS[config]:
    raise UserError(
      f'{builder.data_dir} does not have the {COUNTS[config]:,} training pairs of '
      f'WMT14 {config}: {WAYS}'
    )
  paths = tuple(pathlib.Path(path) for path in info.filepaths)
  read = functools.partial(_read_pairs, builder, paths, languages)
  return Source(f'{builder.info.full_name} train', paths, read)


def _prepared_builder(config: str, folder: pathlib.Path | None) -> Any:
  """Returns tfds's builder of WMT14, whose folder has been prepared."""
  from tensorflow_datasets import download
  from tensorflow_datasets.core.download import extractor
  from tensorflow_datasets.translate import wmt14

  build = lambda: wmt14.Wmt14Translate(config=config, data_dir=folder)
  builder = build()
  if builder.data_path.exists():
    return builder
  root = pathlib.Path(builder.data_dir_root)
  root.mkdir(parents=True, exist_ok=True)
  with files.in_turn(root / f'{NAME}.lock', f'prepares {NAME} in {root}'):
    builder = build()  # the other process may have prepared it
    if not builder.data_path.exists():
      # Google's copy has another format, and asking for it can take minutes.
      settings = download.DownloadConfig(try_download_gcs=False)
      try:
        with _files_without_tensorflow():
          builder.download_and_prepare(
            file_format='array_record', download_config=settings
          )
      except (download.DownloadError, extractor.ExtractError, RuntimeError) as error:
        raise OSError(error) from error
  return builder


@contextlib.contextmanager
def _files_without_tensorflow() -> Iterator[None]:
  """Lets tfds prepare a data set without TensorFlow.

  tfds 4.9.10 needs tf.io.gfile only to unpack archives and to shuffle more than a
  gigabyte; Python's own files stand in for it. Such a shuffle opens a thousand files at
  once, so the limit on open files is raised by as many.
  """
  from tensorflow_datasets.core import shuffle
  from tensorflow_datasets.core.download import extractor

  gfile = types.SimpleNamespace(GFile=open, exists=os.path.exists, remove=os.remove)
  stand_in = types.SimpleNamespace(
    io=types.SimpleNamespace(gfile=gfile),
    compat=types.SimpleNamespace(as_text=str),
    errors=types.SimpleNamespace(ResourceExhaustedError=()),  # nothing raises it
  )
  modules = shuffle, extractor
  before = [module.tf for module in modules]
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  more = soft + shuffle.BUCKETS_NUMBER
  if hard != resource.RLIM_INFINITY:
    more = min(more, hard)
  resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
  for module in modules:
    module.tf = stand_in
  try:
    yield
  finally:
    for module, tensorflow in zip(modules, before, strict=True):
      module.tf = tensorflow
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _read_pairs(
  builder: Any, paths: tuple[pathlib.Path, ...], languages: tuple[str, str]
) -> Iterator[Pair]:
  """Yields the pairs shard by shard, without a CR at the end of a sentence."""
  from google.protobuf.message import DecodeError
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString
  start = 0
  shards = zip(paths, builder.info.splits['train'].shard_lengths, strict=True)
  for path, count in shards:
    # One shard at a time, because tfds never closes a shard that it has opened.
    if builder.info.file_format.value == 'tfrecord':
      records = _tfrecords(path)
    else:
      records = _array_records(builder, f'train[{start}:{start + count}]')
    number = 0
    try:
      for record in records:
        number += 1
        texts = parse(record).features.feature
        values = (texts[language].bytes_list.value[0] for language in languages)
        yield tuple(value.decode().removesuffix('\r') for value in values)
      if number != count:
        raise ValueError(f'{number:,} of {count:,} pairs')
    except (RuntimeError, IndexError, ValueError, DecodeError, OSError) as error:
      raise UserError(f'{path}: missing or damaged ({error}): {WAYS}') from error
    start += count


def _array_records(builder: Any, split: str) -> Iterator[bytes]:
  """Yields the records of a part of a split, such as 'train[0:9]'."""
  from tensorflow_datasets import decode

  # Parsing the records ourselves is four times as fast as tfds's decoding.
  raw = decode.DeserializeMethod.RAW_BYTES
  records = builder.as_data_source(split, deserialize_method=raw)
  for start in range(0, len(records), _BATCH):
    yield from records.__getitems__(range(start, min(start + _BATCH, len(records))))


def _tfrecords(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the records of a TFRecord file, whose format is so plain that we read it.

  A record is its length in 8 bytes, 4 bytes of checksum, the content, and 4 bytes of
  checksum. The checksums are not compared.
  """
  with path.open('rb') as file:
    while head := file.read(12):
      size = int.from_bytes(head[:8], 'little')
      content = file.read(size + 4)
      if len(content) != size + 4:
        raise ValueError('it ends within a record')
      yield content[:-4]
