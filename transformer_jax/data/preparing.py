"""From a corpus's bitexts to its prepared folder, in stages that a kill cannot spoil.

Work goes on in NAME.partial, whose folder `corpus` becomes NAME in one step when all is
there. A stage that ended is not done again: cleaned text, vocabulary, token files. What
a folder was begun with (the corpus, the stamps of its input) stands in it; with
anything else it is begun anew. Nothing is ever held whole but dev and test.
"""

import contextlib
import errno
import fcntl
import importlib.metadata
import json
import pathlib
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import ml_collections
from tqdm import tqdm

from transformer_jax.data import (
  card,
  encoding,
  held_out,
  languages,
  readers,
  vocabulary,
)
from transformer_jax.data.card import SPLITS, write_card
from transformer_jax.data.cleaning import fault
from transformer_jax.data.corpus import Corpus, asked
from transformer_jax.data.lines import SIDES, Bitext
from transformer_jax.machine import files

# So many pairs tell which language a side is in.
_ENOUGH_PAIRS = 1_000


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
    ValueError: the folder was prepared from something else than the config asks for.
  """
  corpus = asked(config)
  folder = data_dir / corpus.name
  if folder.is_dir():
    card.check_asked(folder, corpus)
  else:
    prepare_corpus(corpus, readers.bitexts(corpus, raw_dir, tfds_data_dir), data_dir)
  return folder


def prepare_corpus(
  corpus: Corpus, splits: dict[str, list[Bitext]], data_dir: pathlib.Path
) -> None:
  """Writes data_dir/NAME from the bitexts of all splits, whole or not at all.

  Raises:
    ValueError, OSError: the input is bad, or cannot be read or written; the message
      says where and what to do. What had been done by then is gone on with next time.
  """
  final, partial = (data_dir / f'{corpus.name}{end}' for end in ('', '.partial'))
  data_dir.mkdir(parents=True, exist_ok=True)
  with _alone(data_dir / f'{corpus.name}.lock'), _room(final, partial):
    if not final.is_dir():  # or else the process that was waited for has made it
      _begin(corpus, splits, partial)
      _make(corpus, splits, partial)
      for path in _made(partial).iterdir():
        files.sync(path)
      _made(partial).rename(final)
    if partial.is_dir():
      shutil.rmtree(partial)


def _make(
  corpus: Corpus, splits: dict[str, list[Bitext]], partial: pathlib.Path
) -> None:
  """All stages, or those that are left."""
  folder = _made(partial)
  whole = {
    split: held_out.read(
      split, splits[split], corpus.languages, reorder=corpus.reader == 'wmt14'
    )
    for split in SPLITS[1:]
  }
  text = _once(partial / 'text.json', lambda: _text(corpus, splits['train'], partial))
  learnt = _once(partial / 'pieces.json', lambda: _pieces(corpus, text, partial))
  words = vocabulary.Vocabulary(folder / 'vocabulary.model')
  about = {'train': _encoded_train(corpus, words, text, partial)}
  for split, (pairs, origin) in whole.items():
    about[split] = origin | held_out.write(folder, split, pairs, words)
  write_card(
    folder,
    corpus.as_json()
    | {
      'vocabulary': {'sha256': words.sha256, 'pieces': len(words), **learnt},
      'splits': about,
      'versions': {'sentencepiece': importlib.metadata.version('sentencepiece')},
    },
  )


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[None]:
  """Waits until no other process prepares the same corpus."""
  with path.open('w') as file:
    say = lambda text: print(text, file=sys.stderr)
    clash = lambda error: say(f'{path}: no lock ({error}); two at once would clash')
    if not files.take_lock(file, fcntl.LOCK_EX, clash):
      say(f'waiting for another process that prepares {path.stem}')
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


@contextlib.contextmanager
def _room(final: pathlib.Path, partial: pathlib.Path) -> Iterator[None]:
  """Says what to do when the disk is full."""
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


def _made(partial: pathlib.Path) -> pathlib.Path:
  """What of the folder to work in is to be the prepared corpus."""
  return partial / 'corpus'


def _begin(
  corpus: Corpus, splits: dict[str, list[Bitext]], partial: pathlib.Path
) -> None:
  """Empties the folder to work in, unless a killed process left it of the same."""
  stamps = {
    name: [bitext.stamp() for bitext in bitexts] for name, bitexts in splits.items()
  }
  begun_with = json.loads(json.dumps({'corpus': corpus.as_json(), 'stamps': stamps}))
  marker = partial / 'begun.json'
  # Without its folder, what is left is of a process killed while it tidied up.
  goes_on = marker.is_file() and _made(partial).is_dir()
  if not goes_on or json.loads(marker.read_text()) != begun_with:
    if partial.exists():
      shutil.rmtree(partial)
    _made(partial).mkdir(parents=True)
    files.write(marker, json.dumps(begun_with))


def _once(marker: pathlib.Path, stage: Callable[[], dict]) -> dict:
  """What a stage gives, done now if its marker is not there yet."""
  if not marker.is_file():
    files.write(marker, json.dumps(stage()))
  return json.loads(marker.read_text())


def _texts(partial: pathlib.Path) -> list[pathlib.Path]:
  return [partial / f'text.{side}' for side in SIDES]


def _text(corpus: Corpus, bitexts: list[Bitext], partial: pathlib.Path) -> dict:
  """The first stage: all good training pairs as text; what was read and dropped."""
  abouts, kept = [], 0
  paths = _texts(partial)
  with (
    paths[0].open('w', encoding='utf-8', newline='\n') as source,
    paths[1].open('w', encoding='utf-8', newline='\n') as target,
    tqdm(desc='reading', unit=' pairs', unit_scale=True) as bar,
  ):
    for bitext in bitexts:
      read, dropped, sample = 0, Counter(), []
      for read, pair in enumerate(bitext.pairs(), 1):
        if read % 1000 == 0:
          bar.update(1000)
        reason = fault(pair, corpus.cleaning)
        if not reason and kept >= corpus.train_pairs:
          reason = f'beyond the first {kept}'
        if reason:
          dropped[reason] += 1
          continue
        kept += 1
        source.write(pair[0] + '\n')
        target.write(pair[1] + '\n')
        if len(sample) < _ENOUGH_PAIRS:
          sample.append(pair)
      languages.check(sample, corpus.languages, bitext.name)
      abouts.append(
        {'name': bitext.name, **bitext.origin(), 'read': read, 'dropped': dict(dropped)}
      )
  for path in paths:
    files.sync(path)
  total = sum((Counter(about['dropped']) for about in abouts), Counter())
  read = sum(about['read'] for about in abouts)
  if not kept:
    raise ValueError(f'no training pair of {corpus.name} is left: {dict(total)}')
  return {'from': abouts, 'read': read, 'kept': kept, 'dropped': total}


def _pieces(corpus: Corpus, text: dict, partial: pathlib.Path) -> dict:
  """The second stage: the vocabulary."""
  count = min(text['kept'], corpus.vocabulary_pairs)
  print(f'learning {corpus.vocab_size:,} pieces from {count:,} pairs', file=sys.stderr)
  return vocabulary.train(
    encoding.sample_lines(_texts(partial), text['kept'], count, corpus.corpus_seed),
    _made(partial) / 'vocabulary.model',
    corpus.vocab_size,
    corpus.character_coverage,
    corpus.byte_fallback,
  )


def _encoded_train(
  corpus: Corpus, words: vocabulary.Vocabulary, text: dict, partial: pathlib.Path
) -> dict:
  """The third stage: token files; with what the first said, the card's entry."""
  done = encoding.encode(
    words,
    _texts(partial),
    [_made(partial) / f'train.{side}' for side in SIDES],
    corpus.max_length,
    text['kept'],
    partial / 'train.journal',
  )
  if not done.kept:
    raise ValueError(
      f'every training pair is over max_length={corpus.max_length} tokens'
    )
  dropped = text['dropped']
  if done.read > done.kept:
    dropped = dropped | {f'over {corpus.max_length} tokens': done.read - done.kept}
  return text | {
    'kept': done.kept,
    'dropped': dropped,
    'tokens': dict(zip(SIDES, done.tokens, strict=True)),
    'longest': dict(zip(SIDES, done.longest, strict=True)),
  }
