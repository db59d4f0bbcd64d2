"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

The work is done in NAME.partial, which is renamed to NAME when all is there: a folder
NAME is always whole. Training text is never held in memory whole.
"""

import collections
import contextlib
import functools
import importlib.metadata
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import ml_collections
import numpy as np

from transformer_jax.data import cleaning, token_files, vocabulary
from transformer_jax.data.card import (
  CARD,
  Card,
  Origin,
  Split,
  check_settings,
  describe_sources,
  read_card,
  write_card,
)
from transformer_jax.data.corpus import (
  LOCK,
  PARTIAL,
  SIDES,
  SPLITS,
  Corpus,
  Source,
  Splits,
  folder_of,
)
from transformer_jax.data.task import Task
from transformer_jax.data.vocabulary import Vocabularies, VocabularyEntry
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

# Pairs of these sets; scores of copies with other numbers compare with nobody's.
NEWSTEST = {'newstest2013': 3_000, 'newstest2014': 3_003}


def prepare_corpus(
  config: ml_collections.ConfigDict,
  task: Task,
  data_dir: pathlib.Path,
  raw_dir: pathlib.Path | None = None,
  tfds_data_dir: pathlib.Path | None = None,
  run: pathlib.Path | None = None,
) -> pathlib.Path:
  """The folder of a config's prepared corpus, which is prepared if it is not there.

  Prints the folder, its identity and what it was made from to stderr.

  Args:
    task: the config's, which reads the text.
    data_dir: where prepared corpora live.
    raw_dir: where the raw text lies, for readers that need a folder; None is what the
      config says.
    tfds_data_dir: where tensorflow-datasets has or puts its data sets.
    run: the folder of a run that has made steps. Its corpus is then used without a
      comparison with the config's own raw text, which may have changed; and if it was
      encoded with another run's vocabulary, this folder has that too.

  Raises:
    UserError: the folder was prepared with other settings than the config's, or from
      other files than those in `raw_dir`, or is no prepared corpus.
  """
  corpus = Corpus.of(config)
  folder = folder_of(corpus.name, data_dir)
  exists, to_use = os.path.lexists(folder), 'Leave out --raw_dir'
  if raw_dir is None and corpus.raw_dir:
    to_use = 'Give --config.data.raw_dir='
    own = pathlib.Path(os.path.expanduser(corpus.raw_dir))
    # The raw text of a corpus that is there may be gone.
    raw_dir = own if not exists or own.is_dir() and run is None else None
  if not exists:
    if run is not None:
      print(f"the run's corpus is not in {data_dir} (--data_dir)", file=sys.stderr)
    words = pathlib.Path(config.init_from.run)
    if run is not None and (run / vocabulary.SHARED).is_file():
      words = run  # which is not there on every host
    splits = task.splits(corpus, raw_dir, tfds_data_dir)
    write_corpus(corpus, task, splits, data_dir, words)
  if not (folder / CARD).is_file():
    raise UserError(
      f'{folder} is no prepared corpus, it has no {CARD}: move it away, or give the '
      'corpus another name (--config.data.name)'
    )
  check_settings(folder, corpus)
  card = read_card(folder)
  if exists and raw_dir is not None:
    remedy = f'{to_use} to use it, or give --config.data.name=NAME to prepare another'
    try:
      _check_same_files(card, task.splits(corpus, raw_dir, tfds_data_dir))
    except UserError as error:
      raise UserError(
        f'{folder} is there, and {raw_dir} is not what it was made from: {error}. '
        f'{remedy}'
      ) from error
  about = f'({card.identity[:12]}), made from {describe_sources(card)}'
  print(f'using {folder} {about}', file=sys.stderr)
  return folder


def _check_same_files(card: Card, splits: Splits) -> None:
  """Raises UserError if a corpus was made from other files than those of `splits`."""
  digest = functools.cache(files.sha256)
  for split, sources in splits.items():
    before = card.splits[split].sources
    if [source.name for source in sources] != [origin.name for origin in before]:
      names = ', '.join(source.name for source in sources)
      raise UserError(
        f'it was made from {describe_sources(card)}; for {split} there is {names}'
      )
    for source, origin in zip(sources, before, strict=True):
      for path in source.files:
        listed = origin.files.get(path.name, '')
        if digest(path) != listed:
          raise UserError(
            f'{path} ({digest(path)[:12]}) is not the {path.name} ({listed[:12]}) that '
            'it was made from'
          )


def write_corpus(
  corpus: Corpus,
  task: Task,
  splits: Splits,
  data_dir: pathlib.Path,
  words: pathlib.Path | None = None,
) -> None:
  """Writes data_dir/NAME from the sources of all splits, whole or not at all.

  Args:
    words: a folder with the vocabulary, if the corpus is to be encoded with one.

  Raises:
    UserError, OSError: the input is bad, or cannot be read or written. The message says
      where and what to do.
  """
  final = folder_of(corpus.name, data_dir)
  partial, lock = (final.with_name(final.name + end) for end in (PARTIAL, LOCK))
  data_dir.mkdir(parents=True, exist_ok=True)
  with files.in_turn(lock, f'prepares {corpus.name}'):
    if os.path.lexists(final):  # the process that had the lock prepared it
      return
    print(f'preparing {final}', file=sys.stderr)
    shutil.rmtree(partial, ignore_errors=True)  # of a preparation that was killed
    partial.mkdir()
    try:
      with _unchanged(splits):
        _fill(partial, corpus, task, splits, words)
      for path in partial.iterdir():
        files.sync(path)
      partial.rename(final)
    finally:
      shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _unchanged(splits: Splits) -> Iterator[None]:
  """Raises UserError if a file of the sources changes within the block."""
  paths = {
    path for sources in splits.values() for source in sources for path in source.files
  }
  state = lambda path: (path.stat().st_size, path.stat().st_mtime_ns)
  before = {path: state(path) for path in paths}

  def check() -> None:
    for path in paths:
      if state(path) != before[path]:
        raise UserError(
          f'{path}: it changed while it was read; wait until it is whole, then try '
          'again'
        )

  try:
    yield
  except UserError:
    check()  # a file that is still being written is also damaged or unequal
    raise
  check()


def _fill(
  folder: pathlib.Path,
  corpus: Corpus,
  task: Task,
  splits: Splits,
  words: pathlib.Path | None,
) -> None:
  """Writes all of a corpus into an empty folder."""
  target = task.target(corpus)
  # Dev and test are read first, so that their errors show before the long work.
  held_out = {
    split: _read_held_out(corpus, split, splits[split]) for split in SPLITS[1:]
  }
  texts = [folder / f'text.{side}' for side in SIDES]
  train, is_text = _clean_training(corpus, splits['train'], texts, target)
  if corpus.run_vocabulary:
    entries = _take_vocabularies(corpus, words, folder)
  else:
    entries = _learn_vocabularies(corpus, task, texts, is_text, folder)
  own = vocabulary.read(folder, entries[1] is not None)
  overlap = _Overlap(
    {
      split: [(source, target(line)) for source, line in pairs]
      for split, pairs in held_out.items()
    }
  )
  sides = [folder / f'train.{side}' for side in SIDES]
  counts = vocabulary.encode_files(own, texts, sides, corpus.max_length, overlap.look)
  for path in texts:
    path.unlink()
  if counts.read > counts.kept:
    train.dropped[f'over {corpus.max_length} tokens'] = counts.read - counts.kept
  if not counts.kept:
    raise UserError(
      f'every training pair is over max_length={corpus.max_length} tokens '
      '(--config.data.max_length)'
    )
  train.kept = counts.kept
  train.tokens = dict(zip(SIDES, counts.tokens, strict=True))
  train.longest = dict(zip(SIDES, counts.longest, strict=True))
  if corpus.run_vocabulary:
    train.unknown = _measure_unknown(folder)
  told = cleaning.describe_faults(train.dropped)
  print(
    f'training has {train.kept:,} of {train.read:,} pairs'
    f'{f"; left out: {told}" if told else ""}',
    file=sys.stderr,
  )
  cards = {'train': train}
  for split, in_train in overlap.counts().items():
    pairs = held_out[split]
    told = ', '.join(f'{count:,} of the {kind}' for kind, count in in_train.items())
    print(f'{split} ({len(pairs):,} pairs): training has {told} too', file=sys.stderr)
    cards[split] = Split(
      read=len(pairs),
      kept=len(pairs),
      tokens=_write_held_out(folder, split, pairs, own, target),
      sources=[Origin(source.name) for source in splits[split]],
      in_train=in_train,
    )
  digest = functools.cache(files.sha256)  # a file may be of several sources
  for split, sources in splits.items():
    for source, about in zip(sources, cards[split].sources, strict=True):
      about.files = {path.name: digest(path) for path in source.files}
  versions = {'sentencepiece': importlib.metadata.version('sentencepiece')}
  write_card(
    folder,
    Card(entries[0], cards, corpus.as_json(), entries[1], versions),
  )


def _clean_training(
  corpus: Corpus,
  sources: Sequence[Source],
  texts: Sequence[pathlib.Path],
  target: Callable[[str], str],
) -> tuple[Split, np.ndarray]:
  """Writes the clean training text to two files, or as much as the corpus is to have.

  Returns:
    What the card says so far; and for each pair whether its words count as text,
    [pairs] bool.
  """
  cleaned = cleaning.write_clean_text(
    sources, texts, corpus.languages, corpus.cleaning, target
  )
  is_text = np.repeat(
    [source.is_text for source in sources], [each.kept for each in cleaned]
  )
  dropped = collections.Counter()
  for each in cleaned:
    dropped.update(each.dropped)
  if (beyond := len(is_text) - corpus.train_pairs) > 0:
    chosen = vocabulary.choose_pairs(
      texts, len(is_text), corpus.train_pairs, corpus.seed
    )
    cleaning.keep_lines(texts, chosen)
    is_text = is_text[chosen]
    dropped[f'not of the {corpus.train_pairs} drawn'] = beyond
  if not len(is_text):
    left_out = cleaning.describe_faults(dropped) or 'there was none, or all were drawn'
    raise UserError(f'no training pair of {corpus.name} is left: {left_out}')
  about = [
    Origin(source.name, read=each.read, dropped=each.dropped)
    for source, each in zip(sources, cleaned, strict=True)
  ]
  read = sum(each.read for each in cleaned)
  return Split(read=read, sources=about, dropped=dict(dropped)), is_text


# Vocabularies


def _learn_vocabularies(
  corpus: Corpus,
  task: Task,
  texts: Sequence[pathlib.Path],
  is_text: np.ndarray,
  folder: pathlib.Path,
) -> tuple[VocabularyEntry, VocabularyEntry | None]:
  """Learns the vocabulary from a sample of the clean text, and the target's own.

  Args:
    is_text: [pairs] bool, False for pieces of other pairs, whose words do not count.
  """
  pairs = min(len(is_text), corpus.vocabulary_pairs)
  print(f'learning {corpus.vocab_size:,} pieces from {pairs:,} pairs', file=sys.stderr)
  chosen = vocabulary.choose_pairs(texts, len(is_text), pairs, corpus.seed)
  learn = functools.partial(
    vocabulary.learn_pieces,
    character_coverage=corpus.character_coverage,
    byte_fallback=corpus.byte_fallback,
  )
  sources, targets = (vocabulary.chosen_lines(path, chosen) for path in texts)
  path, size = folder / vocabulary.SHARED, corpus.target_vocab_size
  if corpus.whole_words:
    words = chosen & is_text if is_text.any() else chosen
    lines = vocabulary.chosen_lines(texts[0], words)
    shared = vocabulary.learn_words(lines, path, corpus.vocab_size)
  else:
    lines = sources if size else (line for side in (sources, targets) for line in side)
    shared = learn(lines, path, corpus.vocab_size)
  if not size:
    return shared, None
  print(f'learning {size:,} pieces for the target alone', file=sys.stderr)
  learn = vocabulary.learn_tokens if task.target_has_tokens else learn
  return shared, learn(targets, folder / vocabulary.TARGETS, size)


def _take_vocabularies(
  corpus: Corpus, words: pathlib.Path, folder: pathlib.Path
) -> tuple[VocabularyEntry, VocabularyEntry | None]:
  """Copies another run's vocabularies from the folder `words`.

  Raises:
    UserError: they are not those that the corpus is to be encoded with.
  """
  names = [vocabulary.SHARED]
  if ' ' in corpus.run_vocabulary:  # the target has its own
    names.append(vocabulary.TARGETS)
  exist = all((words / name).is_file() for name in names)
  sums = [files.sha256(words / name) for name in names] if exist else []
  if ' '.join(sums) != corpus.run_vocabulary:
    raise UserError(
      f'{words} does not have the vocabulary ({corpus.run_vocabulary[:12]}) that '
      f'{corpus.name} is to be encoded with: put that run back, or give --init_from '
      'anew. A run that has steps has it too (scripts.train --workdir=RUN)'
    )
  taken = []
  for name, digest in zip(names, sums, strict=True):
    shutil.copy(words / name, folder / name)
    pieces = len(vocabulary.Vocabulary(folder / name))
    taken.append(VocabularyEntry(digest, pieces, from_run=True))
  return taken[0], taken[1] if len(taken) > 1 else None


def _measure_unknown(folder: pathlib.Path) -> dict[str, float]:
  """The fraction of each side's training tokens that the vocabulary does not know."""
  sides = zip(SIDES, token_files.read_split(folder, 'train'), strict=True)
  unknown = {name: side.fraction(token_files.UNK) for name, side in sides}
  told = ', '.join(f'{part:.2%} of the {name} tokens' for name, part in unknown.items())
  print(f'unknown to the vocabulary of --init_from: {told}', file=sys.stderr)
  return unknown


# Dev and test


def _read_held_out(
  corpus: Corpus, split: str, sources: Sequence[Source]
) -> list[tuple[str, str]]:
  """All pairs of dev or test, in their order.

  Raises:
    UserError: there are no pairs, a line is not UTF-8, or the sides are swapped.
  """
  pairs = []
  for source in sources:
    for number, pair in enumerate(source.pairs(), 1):
      if None in pair:
        raise UserError(
          f'{source.name}, line {number} of the {SIDES[pair.index(None)]}: not UTF-8; '
          f'mend the {split} file'
        )
      pairs.append(pair)
  names = ', '.join(source.name for source in sources) or 'no files'
  if not pairs:
    raise UserError(f'{names}: the {split} split is empty')
  cleaning.check_languages(pairs, corpus.languages, names)
  stems = [stem.rpartition('/')[2] for stem in corpus.files[split]]
  if len(stems) == 1 and len(pairs) != NEWSTEST.get(stems[0], len(pairs)):
    print(
      f'{split}: {len(pairs):,} pairs, where {stems[0]} has {NEWSTEST[stems[0]]:,}: '
      "its scores compare with nobody's",
      file=sys.stderr,
    )
  return pairs


def _write_held_out(
  folder: pathlib.Path,
  split: str,
  pairs: Sequence[tuple[str, str]],
  words: Vocabularies,
  target: Callable[[str], str],
) -> dict[str, int]:
  """Writes the text and the token files of dev or test; the tokens of each side.

  The tokens are of what the model learns to write, the text is as it was read.
  """
  tokens = {}
  learnt = [lambda line: line, target]
  sides = zip(SIDES, words, zip(*pairs, strict=True), learnt, strict=True)
  for side, own, lines, as_learnt in sides:
    path = folder / f'{split}.{side}'
    text = ''.join(line + '\n' for line in lines)
    path.with_suffix(f'.{side}.txt').write_bytes(text.encode())
    tokens[side] = token_files.write_tokens(path, own.encode([*map(as_learnt, lines)]))
  return tokens


class _Overlap:
  """Counts how much of dev and test is in training too, byte for byte.

  No pair is dropped because of it. The training text is not kept in memory.

  Args:
    splits: the pairs of each split.
  """

  KINDS = ('pairs', 'sources', 'targets')

  def __init__(self, splits: Mapping[str, Sequence[tuple[str, str]]]):
    self._splits = {}
    for split, pairs in splits.items():
      coded = [(f'{a}\n'.encode(), f'{b}\n'.encode()) for a, b in pairs]
      self._splits[split] = coded, [a for a, _ in coded], [b for _, b in coded]
    kinds = zip(*self._splits.values(), strict=True)
    self._sought = [set().union(*lines) for lines in kinds]
    self._seen: list[set] = [set() for _ in self.KINDS]

  def look(self, sources: Sequence[bytes], targets: Sequence[bytes]) -> None:
    """Searches lines of training pairs, with the line feeds at their ends."""
    training = zip(sources, targets, strict=True), sources, targets
    for seen, sought, lines in zip(self._seen, self._sought, training, strict=True):
      seen |= sought.intersection(lines)

  def counts(self) -> dict[str, dict[str, int]]:
    """For each split and kind, how many of its lines are in training."""
    return {
      split: {
        kind: sum(line in seen for line in lines)
        for kind, seen, lines in zip(self.KINDS, self._seen, sides, strict=True)
      }
      for split, sides in self._splits.items()
    }
