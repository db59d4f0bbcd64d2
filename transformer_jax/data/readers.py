"""Which door a corpus comes in by: tfds, archives, Parquet, files, or the package."""

import pathlib

from transformer_jax.data import archives, embedded, parquet, text_files, wmt14_tfds
from transformer_jax.data.card import SPLITS
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.lines import Bitext


def bitexts(
  corpus: Corpus, raw_dir: pathlib.Path | None, tfds_data_dir: pathlib.Path | None
) -> dict[str, list[Bitext]]:
  """The parts of every split.

  A corpus whose `reader` is 'embedded' is made; 'files' reads `raw_dir`; 'wmt14' what
  `raw_dir` holds, be it WMT's archives, Hugging Face's Parquet or plain files, or else
  tensorflow-datasets.

  Raises:
    ValueError: the reader is none of these, or needs a folder.
    FileNotFoundError: what the folder should hold is not there.
  """
  if corpus.reader == 'embedded':
    return embedded.bitexts(*corpus.languages, corpus.corpus_seed)
  if corpus.reader not in ('files', 'wmt14'):
    raise ValueError(f"reader={corpus.reader!r}: 'wmt14', 'files' or 'embedded'")
  if corpus.reader == 'wmt14' and raw_dir is None:
    return wmt14_tfds.bitexts(*corpus.languages, tfds_data_dir)
  if raw_dir is None:
    raise ValueError(f'{corpus.name} is not prepared: give --raw_dir')
  if not raw_dir.is_dir():
    raise FileNotFoundError(f'{raw_dir}: no such folder (--raw_dir)')
  if corpus.reader == 'wmt14':
    kind = _kind(raw_dir)
    if kind == 'archives':
      return archives.bitexts(raw_dir, *corpus.languages)
    if kind == 'Parquet':
      return parquet.bitexts(raw_dir, *corpus.languages)
    first = corpus.files['train'][0] + corpus.suffix
    if not any(raw_dir.glob(f'{first}.*')):
      raise FileNotFoundError(
        f"{raw_dir} (--raw_dir) holds none of WMT14's archives, such as "
        f'{next(iter(archives.ARCHIVES))}, no Parquet files, and no text '
        f'{first}.{corpus.languages[0]}'
      )
  return {
    split: text_files.bitexts(
      raw_dir, [stem + corpus.suffix for stem in corpus.files[split]], *corpus.languages
    )
    for split in SPLITS
  }


def _kind(raw_dir: pathlib.Path) -> str:
  """What a folder of WMT14 holds.

  Raises:
    ValueError: archives and Parquet files at once.
  """
  found = []
  if any((raw_dir / name).exists() for name in archives.ARCHIVES):
    found.append('archives')
  if next(raw_dir.rglob('*.parquet'), None):
    found.append('Parquet')
  if len(found) > 1:
    raise ValueError(f'{raw_dir} holds archives and Parquet: give a folder with one')
  return found[0] if found else 'files'
