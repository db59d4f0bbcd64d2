"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

Writes a folder NAME.partial and renames it to NAME at the end, so that a folder NAME is
always complete. Training text is not held in memory.
"""

import collections
import hashlib
import importlib.metadata
import itertools
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from unicodedata import normalize

import ml_collections
import numpy as np
from tqdm import tqdm

from transformer_jax.config import Cleaning
from transformer_jax.data import batches, cleaning, vocabulary
from transformer_jax.data.corpus import (
  NEWSTEST,
  SPLITS,
  STREAMS,
  Card,
  Pair,
  Source,
  SourceEntry,
  Split,
  Splits,
  VocabularyEntry,
  check_settings,
  corpus_settings,
  languages,
  paper_set,
  read_card,
  write_card,
)
from transformer_jax.data.task import Task
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

PACKAGES = ('numpy', 'sentencepiece')  # their versions are on the card
_BLOCK = 20_000  # pairs that are encoded at once


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
    run: the folder of a run that is resumed. It has the vocabulary of the corpus, which
      is then not compared with the raw text.

  Raises:
    UserError: the folder was prepared with other settings than the config's, or from
      other files than those of the raw text, or is no prepared corpus.
  """
  folder = data_dir / config.data.name
  is_prepared = folder.exists()
  if raw_dir is None and config.data.raw_dir:
    raw_dir = pathlib.Path(config.data.raw_dir).expanduser()
    if is_prepared and not raw_dir.is_dir():  # a corpus may outlive its raw text
      raw_dir = None
  if not is_prepared:
    parent = pathlib.Path(config.init_from.run)
    if run is not None and (run / vocabulary.SHARED).is_file():
      parent = run  # the run of --init_from may be missing on this machine
    splits = task.splits(config, raw_dir, tfds_data_dir)
    write_corpus(config, task, splits, data_dir, parent)
  check_settings(folder, config)
  card = read_card(folder)
  if is_prepared and run is None and raw_dir is not None:
    changed = _changed_files(card, task.splits(config, raw_dir, tfds_data_dir))
    if changed:
      raise UserError(
        f'{folder} was prepared from other files than those in {raw_dir} '
        f'({", ".join(changed)}). To use it as it is, leave out --raw_dir and give '
        '--config.data.raw_dir=; to prepare these files, give --config.data.name=NAME'
      )
  names = (source.name for split in card.splits.values() for source in split.sources)
  about = f'({card.identity[:12]}), made from {", ".join(dict.fromkeys(names))}'
  print(f'using {folder} {about}', file=sys.stderr)
  return folder


def _changed_files(card: Card, splits: Splits) -> list[str]:
  """Returns the names of files that `card` and `splits` do not share."""
  sources = [source for split in card.splits.values() for source in split.sources]
  before = {item for source in sources for item in source.files.items()}
  now = {(path.name, files.sha256(path)) for path in _files_of(splits)}
  return sorted({name for name, _ in before ^ now})


def write_corpus(
  config: ml_collections.ConfigDict,
  task: Task,
  splits: Splits,
  data_dir: pathlib.Path,
  parent: pathlib.Path | None = None,
) -> None:
  """Writes data_dir/NAME from the sources of all splits, or leaves nothing.

  Args:
    parent: the run that has the vocabulary, if config.init_from.vocabulary names one.

  Raises:
    UserError: the text is missing or damaged, or no training pair is left.
  """
  final = data_dir / config.data.name
  partial = final.with_name(f'{final.name}.partial')
  data_dir.mkdir(parents=True, exist_ok=True)
  lock = final.with_name(f'{final.name}.lock')
  with files.in_turn(lock, f'prepares {config.data.name}'):
    if final.exists():  # another process has prepared it meanwhile
      return
    print(f'preparing {final}', file=sys.stderr)
    shutil.rmtree(partial, ignore_errors=True)  # of a preparation that was killed
    partial.mkdir()
    try:
      Preparation(config, task, splits, partial, parent).write()
      for path in partial.iterdir():
        files.sync(path)
      partial.rename(final)
    finally:
      shutil.rmtree(partial, ignore_errors=True)


def _files_of(splits: Splits) -> list[pathlib.Path]:
  """Returns the files of all sources, each once."""
  return sorted(
    {p for some in splits.values() for source in some for p in source.files}
  )


def encode_files(
  vocabularies: Vocabularies,
  texts: Sequence[pathlib.Path],
  outputs: Sequence[pathlib.Path],
  max_length: int,
  converters: Sequence[Callable[[str], str]],
) -> list[float]:
  """Encodes two files of lines into two token files.

  Drops pairs with a sentence of over `max_length` tokens, its EOS counted.

  Args:
    texts: source and target, a sentence a line.
    outputs: the token files to write, without the ends of their names.
    converters: map a source and a target line to what the model reads and writes.

  Returns:
    Which fraction of the source's and the target's pieces, spaces aside, are unknown
    text or bytes of rare text.
  """
  every, unknown, pieces = itertools.repeat(True), [0, 0], [0, 0]
  lines = zip(*(vocabulary.chosen_lines(path, every) for path in texts), strict=True)
  with (
    batches.TokenWriter(outputs[0]) as source,
    batches.TokenWriter(outputs[1]) as target,
    tqdm(desc='encoding', unit=' pairs', unit_scale=True, delay=1) as bar,
  ):
    while pairs := [*itertools.islice(lines, _BLOCK)]:
      encoded = [
        words.encode_flat([*map(convert, text)])
        for words, convert, text in zip(
          vocabularies, converters, zip(*pairs, strict=True), strict=True
        )
      ]
      fits = np.all([lengths < max_length for _, lengths in encoded], 0)
      for i, (tokens, lengths) in enumerate(encoded):
        kept = tokens[np.repeat(fits, lengths)]
        (source, target)[i].append(kept, lengths[fits])
        unknown[i] += int(vocabularies[i].is_unknown[kept].sum())
        pieces[i] += int((kept != vocabularies[i].space).sum())
      bar.update(len(pairs))
  return [count / max(1, of) for count, of in zip(unknown, pieces, strict=True)]


def _in_nfc(source: Source) -> Callable[[], Iterator[Pair | UserError]]:
  """Returns a function that yields the pairs of a source in NFC."""

  def pairs() -> Iterator[Pair | UserError]:
    for pair in source.pairs():
      if isinstance(pair, UserError) or None in pair:
        yield pair
      else:
        yield tuple(normalize('NFC', line) for line in pair)

  return pairs


def _words(line: str) -> str:
  """Returns the words of a line in lower case; the line itself if it has none."""
  return ' '.join(re.findall(r'\w+', normalize('NFC', line).lower())) or line.strip()


class Preparation:
  """Writes the files of one corpus into an empty folder.

  Args:
    splits: the sources of each split, whose text is read once.
    folder: gets the files of the corpus and, for a while, the clean training text.
    parent: the run that has the vocabulary, if config.init_from.vocabulary names one.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    task: Task,
    splits: Splits,
    folder: pathlib.Path,
    parent: pathlib.Path | None,
  ):
    self._config, self._task, self._splits = config, task, splits
    if config.data.nfc:
      train = [source._replace(pairs=_in_nfc(source)) for source in splits['train']]
      self._splits = splits | {'train': train}
    self._folder, self._parent = folder, parent
    self._texts = [folder / f'text.{stream}' for stream in STREAMS]
    self._target = task.target(config)

  def write(self) -> None:
    """Writes all files, the card last."""
    # Dev and test come first, to show their errors before the long work.
    held_out = {split: self._read_held_out(split) for split in SPLITS[1:]}
    train, counted = self._clean_training()
    if self._config.init_from.vocabulary:
      shared, *own = self._copy_vocabularies()
    else:
      shared, *own = self._learn_vocabularies(counted)
    vocabularies = vocabulary.read(self._folder, bool(own))
    cards = {'train': train}
    overlaps = self._count_overlaps(held_out)
    for split, pairs in held_out.items():
      cards[split] = self._write_held_out(split, pairs, vocabularies, overlaps[split])
    self._encode_training(vocabularies, train)
    self._check_unknown(cards)
    sums = {path: files.sha256(path) for path in _files_of(self._splits)}
    for split, sources in self._splits.items():
      for source, entry in zip(sources, cards[split].sources, strict=True):
        entry.files = {path.name: sums[path] for path in source.files}
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    settings, of_target = corpus_settings(self._config), own[0] if own else None
    write_card(self._folder, Card(shared, cards, settings, of_target, versions))

  # Training

  def _clean_training(self) -> tuple[Split, np.ndarray]:
    """Writes the clean training text to two files, `train_pairs` pairs at most.

    Returns:
      What the card can say so far, and which pairs' words a vocabulary counts, [pairs]
      bool.
    """
    config, sources = self._config, self._splits['train']
    limits = Cleaning(**config.data.cleaning)
    entries = cleaning.write_clean_text(
      sources, self._texts, languages(config), limits, self._target
    )
    dropped = collections.Counter()
    for entry in entries:
      dropped.update(entry.dropped)
    kept = [entry.read - sum(entry.dropped.values()) for entry in entries]
    counted = np.repeat([source.counts_for_vocabulary for source in sources], kept)
    if (beyond := len(counted) - config.data.train_pairs) > 0:
      chosen = self._choose_pairs(len(counted), config.data.train_pairs)
      cleaning.keep_lines(self._texts, chosen)
      counted = counted[chosen]
      dropped[f'beyond train_pairs={config.data.train_pairs}'] = beyond
    if not len(counted):
      reasons = cleaning.describe_faults(dropped) or 'dev and test took all'
      raise UserError(f'no training pair of {config.data.name} is left: {reasons}')
    read = sum(entry.read for entry in entries)
    split = Split(read=read, kept=len(counted), sources=entries, dropped=dict(dropped))
    return split, counted

  def _choose_pairs(self, pairs: int, count: int) -> np.ndarray:
    """Returns which pairs of the clean text are in a random sample: [pairs] bool."""
    return vocabulary.choose_pairs(self._texts, pairs, count, self._config.data.seed)

  def _encode_training(self, vocabularies: Vocabularies, train: Split) -> None:
    """Encodes the clean text, deletes it, and writes the counts into `train`."""
    paths, limit = self._token_files('train'), self._config.data.max_length
    converters = self._task.source(vocabularies.source), str
    unknown = encode_files(vocabularies, self._texts, paths, limit, converters)
    train.unknown = dict(zip(STREAMS, unknown, strict=True))
    for path in self._texts:
      path.unlink()
    both = batches.read_split(self._folder, 'train')
    if not len(both[0]):
      raise UserError(
        f'every training pair is over max_length={limit} tokens '
        '(--config.data.max_length)'
      )
    if too_long := train.kept - len(both[0]):
      train.dropped[f'over {limit} tokens'] = too_long
    train.kept = len(both[0])
    for stream, sentences in zip(STREAMS, both, strict=True):
      train.tokens[stream] = len(sentences.tokens)
      train.longest[stream] = int(sentences.lengths.max()) - 1  # without EOS
    faults = cleaning.describe_faults(train.dropped)
    print(
      f'training has {train.kept:,} of {train.read:,} pairs'
      f'{f"; left out: {faults}" if faults else ""}',
      file=sys.stderr,
    )

  def _token_files(self, split: str) -> list[pathlib.Path]:
    return [self._folder / f'{split}.{stream}' for stream in STREAMS]

  # Vocabularies

  def _learn_vocabularies(self, counted: np.ndarray) -> list[VocabularyEntry]:
    """Learns a vocabulary from a sample of the clean text, and one of the target alone.

    Args:
      counted: [pairs] bool, the pairs whose words count.
    """
    config, size = self._config, self._config.model.vocab_size
    target_size = config.model.target_vocab_size
    count = min(len(counted), config.data.vocabulary_pairs)
    print(f'learning {size:,} pieces from {count:,} pairs', file=sys.stderr)
    chosen = self._choose_pairs(len(counted), count)
    learn, learn_target = self._task.learners(config)
    # The parts of a treebank repeat its words, which would then seem to be frequent.
    sampled = chosen & counted if config.data.whole_words and counted.any() else chosen
    lines = vocabulary.chosen_lines(self._texts[0], sampled)
    targets = vocabulary.chosen_lines(self._texts[1], chosen)
    sentences, of_target = int(sampled.sum()), int(chosen.sum())
    if not target_size:
      lines = itertools.chain(lines, targets)
      sentences += of_target
    learn(lines, self._folder / vocabulary.SHARED, size)
    entries = [self._describe(vocabulary.SHARED, sentences=sentences)]
    if target_size:
      about = f'learning {target_size:,} pieces for the target alone'
      print(about, file=sys.stderr)
      learn_target(targets, self._folder / vocabulary.TARGETS, target_size)
      entries.append(self._describe(vocabulary.TARGETS, sentences=of_target))
    return entries

  def _describe(
    self, name: str, from_run: bool = False, sentences: int = 0
  ) -> VocabularyEntry:
    """Returns what the card says of the vocabulary in the file `name`."""
    words = vocabulary.Vocabulary(self._folder / name)
    return VocabularyEntry(words.sha256, len(words), from_run, sentences)

  def _copy_vocabularies(self) -> list[VocabularyEntry]:
    """Copies the vocabularies of the parent run.

    Raises:
      UserError: they are not those of config.init_from.vocabulary.
    """
    entries, names = [], (vocabulary.SHARED, vocabulary.TARGETS)
    sums = self._config.init_from.vocabulary.split()
    for name, digest in zip(names, sums, strict=False):
      path = self._parent / name
      if not path.is_file() or files.sha256(path) != digest:
        raise UserError(
          f'{path} is not the vocabulary ({digest[:12]}) that '
          f'{self._config.data.name} is to be encoded with: put that run back, or give '
          '--init_from anew'
        )
      shutil.copy(path, self._folder / name)
      entries.append(self._describe(name, from_run=True))
    return entries

  # Dev and test

  def _read_held_out(self, split: str) -> list[tuple[str, str]]:
    """Returns all pairs of dev or test, in their order.

    Raises:
      UserError: the split is empty, a line is not UTF-8, or the languages are swapped.
    """
    pairs, sources = [], self._splits[split]
    for source in sources:
      for number, pair in enumerate(source.pairs(), 1):
        if None in pair:
          raise UserError(
            f'{source.name}, line {number} of the {STREAMS[pair.index(None)]}: not '
            f'UTF-8; mend the {split} file'
          )
        pairs.append(pair)
    names = ', '.join(source.name for source in sources) or 'no files'
    if not pairs:
      raise UserError(f'{names}: the {split} split is empty')
    cleaning.check_languages(pairs, languages(self._config), names)
    text = ''.join(f'{target}\n' for _, target in pairs)
    digest = hashlib.sha256(text.encode()).hexdigest()
    for stem in self._config.data.files[split]:
      if (name := paper_set(stem)) and name != NEWSTEST.get(digest[:12]):
        print(
          f"{split}: {stem} ({len(pairs):,} pairs) is not the paper's {name}: its "
          "scores do not compare with the paper's",
          file=sys.stderr,
        )
    return pairs

  def _count_overlaps(
    self, held_out: Mapping[str, Sequence[tuple[str, str]]]
  ) -> dict[str, dict[str, int]]:
    """Returns how many source sentences of dev and test each other split has too.

    Sentences are the same if they have the same words in lower case.
    """
    words = {
      split: [_words(source) for source, _ in pairs]
      for split, pairs in held_out.items()
    }
    wanted = {*itertools.chain(*words.values())}
    with self._texts[0].open(encoding='utf-8', newline='\n') as training:
      known = {'train': wanted.intersection(map(_words, training))}
    known |= {split: {*some} for split, some in words.items()}
    return {
      split: {
        other: sum(one in known[other] for one in some)
        for other in known
        if other != split
      }
      for split, some in words.items()
    }

  def _write_held_out(
    self,
    split: str,
    pairs: Sequence[tuple[str, str]],
    vocabularies: Vocabularies,
    overlap: dict[str, int],
  ) -> Split:
    """Writes the text of dev or test as it is, and its tokens."""
    paths = self._token_files(split)
    texts = [path.with_suffix(f'{path.suffix}.txt') for path in paths]
    for path, lines in zip(texts, zip(*pairs, strict=True), strict=True):
      path.write_bytes(''.join(f'{line}\n' for line in lines).encode())
    nfc = (lambda line: normalize('NFC', line)) if self._config.data.nfc else str
    source = self._task.source(vocabularies.source)
    converters = lambda line: source(nfc(line)), lambda line: self._target(nfc(line))
    unknown = encode_files(vocabularies, texts, paths, sys.maxsize, converters)
    tokens = [len(one.tokens) for one in batches.read_split(self._folder, split)]
    for other, count in overlap.items():
      if count:
        print(
          f'{split}: {other} has {count:,} of its {len(pairs):,} source sentences',
          file=sys.stderr,
        )
    return Split(
      read=len(pairs),
      kept=len(pairs),
      tokens=dict(zip(STREAMS, tokens, strict=True)),
      sources=[SourceEntry(source.name) for source in self._splits[split]],
      overlap=overlap,
      unknown=dict(zip(STREAMS, unknown, strict=True)),
    )

  def _check_unknown(self, cards: Mapping[str, Split]) -> None:
    """Prints which part of the pieces is unknown text or bytes.

    Raises:
      UserError: it is over half of a text.
    """
    for split, about in cards.items():
      parts = about.unknown.items()
      listed = ', '.join(f'{part:.2%} of the {stream}' for stream, part in parts)
      print(f'{split}: unknown pieces and bytes are {listed}', file=sys.stderr)
      if max(about.unknown.values()) > 0.5 and not self._config.data.cleaning.off:
        raise UserError(
          f'{split}: unknown pieces and bytes are {listed}: the vocabulary is of other '
          'text. Learn one (without --init_from, or with a larger '
          '--config.model.vocab_size), or give --config.data.cleaning.off=True'
        )
