"""tfds downloads and prepares WMT14: without TensorFlow, and without waiting for ever.

tfds is imported inside functions, as in wmt14_tfds.py.
"""

import contextlib
import json
import os
import pathlib
import resource
import types
from collections.abc import Iterator
from typing import Any

from transformer_jax.data import downloads
from transformer_jax.machine.errors import UserError

RETRIES = 3  # of a connection; tfds's own 10 take 205 s

WAYS_OUT = (
  "name a folder with these archives, with Hugging Face's Parquet files or with text "
  'files by --raw_dir, or one that tfds has prepared by --tfds_data_dir'
)


def prepare(builder: Any) -> None:
  """Downloads what is missing of WMT14's archives, and writes them as array_record.

  Raises:
    UserError: something could not be downloaded or written; the message names it.
  """
  from tensorflow_datasets import download
  from tensorflow_datasets.core.download import download_manager, extractor

  name = builder.info.full_name
  if dead := downloads.unanswered(_to_download(builder)):
    raise UserError(
      f'{name} cannot be downloaded, {downloads.describe(dead)}: try again later, or '
      f'{WAYS_OUT}'
    )
  # Google's copy is of another format; to ask for it can take minutes.
  settings = download.DownloadConfig(try_download_gcs=False)
  try:
    with _files_without_tensorflow(), _limited_downloads():
      builder.download_and_prepare(file_format='array_record', download_config=settings)
  except download_manager.NonMatchingChecksumError as error:
    raise UserError(
      f'{name} could not be downloaded ({error}). Try again later, or {WAYS_OUT}'
    ) from error
  except extractor.ExtractError as error:
    raise UserError(
      f'{builder.data_dir} could not be prepared ({error}). Delete the archive that it '
      f'names, to have it downloaded again, or {WAYS_OUT}'
    ) from error
  except (OSError, RuntimeError) as error:
    raise UserError(f'{builder.data_dir} could not be prepared ({error})') from error


def _to_download(builder: Any) -> list[str]:
  """The addresses of the archives that tfds does not have yet."""
  from tensorflow_datasets.core.download import checksums
  from tensorflow_datasets.translate import wmt

  folder = pathlib.Path(builder.data_dir_root) / 'downloads'
  known = checksums.get_all_url_infos()
  there = set()
  for about in folder.rglob('*.INFO'):
    if about.with_suffix('').is_file():
      there |= {*json.loads(about.read_text())['urls']}
  language = builder.builder_config.language_pair[0]
  parts = [part for names in builder.subsets.values() for part in names]
  urls = [url for part in parts for url in wmt.DATASET_MAP[part].get_url(language)]
  return [
    url
    for url in urls
    if url not in there
    and not (url in known and (folder / 'manual' / known[url].filename).is_file())
  ]


@contextlib.contextmanager
def _limited_downloads() -> Iterator[None]:
  """Lets no download of tfds wait for ever, and names the archive of one that fails."""
  import requests
  from tensorflow_datasets import download
  from tensorflow_datasets.core.download import downloader

  before = downloader._open_url, downloader.MAX_RETRIES

  @contextlib.contextmanager
  def opened(url: str, verify: bool) -> Iterator[Any]:
    try:
      with before[0](url, verify=verify, timeout=downloads.STALLED) as answer:
        yield answer
    except (requests.RequestException, download.DownloadError) as error:
      raise UserError(
        f'{url} was not downloaded whole ({error}). Start again, which keeps the '
        f'archives that are there, or {WAYS_OUT}'
      ) from error

  downloader._open_url, downloader.MAX_RETRIES = opened, RETRIES
  try:
    yield
  finally:
    downloader._open_url, downloader.MAX_RETRIES = before


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
  wanted = soft + shuffle.BUCKETS_NUMBER
  if hard != resource.RLIM_INFINITY:
    wanted = min(wanted, hard)
  resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
  for module in modules:
    module.tf = stand_in
  try:
    yield
  finally:
    for module, tensorflow in zip(modules, before, strict=True):
      module.tf = tensorflow
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
