"""Picks the reader of a corpus of translations: tfds, archives, Parquet or files."""

import pathlib
from collections.abc import Callable, Sequence

from transformer_jax.data import (
  archives,
  drawn,
  parquet,
  sacrebleu_sets,
  text_files,
  wmt14_tfds,
  zips,
)
from transformer_jax.data.card import SPLITS
from transformer_jax.data.corpus import TREES_ALONE, Corpus
from transformer_jax.data.lines import Bitext
from transformer_jax.machine.errors import UserError

# The files that configs/base.py names: those of WMT14, where it is files of text.
WMT14_FILES = {
  'train': ('train',),
  'dev': ('newstest2013',),
  'test': ('newstest2014',),
}


def bitexts(
  corpus: Corpus, raw_dir: pathlib.Path | None, tfds_data_dir: pathlib.Path | None
) -> dict[str, list[Bitext]]:
  """The bitexts of every split.

  The reader 'files' reads text files in `raw_dir`, two files in a zip file, and sets of
  sacreBLEU, and draws dev and test from train. 'wmt14' takes what `raw_dir` holds,
  which is WMT's archives, Hugging Face's Parquet files, or what 'files' reads; without
  `raw_dir` it takes tensorflow-datasets.

  Raises:
    UserError: the reader needs a folder, or the folder does not hold what it should.
  """
  if corpus.reader == 'wmt14' and raw_dir is None:
    _refuse_named_files(corpus, 'tensorflow-datasets')
    return wmt14_tfds.bitexts(*corpus.languages, tfds_data_dir)
  raw_dir = check_folder(corpus, raw_dir)
  if corpus.reader == 'wmt14':
    kind = _kind(raw_dir, corpus.languages)
    if kind != 'files':
      _refuse_named_files(corpus, f'the {kind} in {raw_dir}')
    if kind == 'archives':
      return archives.bitexts(raw_dir, *corpus.languages)
    if kind == 'Parquet':
      return parquet.bitexts(raw_dir, *corpus.languages)
    first = corpus.files['train'][0] + corpus.suffix
    texts = (text_files.there(raw_dir, f'{first}.{end}') for end in corpus.languages)
    if not any(texts) and not (raw_dir / f'{first}.zip').is_file():
      raise UserError(
        f"{raw_dir} (--raw_dir) holds none of WMT14's archives, such as "
        f'{next(iter(archives.ARCHIVES))}, no {parquet.EXAMPLE} (there or in a folder '
        f'{"-".join(corpus.languages)}), and no text {first}.{corpus.languages[0]}'
      )
  held_out = {split: corpus.files[split] for split in SPLITS[1:]}
  drawn_splits = {s: stems[0] for s, stems in held_out.items() if _is_drawn(s, stems)}
  found = {
    split: [_named(stem, corpus, raw_dir) for stem in corpus.files[split]]
    for split in SPLITS
    if split not in drawn_splits
  }
  if drawn_splits:
    draw = drawn.Draw(found['train'], drawn_splits, corpus.cleaning, corpus.seed)
    found['train'] = draw.rest()
    found |= {split: [draw.bitext(split)] for split in drawn_splits}
  return found


def check_folder(corpus: Corpus, raw_dir: pathlib.Path | None) -> pathlib.Path:
  """The folder of the raw text; UserError if there is none."""
  if raw_dir is None:
    raise UserError(
      f'{corpus.name} is not prepared in --data_dir: give --raw_dir to prepare it'
    )
  if not raw_dir.is_dir():
    raise UserError(f'{raw_dir}: no such folder (--raw_dir)')
  return raw_dir


def _refuse_named_files(corpus: Corpus, whence: str) -> None:
  """Raises UserError if a config names other files than WMT14's, which are not read."""
  stems = {split: tuple(named) for split, named in corpus.files.items()}
  if stems != WMT14_FILES or corpus.suffix:
    raise UserError(
      f'WMT14 comes from {whence}, where config.data.files and config.data.suffix '
      'choose nothing: leave them out, or give a --raw_dir with files of text'
    )


def _is_drawn(split: str, stems: Sequence[str]) -> bool:
  drawn_ones = [stem for stem in stems if stem.startswith(drawn.PREFIX)]
  if drawn_ones and len(stems) > 1:
    raise UserError(
      f'files.{split}={tuple(stems)}: what is drawn stands alone, such as '
      f"('{drawn_ones[0]}',)"
    )
  return bool(drawn_ones)


def target(corpus: Corpus) -> Callable[[str], str]:
  """The map from a translation to the text that the model learns to write: itself.

  Raises UserError if a setting for trees is used.
  """
  for key, plain in TREES_ALONE.items():
    if getattr(corpus, key) != plain:
      raise UserError(f'--config.data.{key}={not plain}: only trees have such lines')
  return lambda line: line


def _named(stem: str, corpus: Corpus, raw_dir: pathlib.Path) -> Bitext:
  """The bitext that a config calls `stem`."""
  if stem.startswith(sacrebleu_sets.PREFIX):
    return sacrebleu_sets.bitext(stem, *corpus.languages)
  stem += corpus.suffix
  zipped = raw_dir / f'{stem}.zip'
  if not zipped.is_file():
    return text_files.bitext(raw_dir, stem, *corpus.languages)
  for language in corpus.languages:
    for path in text_files.there(raw_dir, f'{stem}.{language}'):
      raise UserError(f'{raw_dir} has {zipped.name} and {path.name}: keep one of them')
  return zips.bitext(zipped, *corpus.languages)


def _kind(raw_dir: pathlib.Path, languages: tuple[str, str]) -> str:
  """What a folder of WMT14 holds; UserError for archives and Parquet files at once."""
  found = []
  if any((raw_dir / name).exists() for name in archives.ARCHIVES):
    found.append('archives')
  if parquet.in_folder(raw_dir, languages):
    found.append('Parquet')
  if len(found) > 1:
    raise UserError(f'{raw_dir} holds archives and Parquet: give a folder with one')
  return found[0] if found else 'files'
