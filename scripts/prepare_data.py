"""Prepares a config's corpus: vocabulary, token files, card.

python -m scripts.prepare_data --config=configs/multi30k.py:en-de --raw_dir=DIR
"""

import pathlib

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from transformer_jax import corpora

DATA_DIR = flags.DEFINE_string('data_dir', 'data', 'Where prepared corpora live.')
RAW_DIR = flags.DEFINE_string(
  'raw_dir', None, 'Folder of text files to prepare from, one sentence a line.'
)


def prepare(config: ml_collections.ConfigDict) -> pathlib.Path:
  """The folder of the config's prepared corpus, made now if it is not there."""
  data_dir = pathlib.Path(DATA_DIR.value)
  folder = data_dir / config.corpus
  if not folder.is_dir():
    corpus = corpora.Corpus(
      name=config.corpus,
      source_language=config.source_language,
      target_language=config.target_language,
      vocab_size=config.model.vocab_size,
      max_length=config.max_length,
      corpus_seed=config.corpus_seed,
    )
    corpora.prepare(corpus, _read(config), data_dir)
  return folder


def _read(config: ml_collections.ConfigDict) -> dict[str, corpora.Text]:
  languages = config.source_language, config.target_language
  if config.reader == 'embedded':
    return corpora.embedded(*languages, config.corpus_seed)
  if config.reader != 'files':
    raise app.UsageError(f"reader={config.reader!r}: 'files' or 'embedded'")
  if RAW_DIR.value is None:
    raise app.UsageError(f'{config.corpus} is not prepared: give --raw_dir')
  raw_dir = pathlib.Path(RAW_DIR.value)
  return {
    split: corpora.read_files(raw_dir, stem + config.suffix, *languages)
    for split, stem in config.files.items()
  }


def main(_: list[str]) -> None:
  print(prepare(CONFIG.value))


if __name__ == '__main__':
  CONFIG = config_flags.DEFINE_config_file('config', None, 'Whose corpus to prepare.')
  flags.mark_flags_as_required(['config'])
  app.run(main)
