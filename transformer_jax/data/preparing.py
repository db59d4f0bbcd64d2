"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

The work is done in NAME.partial (unfinished.py), whose folder `corpus` is renamed to
NAME when all is there: a folder NAME is always whole. A preparation that was stopped
goes on with its clean text and its vocabulary, if corpus and input are still the same.
What follows is made again. Training text is never held in memory whole.
"""

import contextlib
import functools
import importlib.metadata
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

import ml_collections

from transformer_jax.data import (
  card,
  cleaning,
  encoding,
  given_vocabulary,
  held_out,
  origin,
  unfinished,
  vocabulary,
)
from transformer_jax.data.corpus import LOCK, PARTIAL, Corpus, folder_of
from transformer_jax.data.lines import SIDES, Bitext
from transformer_jax.data.origin import Splits
from transformer_jax.data.overlap import KINDS, Overlap
from transformer_jax.data.task import Task
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError


def prepare(
  config: ml_collections.ConfigDict,
  task: Task,
  data_dir: pathlib.Path,
  raw_dir: pathlib.Path | None = None,
  tfds_data_dir: pathlib.Path | None = None,
  begun: pathlib.Path | None = None,
) -> pathlib.Path:
  """The folder of a config's prepared corpus, which is made if it is not there.

  Prints the folder, its identity and what it was made from to stderr.

  Args:
    data_dir: where prepared corpora live.
    raw_dir: where the raw text lies, for readers that need a folder; None is what the
      config says.
    tfds_data_dir: where tensorflow-datasets has or puts its data sets.
    begun: the folder of a run that has made steps. Its corpus is then used without a
      comparison with the config's own raw text, which may have changed; and if it was
      encoded with another run's vocabulary, this folder has that too.

  Raises:
    UserError: the folder was prepared with other settings than the config's, or from
      other files than those in `raw_dir`, or is no prepared corpus.
  """
  corpus = Corpus.of(config)
  folder = folder_of(corpus.name, data_dir)
  is_there, to_use = os.path.lexists(folder), 'Leave out --raw_dir'
  if raw_dir is None and config.data.raw_dir:
    to_use = 'Give --config.data.raw_dir='
    own = pathlib.Path(os.path.expanduser(config.data.raw_dir))
    # The raw text of a corpus that is there may be gone.
    raw_dir = own if not is_there or own.is_dir() and begun is None else None
  if not is_there:
    if begun is not None:
      print(f"the run's corpus is not in {data_dir} (--data_dir)", file=sys.stderr)
    splits = task.splits(corpus, raw_dir, tfds_data_dir)
    words = pathlib.Path(config.init_from.run)
    if begun is not None and (begun / vocabulary.SHARED).is_file():
      words = begun  # which is not there on every host
    prepare_corpus(corpus, task, splits, data_dir, words)
  if not (folder / card.CARD).is_file():
    raise UserError(
      f'{folder} is no prepared corpus, it has no {card.CARD}: move it away, or give '
      'the corpus another name (--config.data.name)'
    )
  card.check_asked(folder, corpus)
  _tidy_up(corpus.name, folder)
  made = card.read_card(folder)
  if raw_dir is not None and corpus.reader != 'embedded':
    remedy = f'{to_use} to use it, or give --config.data.name=NAME to prepare another'
    given = functools.partial(task.splits, corpus, raw_dir, tfds_data_dir)
    _check_made_from(made, folder, raw_dir, given, remedy)
  about = f'({made["identity"][:12]}), made from {origin.describe(made)}'
  print(f'using {folder} {about}', file=sys.stderr)
  return folder


def _tidy_up(name: str, folder: pathlib.Path) -> None:
  """Deletes what a process has left that was killed when the corpus was whole."""
  partial, lock = _beside(folder)
  # The corpus is whole even if this fails, because another user owns the files, say.
  with contextlib.suppress(OSError, UserError):
    if unfinished.is_left_over(partial) and os.access(folder.parent, os.W_OK):
      with files.in_turn(lock, f'prepares {name}'):
        unfinished.remove(partial)


def _beside(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
  """A corpus's NAME.partial and NAME.lock."""
  partial, lock = (folder.with_name(folder.name + end) for end in (PARTIAL, LOCK))
  return partial, lock


def _check_made_from(
  made: dict,
  folder: pathlib.Path,
  raw_dir: pathlib.Path,
  read: Callable[[], Splits],
  remedy: str,
) -> None:
  """Raises UserError, with the remedy, unless a corpus was made from `raw_dir`.

  Args:
    made: its card.
    read: gives the bitexts that are in `raw_dir` now.
  """
  try:
    given = read()
  except UserError as error:
    why = f'whether it was made from {raw_dir} cannot be told: {error}'
    raise UserError(f'{folder} is there, and {why}. {remedy}') from error
  try:
    origin.check_same(made, given)
  except UserError as error:
    why = f'{raw_dir} is not what it was made from: {error}'
    raise UserError(f'{folder} is there, and {why}. {remedy}') from error


def prepare_corpus(
  corpus: Corpus,
  task: Task,
  splits: Splits,
  data_dir: pathlib.Path,
  given: pathlib.Path | None = None,
) -> None:
  """Writes data_dir/NAME from the bitexts of all splits, whole or not at all.

  `given` is a folder with the vocabulary, if the corpus is to be encoded with one.

  Raises:
    UserError, OSError: the input is bad, or cannot be read or written. The message says
      where and what to do.
  """
  final = folder_of(corpus.name, data_dir)
  partial, lock = _beside(final)
  data_dir.mkdir(parents=True, exist_ok=True)
  doing = f'prepares {corpus.name}'
  with files.in_turn(lock, doing), unfinished.full_disk_explained(final, partial):
    # The process that had the lock may have made it.
    if not os.path.lexists(final):
      print(f'preparing {final}', file=sys.stderr)
      folder = unfinished.begin(corpus, splits, partial)
      _run_stages(corpus, task, splits, partial, folder, given)
      for path in folder.iterdir():
        files.sync(path)
      folder.rename(final)
    unfinished.remove(partial)


def _run_stages(
  corpus: Corpus,
  task: Task,
  splits: Splits,
  partial: pathlib.Path,
  folder: pathlib.Path,
  given: pathlib.Path | None,
) -> None:
  """Fills `folder`, with what is left of a stopped preparation in `partial`."""
  # Dev and test are read first, so that their errors show before the long work.
  held_out_text = {
    split: held_out.read(
      split, splits[split], corpus.languages, reorder=corpus.reader == 'wmt14'
    )
    for split in card.SPLITS[1:]
  }
  target = task.target(corpus)
  texts = [partial / f'text.{side}' for side in SIDES]
  clean = unfinished.once(
    partial / 'text.json', lambda: _clean_text(corpus, splits['train'], texts, target)
  )
  learnt = unfinished.once(
    partial / 'pieces.json',
    lambda: _vocabularies(corpus, task, texts, clean['kept'], folder, given),
  )
  words = vocabulary.read(folder, 'target_vocabulary' in learnt)
  overlap = Overlap(
    {
      split: [(source, target(line)) for source, line in pairs]
      for split, (pairs, _) in held_out_text.items()
    }
  )
  entries = {'train': _token_files(corpus, texts, clean, words, folder, overlap)}
  _say_kept(entries['train'])
  if corpus.given_vocabulary:
    entries['train']['unknown'] = given_vocabulary.unknown(folder)
  for split, found in overlap.counts().items():
    pairs, about = held_out_text[split]
    _say_overlap(split, len(pairs), found)
    written = held_out.write(folder, split, pairs, words, target)
    entries[split] = about | written | {'in_train': found}
  own = dict(zip(('vocabulary', 'target_vocabulary'), words, strict=True))
  made = {
    name: {'sha256': own[name].sha256, 'pieces': len(own[name]), **about}
    for name, about in learnt.items()
  }
  versions = {'sentencepiece': importlib.metadata.version('sentencepiece')}
  made |= {'splits': entries, 'versions': versions}
  made['stamps'] = unfinished.begun_with(partial)['stamps']
  card.write_card(folder, corpus.as_json() | made)


def _say_kept(training: dict) -> None:
  left_out = cleaning.counted(training['dropped'])
  told = f'; left out: {left_out}' if left_out else ''
  counts = f'{training["kept"]:,} of {training["read"]:,}'
  print(f'training has {counts} pairs{told}', file=sys.stderr)


def _say_overlap(split: str, pairs: int, found: dict[str, int]) -> None:
  counts = ', '.join(f'{found[kind]:,} of the {kind}' for kind in KINDS)
  print(f'{split} ({pairs:,} pairs): training has {counts} too', file=sys.stderr)


def _clean_text(
  corpus: Corpus,
  bitexts: Sequence[Bitext],
  texts: list[pathlib.Path],
  target: Callable[[str], str],
) -> dict:
  """The first stage: all good training pairs as text, or those drawn of them."""
  clean = cleaning.write_clean_text(
    bitexts, texts, corpus.languages, corpus.cleaning, target
  )
  if (left := clean['kept'] - corpus.train_pairs) > 0:
    drawn = clean['kept'], corpus.train_pairs, corpus.seed
    cleaning.keep(texts, vocabulary.drawn(texts, *drawn))
    dropped = clean['dropped'] | {f'not of the {corpus.train_pairs} drawn': left}
    clean |= {'kept': corpus.train_pairs, 'dropped': dropped}
  for path in texts:
    files.sync(path)
  if not clean['kept']:
    left_out = cleaning.counted(clean['dropped']) or 'there was none, or all were drawn'
    raise UserError(f'no training pair of {corpus.name} is left: {left_out}')
  return clean


def _vocabularies(
  corpus: Corpus,
  task: Task,
  texts: list[pathlib.Path],
  pairs: int,
  folder: pathlib.Path,
  given: pathlib.Path | None,
) -> dict[str, dict]:
  """The second stage: pieces learnt from a sample of the clean text, or given.

  Returns: what the card says of the vocabulary, and of the target's if it has its own.
  """
  if corpus.given_vocabulary:
    return given_vocabulary.take(corpus, given, folder)
  wanted = min(pairs, corpus.vocabulary_pairs)
  print(f'learning {corpus.vocab_size:,} pieces from {wanted:,} pairs', file=sys.stderr)
  sample = lambda *sides: vocabulary.sample_lines(
    texts, pairs, wanted, corpus.seed, sides
  )
  target = corpus.target_vocab_size
  shared = folder / vocabulary.SHARED
  if corpus.whole_words:
    made = vocabulary.train_words(sample(0), shared, corpus.vocab_size)
  else:
    made = vocabulary.train(
      sample(0) if target else sample(0, 1),
      shared,
      corpus.vocab_size,
      corpus.character_coverage,
      corpus.byte_fallback,
    )
  learnt = {'vocabulary': made}
  if target:
    path = folder / vocabulary.TARGETS
    print(f'learning {target:,} pieces for the target alone', file=sys.stderr)
    if task.target_has_tokens:
      made = vocabulary.train_tokens(sample(1), path, target)
    else:
      made = vocabulary.train(
        sample(1), path, target, corpus.character_coverage, corpus.byte_fallback
      )
    learnt['target_vocabulary'] = made
  return learnt


def _token_files(
  corpus: Corpus,
  texts: list[pathlib.Path],
  clean: dict,
  words: vocabulary.Vocabularies,
  folder: pathlib.Path,
  overlap: Overlap,
) -> dict:
  """The third stage: training text in tokens; returns the card's entry on training."""
  sides = [folder / f'train.{side}' for side in SIDES]
  done = encoding.encode(
    words, texts, sides, corpus.max_length, clean['kept'], overlap.look
  )
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
