"""WMT14's training text: from TensorFlow Datasets, or Hugging Face's Parquet files.

A folder that tfds has prepared is read in place. Without one, tfds downloads
WMT14 and prepares it as array_record, without TensorFlow. That takes several GB of
memory for de-en and tens of GB for fr-en.

Dev and test come from sacreBLEU, which has them in their official order; tfds shuffles
them. tfds and pyarrow are imported inside functions: the imports take a second, and
other readers do not need them.
"""

import functools
import os
import pathlib
import re
import resource
import types
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from transformer_jax.config import Files
from transformer_jax.data import text
from transformer_jax.data.corpus import SPLITS, WMT14, languages
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import sources
from transformer_jax.prepare.sources import Pair, Source, Sources

# Training pairs with text on both sides, by Hugging Face's card. tfds also counts lines
# of white space alone: its catalogue has 161 more for fr-en.
COUNTS = {'de-en': 4_508_785, 'fr-en': 40_836_715}

WAYS = (
  'try again later, remove a damaged folder to have it prepared again, name '
  "a folder with text files or Hugging Face's Parquet files by --raw_dir, or one that "
  'tfds has prepared by --tfds_data_dir'
)

# Records read at once. Reading them one by one is a hundred times slower.
_BATCH = 4096

_PARQUET = re.compile(r'train-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?\.parquet')


def read_splits(
  config: ConfigDict, raw_dir: pathlib.Path | None, tfds_data_dir: pathlib.Path | None
) -> Sources:
  """Returns WMT14's text, from `raw_dir` if it is given, else from tfds.

  `raw_dir` holds Hugging Face's Parquet files, or files of text. Where training text
  is of tfds or Parquet, dev and test are files of `raw_dir`, or those of sacreBLEU.

  Raises:
    UserError: the text is missing, or the config names other files of training.
  """
  paths, pair = [], languages(config)
  if raw_dir is not None:
    paths = parquet_files(sources.check_folder(config, raw_dir), pair)
    if not paths and tfds_data_dir is None:
      return sources.from_files(config, raw_dir)
  if tuple(config.data.files.train) != Files().train or config.data.suffix:
    raise UserError(
      'config.data.files.train and config.data.suffix have no effect where WMT14 comes '
      'from tensorflow-datasets or Parquet files: leave them out, or give a --raw_dir '
      'with files of text'
    )
  # First, for a download of training text may take an hour.
  held_out = {
    split: [_held_out(stem, pair, raw_dir) for stem in config.data.files[split]]
    for split in SPLITS[1:]
  }
  read = lambda path: functools.partial(parquet_pairs, path, pair)
  train = [Source(path.name, (path,), read(path)) for path in paths]
  return {'train': train or [tfds_source(pair, tfds_data_dir)]} | held_out


def _held_out(stem: str, pair: tuple[str, str], raw_dir: pathlib.Path | None) -> Source:
  """Returns the dev or test set `stem` of `raw_dir`, or sacreBLEU's."""
  if raw_dir and sources.is_there(raw_dir, stem, pair):
    return sources.file_source(raw_dir, stem, pair)
  return sources.sacrebleu_source(WMT14.get(stem, stem), pair)


# Hugging Face's Parquet files


def parquet_files(
  raw_dir: pathlib.Path, languages: tuple[str, str]
) -> list[pathlib.Path]:
  """Returns the files of training text, in the order of their numbers, or [].

  A file is called train-00000-of-00003.parquet, say. It is in the folder itself, or in
  its folder of the two languages, such as de-en.

  Raises:
    UserError: a file is missing, or they are of several uploads.
  """
  for folder in ('-'.join(languages), '-'.join(languages[::-1]), '.'):
    paths = sorted((raw_dir / folder).glob('train-*.parquet'))
    names = [_PARQUET.fullmatch(path.name) for path in paths]
    if paths and all(names):
      numbers = [(int(name[1]), int(name[2])) for name in names if name]
      if numbers != [(n, len(paths)) for n in range(len(paths))]:
        raise UserError(
          f'{paths[0].parent}: {", ".join(path.name for path in paths)} are not all '
          'of one upload: get what is missing, and keep one set of files'
        )
      return paths
  return []


def parquet_pairs(path: pathlib.Path, languages: tuple[str, str]) -> Iterator[Pair]:
  """Yields the pairs of the column `translation`; None if null or not UTF-8."""
  import pyarrow  # of an extra
  from pyarrow import dataset

  # As bytes: a string that is not UTF-8 would end the reading.
  binary = lambda code: dataset.field('translation', code).cast(pyarrow.large_binary())
  columns = {language: binary(language) for language in languages}
  decode = lambda line: None if line is None else text.decode_line(line)
  try:
    for batch in dataset.dataset(path, format='parquet').to_batches(columns=columns):
      texts = (map(decode, column.to_pylist()) for column in batch.columns)
      yield from zip(*texts, strict=True)
  except (pyarrow.ArrowException, OSError) as error:
    raise UserError(
      f'{path}: damaged, or no WMT14 in {" and ".join(languages)} ({error}); get it '
      'again'
    ) from error


# TensorFlow Datasets


def tfds_source(
  languages: tuple[str, str], tfds_data_dir: pathlib.Path | None = None
) -> Source:
  """Returns the training text of WMT14; tfds downloads and prepares it if needed.

  Raises:
    UserError: WMT14 has no such languages, or cannot be prepared, or is incomplete.
  """
  config = next((c for c in COUNTS if {*c.split('-')} == {*languages}), None)
  if config is None:
    raise UserError(
      f'{"-".join(languages)}: tfds has WMT14 in {" and ".join(COUNTS)}, either way'
    )
  builder = _prepared_builder(config, tfds_data_dir)
  info = builder.info.splits.get('train')
  if info is None or info.num_examples < COUNTS[config]:
    raise UserError(
      f'{builder.data_dir} does not have the {COUNTS[config]:,} training pairs of '
      f'WMT14 {config}: {WAYS}'
    )
  paths = tuple(pathlib.Path(path) for path in info.filepaths)
  read = functools.partial(_tfds_pairs, builder, paths, languages)
  return Source(f'{builder.info.full_name} train', paths, read)


def _prepared_builder(config: str, folder: pathlib.Path | None) -> Any:
  """Returns tfds's builder of WMT14, whose folder has been prepared."""
  from google.protobuf import json_format
  from tensorflow_datasets import download
  from tensorflow_datasets.core.download import download_manager, extractor
  from tensorflow_datasets.translate import wmt14

  _replace_tensorflow()
  faults = (
    download.DownloadError,
    download_manager.NonMatchingChecksumError,
    extractor.ExtractError,
    json_format.ParseError,
  )
  # Google's copy has another format, and asking for it can take minutes.
  settings = download.DownloadConfig(try_download_gcs=False)
  build = lambda: wmt14.Wmt14Translate(config=config, data_dir=folder)
  try:
    builder = build()
    if builder.data_path.exists():
      return builder
    root = pathlib.Path(builder.data_dir_root)
    root.mkdir(parents=True, exist_ok=True)
    with files.exclusive(root / f'{builder.name}.lock', f'prepares WMT14 in {root}'):
      builder = build()  # the other process may have prepared it
      builder.download_and_prepare(file_format='array_record', download_config=settings)
  except (*faults, AssertionError, RuntimeError, ValueError, OSError) as error:
    raise UserError(f'tfds cannot get WMT14 ({error}): {WAYS}') from error
  return builder


def _replace_tensorflow() -> None:
  """Lets tfds prepare a data set without TensorFlow.

  tfds 4.9.10 needs tf.io.gfile only to unpack archives and to shuffle more than a
  gigabyte; Python's own files stand in for it. Such a shuffle opens a thousand files at
  once, so the limit on open files is raised by as many.
  """
  from tensorflow_datasets.core import shuffle
  from tensorflow_datasets.core.download import extractor

  gfile = types.SimpleNamespace(GFile=open, exists=os.path.exists, remove=os.remove)
  shuffle.tf = extractor.tf = types.SimpleNamespace(
    io=types.SimpleNamespace(gfile=gfile),
    compat=types.SimpleNamespace(as_text=str),
    errors=types.SimpleNamespace(ResourceExhaustedError=()),  # nothing raises it
  )
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  more = soft + shuffle.BUCKETS_NUMBER
  more = more if hard == resource.RLIM_INFINITY else min(more, hard)
  resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))


def _tfds_pairs(
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
