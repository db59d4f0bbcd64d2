"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

The work is done in NAME.partial, whose folder `corpus` is renamed to NAME when all is
there: a folder NAME is always whole. Clean text and vocabulary are made once: each has
a marker that is written when it is done, so that a preparation that was stopped goes
on with them, if its corpus and input are still the same. What follows is made again.
Training text is never held in memory whole.
"""

import contextlib
import errno
import fcntl
import importlib.metadata
import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import ml_collections

from transformer_jax.data import (
  card,
  cleaning,
  encoding,
  held_out,
  readers,
  vocabulary,
)
from transformer_jax.data.corpus import Corpus, asked
from transformer_jax.data.lines import SIDES, Bitext
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

Splits = Mapping[str, Sequence[Bitext]]


def prepare(
  config: ml_collections.ConfigDict,
  data_dir: pathlib.Path,
  raw_dir: pathlib.Path | None = None,
  tfds_data_dir: pathlib.Path | None = None,
) -> pathlib.Path:
  """The folder of a config's prepared corpus, which is made if it is not there.

  Args:
    data_dir: where prepared corpora live.
    raw_dir: where the raw text lies, for readers that need a folder.
    tfds_data_dir: where tensorflow-datasets has or puts its data sets.

  Raises:
    UserError: the folder was prepared from something else than the config asks for.
  """
  corpus = asked(config)
  folder = data_dir / corpus.name
  if folder.is_dir():
    card.check_asked(folder, corpus)
  else:
    prepare_corpus(corpus, readers.bitexts(corpus, raw_dir, tfds_data_dir), data_dir)
  return folder


def prepare_corpus(corpus: Corpus, splits: Splits, data_dir: pathlib.Path) -> None:
  """Writes data_dir/NAME from the bitexts of all splits, whole or not at all.

  Raises:
    UserError, OSError: the input is bad, or cannot be read or written. The message says
      where and what to do.
  """
  final, partial = (data_dir / f'{corpus.name}{end}' for end in ('', '.partial'))
  data_dir.mkdir(parents=True, exist_ok=True)
  with _locked(data_dir / f'{corpus.name}.lock'), _full_disk_explained(final, partial):
    if not final.is_dir():  # the process that had the lock may have made it
      folder = _begin(corpus, splits, partial)
      _run_stages(corpus, splits, partial, folder)
      for path in folder.iterdir():
        files.sync(path)
      folder.rename(final)
    if partial.is_dir():
      shutil.rmtree(partial)


def _run_stages(
  corpus: Corpus, splits: Splits, partial: pathlib.Path, folder: pathlib.Path
) -> None:
  """Fills `folder`, with what is left of a stopped preparation in `partial`."""
  # Dev and test are read first, so that their errors show before the long work.
  held_out_text = {
    split: held_out.read(
      split, splits[split], corpus.languages, reorder=corpus.reader == 'wmt14'
    )
    for split in card.SPLITS[1:]
  }
  texts = [partial / f'text.{side}' for side in SIDES]
  clean = _once(
    partial / 'text.json', lambda: _clean_text(corpus, splits['train'], texts)
  )
  learnt = _once(
    partial / 'pieces.json',
    lambda: _vocabulary(corpus, texts, clean['kept'], folder / 'vocabulary.model'),
  )
  words = vocabulary.Vocabulary(folder / 'vocabulary.model')
  entries = {'train': _token_files(corpus, texts, clean, words, folder)}
  for split, (pairs, origin) in held_out_text.items():
    entries[split] = origin | held_out.write(folder, split, pairs, words)
  entry = {'sha256': words.sha256, 'pieces': len(words), **learnt}
  versions = {'sentencepiece': importlib.metadata.version('sentencepiece')}
  made = {'vocabulary': entry, 'splits': entries, 'versions': versions}
  card.write_card(folder, corpus.as_json() | made)


def _clean_text(
  corpus: Corpus, bitexts: Sequence[Bitext], texts: list[pathlib.Path]
) -> dict:
  """The first stage: all good training pairs as text."""
  clean = cleaning.write_clean_text(
    bitexts, texts, corpus.languages, corpus.cleaning, corpus.train_pairs
  )
  for path in texts:
    files.sync(path)
  if not clean['kept']:
    raise UserError(f'no training pair of {corpus.name} is left: {clean["dropped"]}')
  return clean


def _vocabulary(
  corpus: Corpus, texts: list[pathlib.Path], pairs: int, path: pathlib.Path
) -> dict:
  """The second stage: pieces learnt from a sample of the clean text."""
  wanted = min(pairs, corpus.vocabulary_pairs)
  print(f'learning {corpus.vocab_size:,} pieces from {wanted:,} pairs', file=sys.stderr)
  return vocabulary.train(
    vocabulary.sample_lines(texts, pairs, wanted, corpus.corpus_seed),
    path,
    corpus.vocab_size,
    corpus.character_coverage,
    corpus.byte_fallback,
  )


def _token_files(
  corpus: Corpus,
  texts: list[pathlib.Path],
  clean: dict,
  words: vocabulary.Vocabulary,
  folder: pathlib.Path,
) -> dict:
  """The third stage: training text in tokens; returns the card's entry on training."""
  sides = [folder / f'train.{side}' for side in SIDES]
  done = encoding.encode(words, texts, sides, corpus.max_length, clean['kept'])
  if not done.kept:
    raise UserError(
      f'every training pair is over max_length={corpus.max_length} tokens'
    )
  dropped = clean['dropped']
  if done.read > done.kept:
    dropped = dropped | {f'over {corpus.max_length} tokens': done.read - done.kept}
  return clean | {
    'kept': done.kept,
    'dropped': dropped,
    'tokens': dict(zip(SIDES, done.tokens, strict=True)),
    'longest': dict(zip(SIDES, done.longest, strict=True)),
  }


def _begin(corpus: Corpus, splits: Splits, partial: pathlib.Path) -> pathlib.Path:
  """The folder to be filled; what is left of another corpus or input is deleted."""
  stamps = {name: [b.stamp() for b in bitexts] for name, bitexts in splits.items()}
  begun_with = json.loads(json.dumps({'corpus': corpus.as_json(), 'stamps': stamps}))
  marker, folder = partial / 'begun.json', partial / 'corpus'
  # A process that was killed while it deleted NAME.partial has left no such folder.
  goes_on = marker.is_file() and folder.is_dir()
  if not goes_on or json.loads(marker.read_text()) != begun_with:
    if partial.exists():
      shutil.rmtree(partial)
    folder.mkdir(parents=True)
    files.write(marker, json.dumps(begun_with))
  return folder


def _once(marker: pathlib.Path, stage: Callable[[], dict]) -> dict:
  """What a stage returns; it is run unless its marker says that it is done."""
  if not marker.is_file():
    files.write(marker, json.dumps(stage()))
  return json.loads(marker.read_text())


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Waits until no other process prepares the same corpus."""
  with path.open('w') as file:
    say = lambda text: print(text, file=sys.stderr)
    clash = lambda error: say(f'{path}: no lock ({error}); two at once would clash')
    if not files.take_lock(file, fcntl.LOCK_EX, clash):
      say(f'waiting for another process that prepares {path.stem}')
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


@contextlib.contextmanager
def _full_disk_explained(final: pathlib.Path, partial: pathlib.Path) -> Iterator[None]:
  """Adds what to do to the error of a full disk."""
  try:
    yield
  except OSError as error:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
      raise
    raise OSError(
      error.errno,
      f'{error.strerror} while preparing {final}: make room and start again; it goes '
      f'on from what is there. What could not be written',
      error.filename or str(partial),
    ) from error
