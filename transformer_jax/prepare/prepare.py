"""Prepares a corpus: clean text -> vocabulary -> token files -> dev and test -> card.

Writes a folder NAME.partial and renames it to NAME at the end, so that a folder NAME is
always complete. Training text is not held in memory.
"""

import functools
import itertools
import os
import pathlib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import ml_collections
import numpy as np
import sentencepiece
from tqdm import tqdm

from transformer_jax.data import text, vocabulary
from transformer_jax.data.corpus import (
  NEWSTEST,
  SPLITS,
  STREAMS,
  Card,
  Corpus,
  Overlap,
  SourceEntry,
  SplitEntry,
  VocabularyEntry,
  corpus_settings,
  languages,
  paper_set,
  read_split,
  token_writer,
  write_card,
)
from transformer_jax.data.vocabulary import (
  BOS,
  EOS,
  PAD,
  UNK,
  Vocabularies,
  Vocabulary,
)
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning
from transformer_jax.prepare.sources import Learner, Reader, Sources

_BLOCK = 20_000  # pairs that are encoded at once
# SentencePiece ignores longer lines, which cleaning drops by default.
MAX_LINE_BYTES = 100_000
_ONLY_ERRORS = 2  # SentencePiece's minloglevel


def ensure(
  config: ml_collections.ConfigDict,
  reader: Reader,
  data_dir: pathlib.Path,
  raw_dir: pathlib.Path | None = None,
  tfds_data_dir: pathlib.Path | None = None,
  run: pathlib.Path | None = None,
) -> pathlib.Path:
  """Returns the folder of a config's prepared corpus, and prepares it if necessary.

  Prints the folder, its identity and its sources to stderr.

  Args:
    raw_dir: the folder of the raw text. None: that of the config, if it names one.
    run: the folder of a resumed run, which has the corpus's vocabulary. The corpus is
      then not compared with the raw text.

  Raises:
    UserError: the folder was prepared with other settings or from other files.
  """
  folder = data_dir / config.data.name
  is_prepared = folder.is_dir()
  if os.path.lexists(folder) and not is_prepared:
    raise UserError(f'{folder}: neither a folder nor a link to one: put it right')
  if raw_dir is None and config.data.raw_dir:
    raw_dir = pathlib.Path(config.data.raw_dir).expanduser()
    if is_prepared and not raw_dir.is_dir():  # a corpus may outlive its raw text
      raw_dir = None
  if not is_prepared:
    parent = pathlib.Path(config.init_from.run)
    if run is not None and (run / vocabulary.SHARED).is_file():
      parent = run  # the run of --init_from may be missing on this machine
    sources = reader.sources(config, raw_dir, tfds_data_dir)
    write_corpus(config, reader, sources, data_dir, parent)
  corpus = Corpus.open(folder)
  corpus.check_settings(config)
  card = corpus.card
  if is_prepared and run is None and raw_dir is not None:
    changed = _changed_files(card, reader.sources(config, raw_dir, tfds_data_dir))
    if changed:
      raise UserError(
        f'{folder} was prepared from other files than those in {raw_dir} '
        f'({", ".join(changed)}). To use it as it is, leave out --raw_dir and give '
        '--config.data.raw_dir=; to prepare these files, give --config.data.name=NAME'
      )
  own = pathlib.Path(config.data.vocabulary)
  of_card = card.sha256.get(vocabulary.SHARED)
  if is_prepared and run is None and own.is_file() and files.sha256(own) != of_card:
    raise UserError(
      f'{folder} was prepared with another vocabulary than {own}: put it back, or '
      'give --config.data.name=NAME to prepare with this one'
    )
  names = (source.name for split in card.splits.values() for source in split.sources)
  about = (
    f'{folder} ({card.identity[:12]}), made from {", ".join(dict.fromkeys(names))}'
  )
  print(f'using {about}', file=sys.stderr)
  return folder


def _changed_files(card: Card, sources: Sources) -> list[str]:
  """Returns the names of files that `card` and `sources` do not share."""
  entries = [entry for split in card.splits.values() for entry in split.sources]
  before = {item for entry in entries for item in entry.files.items()}
  paths = {p for some in sources.values() for source in some for p in source.files}
  now = {(path.name, files.sha256(path)) for path in paths}
  return sorted({name for name, _ in before ^ now})


def write_corpus(
  config: ml_collections.ConfigDict,
  reader: Reader,
  sources: Sources,
  data_dir: pathlib.Path,
  parent: pathlib.Path | None = None,
) -> None:
  """Writes data_dir/NAME from the sources of all splits, or leaves nothing."""
  final = data_dir / config.data.name
  partial = final.with_name(f'{final.name}.partial')
  data_dir.mkdir(parents=True, exist_ok=True)
  lock = final.with_name(f'{final.name}.lock')
  with files.exclusive(lock, f'prepares {config.data.name}'):
    if final.exists():  # another process has prepared it meanwhile
      return
    print(f'preparing {final}', file=sys.stderr)
    shutil.rmtree(partial, ignore_errors=True)  # of a preparation that was killed
    partial.mkdir()
    try:
      Preparation(config, reader, sources, partial, parent).write()
      for path in partial.iterdir():
        files.sync(path)
      partial.rename(final)
    finally:
      shutil.rmtree(partial, ignore_errors=True)


def encode_files(
  vocabularies: Vocabularies,
  texts: Sequence[pathlib.Path],
  outputs: Sequence[pathlib.Path],
  max_length: int,
  converters: Sequence[Callable[[str], str]],
) -> list[float]:
  """Encodes two files of lines into two token files.

  Drops pairs with a sentence of over `max_length` tokens, EOS included.

  Args:
    texts: source and target, a sentence a line.
    outputs: the token files to write, without the ends of their names.
    converters: map a source and a target line to what the model reads and writes.

  Returns:
    The fractions of the source's and the target's pieces, without spaces, that are
    unknown text or bytes of rare text.
  """
  unknown, counts = [0, 0], [0, 0]
  lines = zip(*map(cleaning.chosen_lines, texts), strict=True)
  with (
    token_writer(outputs[0]) as add_source,
    token_writer(outputs[1]) as add_target,
    tqdm(desc='encoding', unit=' pairs', unit_scale=True, delay=1) as bar,
  ):
    while pairs := [*itertools.islice(lines, _BLOCK)]:
      encoded = [
        words.encode_flat(map(convert, text))
        for words, convert, text in zip(
          vocabularies, converters, zip(*pairs, strict=True), strict=True
        )
      ]
      fits = np.all([lengths < max_length for _, lengths in encoded], 0)
      for i, (tokens, lengths) in enumerate(encoded):
        kept = tokens[np.repeat(fits, lengths)]
        (add_source, add_target)[i](kept, lengths[fits])
        unknown[i] += int(vocabularies[i].is_unknown[kept].sum())
        counts[i] += int((kept != vocabularies[i].space).sum())
      bar.update(len(pairs))
  return [count / max(1, of) for count, of in zip(unknown, counts, strict=True)]


def _words(line: str) -> str:
  """Returns the words of a line in lower case, or the line itself if it has none."""
  return ' '.join(re.findall(r'\w+', text.nfc(line).lower())) or line.strip()


class Preparation:
  """Writes the files of one corpus into an empty folder.

  Args:
    folder: gets the files of the corpus and, for a while, the clean training text.
    parent: the run that has the vocabulary, if config.init_from.vocabulary names one.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    reader: Reader,
    sources: Sources,
    folder: pathlib.Path,
    parent: pathlib.Path | None,
  ):
    self._config, self._reader = config, reader
    self._sources = cleaning.draw(sources, config.data)
    self._folder, self._parent = folder, parent
    self._texts = {
      split: [folder / f'{split}.{stream}.txt' for stream in STREAMS]
      for split in SPLITS
    }
    self._normalise = lambda line: text.normalise(line, config.data)
    target = reader.output.target(config)
    if config.data.vocabulary:
      check_vocabulary(config)
    self._target = lambda line: target(self._normalise(line))

  def write(self) -> None:
    """Writes all files, the card last."""
    # Dev and test come first, to show their errors before the long work.
    held_out = {split: self._write_held_out(split) for split in SPLITS[1:]}
    train, is_original = self._clean_training()
    cards = {'train': train} | held_out
    self._count_overlaps(held_out)
    if from_run := bool(self._config.init_from.vocabulary):
      sentences_of = self._copy_vocabularies()
    elif self._config.data.vocabulary:
      path = pathlib.Path(self._config.data.vocabulary)
      shutil.copy(path, self._folder / vocabulary.SHARED)
      sentences_of = {vocabulary.SHARED: 0}
    else:
      sentences_of = self._learn_vocabularies(is_original)
    learnt = [Vocabulary(self._folder / name) for name in sentences_of]
    entries = [
      VocabularyEntry(words.sha256, len(words), from_run, sentences)
      for words, sentences in zip(learnt, sentences_of.values(), strict=True)
    ]
    for split, card in cards.items():
      self._encode(split, card, Vocabularies(learnt[0], learnt[-1]))
    for path in self._texts['train']:
      path.unlink()
    for split, sources in self._sources.items():
      for source, entry in zip(sources, cards[split].sources, strict=True):
        entry.files = {path.name: files.sha256(path) for path in source.files}
    settings = corpus_settings(self._config)
    of_target = entries[1] if len(entries) > 1 else None
    versions = {name: version(name) for name in ('numpy', 'sentencepiece')}
    write_card(self._folder, Card(entries[0], cards, settings, of_target, versions))

  # Training

  def _clean_training(self) -> tuple[SplitEntry, np.ndarray]:
    """Writes the clean training text to two files, at most `train_pairs` pairs.

    Returns:
      The card's entry so far, and which pairs are of a source that is not derived,
      [pairs] bool.
    """
    config, sources = self._config, self._sources['train']
    texts, converters = self._texts['train'], (self._normalise, self._target)
    entries = cleaning.write_clean_text(config, sources, texts, converters)
    dropped = sum((Counter(entry.dropped) for entry in entries), Counter())
    kept = [entry.read - sum(entry.dropped.values()) for entry in entries]
    is_original = np.repeat([not source.is_derived for source in sources], kept)
    if (beyond := len(is_original) - config.data.train_pairs) > 0:
      chosen = cleaning.choose_pairs(
        texts, len(is_original), config.data.train_pairs, config.data.seed
      )
      cleaning.keep_lines(texts, chosen)
      is_original = is_original[chosen]
      dropped[f'beyond train_pairs={config.data.train_pairs}'] = beyond
    if not len(is_original):
      reasons = cleaning.describe_faults(dropped) or 'dev and test took all'
      if not any(entry.read for entry in entries):
        reasons = ' and '.join(source.name for source in sources) + ' are empty'
      raise UserError(f'no training pair of {config.data.name} is left: {reasons}')
    read = sum(entry.read for entry in entries)
    split = SplitEntry(
      read=read, kept=len(is_original), sources=entries, dropped=dict(dropped)
    )
    return split, is_original

  def _encode(self, split: str, card: SplitEntry, vocabularies: Vocabularies) -> None:
    """Encodes the text of a split, and writes the counts into its card."""
    source, limit = self._reader.output.source(vocabularies.source), sys.maxsize
    converters = lambda line: source(self._normalise(line)), self._target
    if split == 'train':  # its text is converted
      converters, limit = (source, str), self._config.data.max_length
    paths = [self._folder / f'{split}.{stream}' for stream in STREAMS]
    unknown = encode_files(vocabularies, self._texts[split], paths, limit, converters)
    both = read_split(self._folder, split)
    if not len(both[0]):
      raise UserError(
        f'every training pair is over max_length={limit} tokens '
        '(--config.data.max_length)'
      )
    if too_long := card.kept - len(both[0]):
      card.dropped[f'over {limit} tokens'] = too_long
    card.kept = len(both[0])
    card.tokens = {x: len(text.tokens) for x, text in zip(STREAMS, both, strict=True)}
    card.unknown = dict(zip(STREAMS, unknown, strict=True))
    rare = ', '.join(f'{part:.2%} of the {x}' for x, part in card.unknown.items())
    cleaning.check_pairing(split, *(text.lengths for text in both))
    faults = cleaning.describe_faults(card.dropped)
    print(
      f'{split}: {card.kept:,} of {card.read:,} pairs'
      f'{f"; left out: {faults}" if faults else ""}; unknown pieces and bytes: {rare}',
      file=sys.stderr,
    )
    if max(unknown) > 0.5 and not self._config.data.cleaning.off:
      raise UserError(
        f'{split}: unknown pieces and bytes are {rare}: the vocabulary is of other '
        'text. Learn one (without --init_from, or with a larger '
        '--config.model.vocab_size), or give --config.data.cleaning.off=True'
      )

  # Vocabularies

  def _learn_vocabularies(self, is_original: np.ndarray) -> dict[str, int]:
    """Learns a shared vocabulary from a sample of the clean text, or one per language.

    Args:
      is_original: [pairs] bool, the pairs of sources that are not derived.

    Returns:
      By file, the number of sentences that it was learnt from.
    """
    config, size = self._config, self._config.model.vocab_size
    target_size = config.model.target_vocab_size
    count = min(len(is_original), config.data.vocabulary_pairs)
    print(f'learning {size:,} pieces from {count:,} pairs', file=sys.stderr)
    texts = self._texts['train']
    chosen = cleaning.choose_pairs(texts, len(is_original), count, config.data.seed)
    learn, learn_target = self._reader.learners(config)
    sampled = chosen
    if config.data.whole_words and is_original.any():
      # Derived pairs repeat words, which would then seem to be frequent.
      sampled = chosen & is_original
    lines = cleaning.chosen_lines(texts[0], sampled)
    targets = cleaning.chosen_lines(texts[1], chosen)
    numbers = int(sampled.sum()), int(chosen.sum())
    path = self._folder / vocabulary.SHARED
    if not target_size:
      learn(itertools.chain(lines, targets), path, size)
      return {vocabulary.SHARED: sum(numbers)}
    learn(lines, path, size)
    print(f'learning {target_size:,} pieces for the target alone', file=sys.stderr)
    learn_target(targets, self._folder / vocabulary.TARGETS, target_size)
    return dict(zip((vocabulary.SHARED, vocabulary.TARGETS), numbers, strict=True))

  def _copy_vocabularies(self) -> dict[str, int]:
    """Copies the vocabularies that config.init_from.vocabulary names; returns 0s."""
    assert self._parent is not None, 'a run to start from has vocabularies'
    names = vocabulary.SHARED, vocabulary.TARGETS
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
    return dict.fromkeys(names[: len(sums)], 0)

  # Dev and test

  def _write_held_out(self, split: str) -> SplitEntry:
    """Writes the text of dev or test in its order, lower-cased if data.lowercase."""
    pairs: list[tuple[str, str]] = []
    sources = self._sources[split]
    for source in sources:
      for number, pair in enumerate(source.pairs(), 1):
        if isinstance(pair, UserError):
          raise pair
        source_line, target_line = pair
        if source_line is None or target_line is None:
          raise UserError(
            f'{source.name}, line {number} of the {STREAMS[pair.index(None)]}: not '
            f'UTF-8; mend the {split} file'
          )
        pairs.append((source_line, target_line))
    names = ', '.join(source.name for source in sources) or 'no files'
    if not pairs:
      raise UserError(f'{names}: the {split} split is empty')
    if self._config.data.lowercase:
      pairs = [(source.lower(), target.lower()) for source, target in pairs]
    cleaning.check_languages(pairs, languages(self._config), names)
    odd = sum(self._normalise(target) != target for _, target in pairs)
    if odd:
      print(
        f'WARNING: {names}: {odd:,} references are not in NFC, but translations will '
        'be, so BLEU counts accents as errors: bring the files to NFC (uconv -x nfc)',
        file=sys.stderr,
      )
    for path, lines in zip(self._texts[split], zip(*pairs, strict=True), strict=True):
      path.write_bytes(''.join(f'{line}\n' for line in lines).encode())
    digest = files.sha256(self._texts[split][1])
    for stem in self._config.data.files[split]:
      if (name := paper_set(stem)) and name != NEWSTEST.get(digest[:12]):
        print(
          f"{split}: {stem} ({len(pairs):,} pairs) is not the paper's {name}: its "
          "scores do not compare with the paper's",
          file=sys.stderr,
        )
    entries = [SourceEntry(source.name) for source in sources]
    return SplitEntry(read=len(pairs), kept=len(pairs), sources=entries)

  def _count_overlaps(self, held_out: Mapping[str, SplitEntry]) -> None:
    """Counts the sources, targets and pairs of dev and test that other splits have too.

    Sentences are the same if they have the same words in lower case.
    """

    def rows(split: str) -> Iterator[tuple[str, str, tuple[str, str]]]:
      """Yields what is compared of each pair: source, target, both."""
      # The file of training targets is converted already: trees may have numbers.
      convert = str if split == 'train' else self._target
      for pair in zip(*map(cleaning.chosen_lines, self._texts[split]), strict=True):
        source, target = _words(pair[0]), _words(convert(pair[1]))
        yield source, target, (source, target)

    texts = {split: [*rows(split)] for split in held_out}
    seen = {split: [*map(set, zip(*texts[split], strict=True))] for split in held_out}
    # Of training, only what dev or test has: it is not held in memory.
    compared = [set.union(*sets) for sets in zip(*seen.values(), strict=True)]
    seen['train'] = [set(), set(), set()]
    for row in rows('train'):
      for sentence, wanted, in_train in zip(row, compared, seen['train'], strict=True):
        if sentence in wanted:
          in_train.add(sentence)
    for split, other in itertools.product(held_out, SPLITS):
      if other == split:
        continue
      columns = zip(zip(*texts[split], strict=True), seen[other], strict=True)
      overlap = Overlap(*(sum(x in known for x in column) for column, known in columns))
      held_out[split].overlap[other] = overlap
      if any(overlap.counts().values()):
        about = f'{other} has of its {len(texts[split]):,} pairs {overlap}'
        print(f'{split}: {about}', file=sys.stderr)


# Vocabularies


def learners(config: ml_collections.ConfigDict) -> tuple[Learner, Learner]:
  """Returns learners of byte pairs: of source or both languages, and of the target.

  The rarest characters, beyond `character_coverage`, get no piece. They become <unk>,
  or, with `byte_fallback`, are spelt in bytes, which take 256 pieces.
  """
  names = 'character_coverage', 'byte_fallback'
  options = {'model_type': 'bpe'} | {name: config.data[name] for name in names}
  learn_pieces = functools.partial(learn, options=options)
  return learn_pieces, learn_pieces


def learn(
  lines: Iterable[str], path: pathlib.Path, size: int, options: Mapping[str, Any]
) -> None:
  """Runs SentencePiece on the lines of a text, or on its tokens with their counts.

  Raises:
    UserError: the lines have too few pieces, or too many characters, for `size`.
  """
  with path.open('wb') as model:
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        **options,
        normalization_rule_name='identity',
        max_sentence_length=MAX_LINE_BYTES,
        pad_id=PAD,
        eos_id=EOS,
        bos_id=BOS,
        unk_id=UNK,
        minloglevel=_ONLY_ERRORS,
      )
    except RuntimeError as error:
      key = 'target_vocab_size' if path.name == vocabulary.TARGETS else 'vocab_size'
      reason = str(error).rpartition('] ')[2]
      if needed := re.search(r'smaller than required_chars. \d+ vs (\d+)', reason):
        reason = (
          f'its characters alone, and bytes if there are any, take {needed[1]}: give '
          f'more pieces, or a lower --config.data.character_coverage'
        )
      raise UserError(
        f'no vocabulary of {size} pieces (--config.model.{key}) can be made from '
        f'this corpus: {reason}'
      ) from error


def check_vocabulary(config: ml_collections.ConfigDict) -> None:
  """Raises UserError unless data.vocabulary is a model that the config can use.

  Such a model has our special ids, and does not change text: translations are compared
  with raw references.
  """
  path = pathlib.Path(config.data.vocabulary)
  if not path.is_file():
    raise UserError(f'{path}: no such file (--config.data.vocabulary)')
  ours, size = Vocabulary(path), config.model.vocab_size
  if config.model.target_vocab_size or config.init_from.vocabulary:
    raise UserError(
      'data.vocabulary is of both languages: it goes neither with '
      '--config.model.target_vocab_size nor with --init_from'
    )
  model = vocabulary.model_pb2.ModelProto.FromString(path.read_bytes())
  spec, normaliser = model.trainer_spec, model.normalizer_spec.name
  ids = spec.pad_id, spec.eos_id, spec.bos_id, spec.unk_id
  if normaliser != 'identity' or ids != (PAD, EOS, BOS, UNK):
    raise UserError(
      f'{path}: its normaliser is {normaliser!r}, and its ids of padding, end, start '
      f'and unknown text are {ids}: make it by spm_train '
      f'--normalization_rule_name=identity --pad_id={PAD} --eos_id={EOS} '
      f'--bos_id={BOS} --unk_id={UNK}'
    )
  if len(ours) != size:
    raise UserError(
      f'{path} has {len(ours)} pieces, and the config says {size}: give '
      f'--config.model.vocab_size={len(ours)}'
    )
