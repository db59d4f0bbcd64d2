"""Prepares a config's corpus: vocabulary, token files, card.

python -m scripts.prepare_data --config=configs/base.py:en-de [--raw_dir=DIR]
python -m scripts.prepare_data --verify=data/wmt14.en-de
"""

import pathlib

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from transformer_jax.data import card, cleaning, corpus, preparing, readers
from transformer_jax.machine import errors

DATA_DIR = flags.DEFINE_string('data_dir', 'data', 'Where prepared corpora live.')
RAW_DIR = flags.DEFINE_string(
  'raw_dir',
  None,
  "Folder with what to prepare from, instead of tfds: WMT14's archives, Parquet, or "
  'files of text, one sentence a line.',
)
TFDS_DATA_DIR = flags.DEFINE_string(
  'tfds_data_dir', None, 'Where tensorflow-datasets has or puts its data sets.'
)


def prepare(config: ml_collections.ConfigDict) -> pathlib.Path:
  """The folder of the config's prepared corpus, made now if it is not there.

  Raises:
    ValueError: it is there, and was made of something else than is asked for.
  """
  data_dir = pathlib.Path(DATA_DIR.value)
  folder, corpus = data_dir / config.corpus, asked(config)
  if folder.is_dir():
    check(config, folder)
  else:
    given = (RAW_DIR.value, TFDS_DATA_DIR.value)
    raw_dir, tfds_data_dir = (path and pathlib.Path(path) for path in given)
    preparing.prepare(corpus, readers.bitexts(corpus, raw_dir, tfds_data_dir), data_dir)
  return folder


def check(config: ml_collections.ConfigDict, folder: pathlib.Path) -> None:
  """Raises ValueError if the folder was made of something else than is asked for."""
  made_of = asked(config).as_json()
  del made_of['name']  # a folder may be moved
  card.check_asked(folder, made_of)


def asked(config: ml_collections.ConfigDict) -> corpus.Corpus:
  """What of a config decides how its corpus comes out."""
  return corpus.Corpus(
    name=config.corpus,
    reader=config.reader,
    source_language=config.source_language,
    target_language=config.target_language,
    files=config.files.to_dict(),
    suffix=config.suffix,
    cleaning=cleaning.Cleaning(**config.cleaning.to_dict()),
    train_pairs=config.train_pairs,
    vocab_size=config.model.vocab_size,
    vocabulary_pairs=config.vocabulary_pairs,
    character_coverage=config.character_coverage,
    byte_fallback=config.byte_fallback,
    max_length=config.max_length,
    corpus_seed=config.corpus_seed,
  )


def main(_: list[str]) -> None:
  if VERIFY.value is None:
    if CONFIG.value is None:
      raise app.UsageError('give --config, or --verify and a prepared folder')
    print(prepare(CONFIG.value))
  else:
    card.verify(pathlib.Path(VERIFY.value))
    print(f'{VERIFY.value} is as its card says')


if __name__ == '__main__':
  CONFIG = config_flags.DEFINE_config_file('config', None, 'Whose corpus to prepare.')
  VERIFY = flags.DEFINE_string(
    'verify', None, 'Only checks this prepared folder against its card.'
  )
  errors.run(main)
