"""Prepares a config's corpus: vocabulary, token files, card.

python -m scripts.prepare_data --config=configs/base.py:en-de [--raw_dir=DIR]
python -m scripts.prepare_data --verify=data/wmt14.en-de
"""

import pathlib

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from transformer_jax.data import card, preparing
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
  """The folder of the config's prepared corpus, made now if it is not there."""
  given = (DATA_DIR.value, RAW_DIR.value, TFDS_DATA_DIR.value)
  return preparing.prepare(config, *(path and pathlib.Path(path) for path in given))


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
