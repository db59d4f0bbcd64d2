"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

Writes a folder NAME.partial and renames it to NAME at the end, so that a folder NAME is
always complete. Training text is not held in memory.
"""

import collections
import functools
import importlib.metadata
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import ml_collections
import numpy as np

from transformer_jax.data import cleaning, token_files, vocabulary
from transformer_jax.data.card import (
  CARD,
  Card,
  SourceEntry,
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

# The numbers of pairs of these test sets.
NEWSTEST = {'newstest2013': 3_000, 'newstest2014': 3_003}


def prepare_corpus(
  config: ml_collections.ConfigDict,
  task: Task,
  data_dir: pathlib.Path,
  raw_dir: pathlib.Path | None = None,
  tfds_data_dir: pathlib.Path | None = None,
  run: pathlib.Path | None = None,
) -> pathlib.Path:
  """Returns the folder of a config's prepared corpus, and prepares it if necessary.

  Prints the folder, its identity and its sources to stderr.

  Args:
    task: the config's task, which reads the text.
    data_dir: the folder of all prepared corpora.
    raw_dir: the folder of the raw text; None is that of the config, if any.
    tfds_data_dir: the folder of tensorflow-datasets; None is its default.
    run: the folder of a run that goes on. It has the vocabulary of the corpus. The
      config's own raw text is then not compared with the corpus.

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
    # A prepared corpus may outlive its raw text.
    raw_dir = own if not exists or own.is_dir() and run is None else None
  if not exists:
    if run is not None:
      print(f"the run's corpus is not in {data_dir} (--data_dir)", file=sys.stderr)
    words = pathlib.Path(config.init_from.run)
    if run is not None and (run / vocabulary.SHARED).is_file():
      words = run  # a host that has no copy of it uses the run of --init_from
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
  sources = describe_sources(card)
  print(f'using {folder} ({card.identity[:12]}), made from {sources}', file=sys.stderr)
  return folder


def _check_same_files(card: Card, splits: Splits) -> None:
  """Raises UserError if a corpus was prepared from other files than `splits` has."""
  for split, sources in splits.items():
    names = [source.name for source in sources]
    if names != [entry.name for entry in card.splits[split].sources]:
      raise UserError(
        f'it was made from {describe_sources(card)}; for {split} there is '
        f'{", ".join(names)}'
      )
  sums = {path: files.sha256(path) for path in _paths(splits)}
  for split, sources in splits.items():
    for source, entry in zip(sources, card.splits[split].sources, strict=True):
      for path in source.files:
        listed = entry.files.get(path.name, '')
        if sums[path] != listed:
          raise UserError(
            f'{path} ({sums[path][:12]}) is not the {path.name} ({listed[:12]}) that '
            'it was made from'
          )


def write_corpus(
  corpus: Corpus,
  task: Task,
  splits: Splits,
  data_dir: pathlib.Path,
  words: pathlib.Path | None = None,
) -> None:
  """Writes data_dir/NAME from the sources of all splits, or leaves nothing.

  Args:
    words: the folder of the vocabulary, if corpus.run_vocabulary names one.

  Raises:
    UserError: the text is bad, or changed while it was read.
  """
  final = folder_of(corpus.name, data_dir)
  partial, lock = (final.with_name(final.name + end) for end in (PARTIAL, LOCK))
  data_dir.mkdir(parents=True, exist_ok=True)
  with files.in_turn(lock, f'prepares {corpus.name}'):
    if os.path.lexists(final):  # another process has prepared it meanwhile
      return
    print(f'preparing {final}', file=sys.stderr)
    shutil.rmtree(partial, ignore_errors=True)  # of a preparation that was killed
    partial.mkdir()
    try:
      before = _states(_paths(splits))
      try:
        _fill(partial, corpus, task, splits, words)
      finally:  # a file that is still being written has often raised another error
        _check_unchanged(before)
      for path in partial.iterdir():
        files.sync(path)
      partial.rename(final)
    finally:
      shutil.rmtree(partial, ignore_errors=True)


def _paths(splits: Splits) -> list[pathlib.Path]:
  """Returns the files of all sources, each once."""
  return sorted(
    {p for some in splits.values() for source in some for p in source.files}
  )


def _states(paths: Iterable[pathlib.Path]) -> dict[pathlib.Path, tuple[int, int]]:
  """Returns the size and the time of the last change of each file."""
  stats = {path: path.stat() for path in paths}
  return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def _check_unchanged(before: Mapping[pathlib.Path, tuple[int, int]]) -> None:
  """Raises UserError if a file is not in the state that _states returned."""
  for path, state in _states(before).items():
    if state != before[path]:
      raise UserError(
        f'{path}: it changed while it was read; wait until it is whole, then try again'
      )


def _fill(
  folder: pathlib.Path,
  corpus: Corpus,
  task: Task,
  splits: Splits,
  words: pathlib.Path | None,
) -> None:
  """Writes all files of a corpus into an empty folder."""
  target = task.target(corpus)
  # Dev and test come first, to show their errors before the long work.
  held_out = {
    split: _read_held_out(corpus, split, splits[split]) for split in SPLITS[1:]
  }
  texts = [folder / f'text.{side}' for side in SIDES]
  train, is_text = _clean_training(corpus, splits['train'], texts, target)
  if corpus.run_vocabulary:
    shared, own = _take_vocabularies(corpus, words, folder)
  else:
    shared, own = _learn_vocabularies(corpus, task, texts, is_text, folder)
  vocabularies = vocabulary.read(folder, own is not None)
  overlap = _Overlap(
    {
      split: [(source, target(line)) for source, line in pairs]
      for split, pairs in held_out.items()
    }
  )
  _encode_training(folder, corpus, texts, vocabularies, overlap, train)
  cards = {'train': train}
  for split, in_train in overlap.counts().items():
    pairs = held_out[split]
    parts = ', '.join(f'{count:,} of the {kind}' for kind, count in in_train.items())
    print(f'{split} ({len(pairs):,} pairs): training has {parts} too', file=sys.stderr)
    cards[split] = Split(
      read=len(pairs),
      kept=len(pairs),
      tokens=_write_held_out(folder, split, pairs, vocabularies, target),
      sources=[SourceEntry(source.name) for source in splits[split]],
      in_train=in_train,
    )
  sums = {path: files.sha256(path) for path in _paths(splits)}
  for split, sources in splits.items():
    for source, entry in zip(sources, cards[split].sources, strict=True):
      entry.files = {path.name: sums[path] for path in source.files}
  versions = {'sentencepiece': importlib.metadata.version('sentencepiece')}
  write_card(folder, Card(shared, cards, corpus.as_json(), own, versions))


def _clean_training(
  corpus: Corpus,
  sources: Sequence[Source],
  texts: Sequence[pathlib.Path],
  target: Callable[[str], str],
) -> tuple[Split, np.ndarray]:
  """Writes the clean training text to two files, `train_pairs` pairs at most.

  Returns:
    What the card can say so far, and Source.is_text of each pair, [pairs] bool.
  """
  entries = cleaning.write_clean_text(
    sources, texts, corpus.languages, corpus.cleaning, target
  )
  dropped = collections.Counter()
  for entry in entries:
    dropped.update(entry.dropped)
  kept = [entry.read - sum(entry.dropped.values()) for entry in entries]
  is_text = np.repeat([source.is_text for source in sources], kept)
  if (beyond := len(is_text) - corpus.train_pairs) > 0:
    chosen = vocabulary.choose_pairs(
      texts, len(is_text), corpus.train_pairs, corpus.seed
    )
    cleaning.keep_lines(texts, chosen)
    is_text = is_text[chosen]
    dropped[f'not of the {corpus.train_pairs} drawn'] = beyond
  if not len(is_text):
    reasons = cleaning.describe_faults(dropped) or 'there was none, or all were drawn'
    raise UserError(f'no training pair of {corpus.name} is left: {reasons}')
  read = sum(entry.read for entry in entries)
  return Split(read=read, sources=entries, dropped=dict(dropped)), is_text


def _encode_training(
  folder: pathlib.Path,
  corpus: Corpus,
  texts: Sequence[pathlib.Path],
  vocabularies: Vocabularies,
  overlap: '_Overlap',
  train: Split,
) -> None:
  """Encodes the clean text, deletes it, and writes its counts into `train`."""
  sides = [folder / f'train.{side}' for side in SIDES]
  counts = vocabulary.encode_files(
    vocabularies, texts, sides, corpus.max_length, overlap.look
  )
  for path in texts:
    path.unlink()
  if not counts.kept:
    raise UserError(
      f'every training pair is over max_length={corpus.max_length} tokens '
      '(--config.data.max_length)'
    )
  if counts.read > counts.kept:
    train.dropped[f'over {corpus.max_length} tokens'] = counts.read - counts.kept
  train.kept = counts.kept
  train.tokens = dict(zip(SIDES, counts.tokens, strict=True))
  train.longest = dict(zip(SIDES, counts.longest, strict=True))
  if corpus.run_vocabulary:
    train.unknown = _measure_unknown(folder)
  faults = cleaning.describe_faults(train.dropped)
  print(
    f'training has {train.kept:,} of {train.read:,} pairs'
    f'{f"; left out: {faults}" if faults else ""}',
    file=sys.stderr,
  )


# Vocabularies


def _learn_vocabularies(
  corpus: Corpus,
  task: Task,
  texts: Sequence[pathlib.Path],
  is_text: np.ndarray,
  folder: pathlib.Path,
) -> tuple[VocabularyEntry, VocabularyEntry | None]:
  """Learns a vocabulary from a sample of the clean text, and one of the target alone.

  Args:
    is_text: [pairs] bool, Source.is_text of each pair.
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
    UserError: they are not those of corpus.run_vocabulary.
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
  entries = []
  for name, digest in zip(names, sums, strict=True):
    shutil.copy(words / name, folder / name)
    pieces = len(vocabulary.Vocabulary(folder / name))
    entries.append(VocabularyEntry(digest, pieces, from_run=True))
  return entries[0], entries[1] if len(entries) > 1 else None


def _measure_unknown(folder: pathlib.Path) -> dict[str, float]:
  """Returns the fraction of each side's training tokens that are <unk>."""
  sides = zip(SIDES, token_files.read_split(folder, 'train'), strict=True)
  unknown = {name: side.fraction(token_files.UNK) for name, side in sides}
  parts = [f'{part:.2%} of the {name} tokens' for name, part in unknown.items()]
  print(
    f'unknown to the vocabulary of --init_from: {", ".join(parts)}', file=sys.stderr
  )
  return unknown


# Dev and test


def _read_held_out(
  corpus: Corpus, split: str, sources: Sequence[Source]
) -> list[tuple[str, str]]:
  """Returns all pairs of dev or test, in their order.

  Raises:
    UserError: there are no pairs, a line is not UTF-8, or the languages are swapped.
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
  """Writes the text of dev or test, and its tokens as the model learns to write them.

  Returns:
    The number of tokens of each side.
  """
  tokens = {}
  targets = [lambda line: line, target]
  sides = zip(SIDES, words, zip(*pairs, strict=True), targets, strict=True)
  for side, own, lines, as_learnt in sides:
    path = folder / f'{split}.{side}'
    text = ''.join(line + '\n' for line in lines)
    path.with_suffix(f'.{side}.txt').write_bytes(text.encode())
    tokens[side] = token_files.write_tokens(path, own.encode([*map(as_learnt, lines)]))
  return tokens


class _Overlap:
  """Counts the lines of dev and test that training has too, byte for byte.

  Training keeps them, and its text is not held in memory.

  Args:
    held_out: the pairs of each split, with the targets that the model learns to write.
  """

  def __init__(self, held_out: Mapping[str, Sequence[tuple[str, str]]]):
    self._held_out, self._sought = {}, collections.defaultdict(set)
    for split, pairs in held_out.items():
      sides = ([f'{s}\n'.encode() for s in side] for side in zip(*pairs, strict=True))
      self._held_out[split] = self._by_kind(*sides)
      for kind, lines in self._held_out[split].items():
        self._sought[kind].update(lines)
    self._in_train = {kind: set() for kind in self._sought}

  @staticmethod
  def _by_kind(sources: Sequence[bytes], targets: Sequence[bytes]) -> dict[str, list]:
    pairs = [*zip(sources, targets, strict=True)]
    return {'pairs': pairs, 'sources': [*sources], 'targets': [*targets]}

  def look(self, sources: Sequence[bytes], targets: Sequence[bytes]) -> None:
    """Takes note of lines of training, which end in line feeds."""
    for kind, lines in self._by_kind(sources, targets).items():
      self._in_train[kind] |= self._sought[kind].intersection(lines)

  def counts(self) -> dict[str, dict[str, int]]:
    """Returns how many lines of each split and kind are in training."""
    return {
      split: {
        kind: sum(line in self._in_train[kind] for line in lines)
        for kind, lines in kinds.items()
      }
      for split, kinds in self._held_out.items()
    }
