"""Every key of a config: type, range, value in base, what it decides, what it means.

  NAME: TYPE = key(VALUE, TAGS, 'What it means.')

declares a key, and nothing else needs to list it. VALUE is that of the paper's base
model, English to German. Numbers such as 5.4 are the paper's sections. `--config.NAME=`
sets a key, and `python -m scripts.describe --config=FILE` prints all keys of a config.

Runs, results and cards that were written before a key existed stay readable: they get
VALUE, or that of `before=` if older programs behaved otherwise.

The tags decide whether two corpora are the same, what a run shares with the run that
it starts from, which results a table may compare, and which columns Table 3 has.
"""

import dataclasses
import enum
import functools
import json
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

import ml_collections
import msgspec
from msgspec import Meta

from transformer_jax.machine.errors import UserError


class Tag(enum.Flag):
  """What a key decides. Each key has one or more of the first five."""

  CORPUS = enum.auto()  # what is in the folder of a prepared corpus
  # What is computed with the parameters. A run that starts from another run's
  # parameters has the same values.
  MODEL = enum.auto()
  TRAINING = enum.auto()  # which parameters training leads to
  SEARCH = enum.auto()  # which text is decoded and scored, and how
  # What is printed and kept. Scores depend on no more of it than the result records,
  # such as the step.
  BOOKKEEPING = enum.auto()
  CELL = enum.auto()  # a column of Table 3
  VARIES = enum.auto()  # not a column, but may differ between results of one table
  TREES = enum.auto()  # how trees are written; other text has base's value


CORPUS, MODEL, TRAINING, SEARCH, BOOKKEEPING, CELL, VARIES, TREES = Tag

# Ranges. Seeds and counts are of 32 bits on the devices.
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
FromZero = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Few = Annotated[int, Meta(ge=1, le=2**10)]
FewOrNone = Annotated[int, Meta(ge=0, le=2**10)]
Width = Annotated[int, Meta(ge=1, le=2**16)]
Tokens = Annotated[int, Meta(ge=1, le=10**7)]
TokensOrNone = Annotated[int, Meta(ge=0, le=10**7)]
Pairs = Annotated[int, Meta(ge=1, le=2**32 - 1)]
Length = Annotated[int, Meta(ge=2, le=2**13)]
# Four ids stand for no text, and files hold uint16.
Pieces = Annotated[int, Meta(ge=5, le=2**16)]
PiecesOrNone = Annotated[int, Meta(ge=0, le=2**16)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
LEAST_RATE = 0.5 / 65536  # model/dropout.py rounds this and less to 0
Rate = Annotated[float, Meta(ge=0, le=0.999)]  # of dropout, which divides by 1 - rate
Ratio = Annotated[float, Meta(ge=1, le=1e9)]
Coverage = Annotated[float, Meta(ge=0.98, le=1)]  # SentencePiece's range
# A learning rate that overflows float32 would make all parameters infinite.
Positive = Annotated[float, Meta(gt=0, le=1000)]
Exponent = Annotated[float, Meta(ge=-10, le=10)]
DType = Literal['auto', 'float32', 'bfloat16']
Name = Annotated[str, Meta(min_length=1)]
Names = Annotated[tuple[str, ...], Meta(min_length=1)]


_BASE = object()


def key(base: Any, tags: Tag, meaning: str, *, before: Any = _BASE) -> Any:
  """Declares a key.

  Args:
    base: its value in base.
    tags: what it decides.
    meaning: a sentence.
    before: the value of what was stored before the key existed; base's by default.
  """
  stored = base if before is _BASE else before
  return dataclasses.field(default=base, metadata={'notes': (tags, meaning, stored)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
  """data.files: names without the language, such as train for train.en and train.de.

  A name may be sacreBLEU's of a test set, sacrebleu:wmt13. In dev and test of files of
  text it may be drawn:1000, which draws 1,000 pairs from train.
  """

  train: Names = key(('train',), CORPUS, 'Files of training text.')
  dev: Names = key(('newstest2013',), CORPUS | SEARCH, 'Files of the development set.')
  test: Names = key(('newstest2014',), CORPUS | SEARCH, 'Files of the test set.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cleaning:
  """data.cleaning: limits beyond which a training pair is dropped.

  The paper names no such limits; its code had max_length alone.
  """

  off: bool = key(
    False,
    CORPUS,
    'Drop only pairs that are empty or not text, and ignore the limits below.',
  )
  max_characters: Count = key(
    5000, CORPUS, 'Largest number of characters in a sentence.'
  )
  max_ratio: Ratio = key(
    9.0, CORPUS, 'Largest ratio of the word counts of a pair, as in Moses.'
  )
  drop_untranslated: bool = key(
    True, CORPUS, 'Drop pairs of equal sentences, unless they are names or numbers.'
  )
  min_alphanumeric: Fraction = key(
    0.3, CORPUS, 'Smallest fraction of letters and digits in a sentence.'
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
  """data: the corpus (section 5.1)."""

  name: Name = key(
    'wmt14.en-de', CORPUS, 'Name of the corpus and of its folder in --data_dir.'
  )
  reader: Name = key(
    'wmt14',
    CORPUS | SEARCH,
    "Reader of raw text: 'wmt14' (tensorflow-datasets, or Parquet in --raw_dir), "
    "'files' (a sentence a line), 'trees' (NAME.mrg) or 'embedded' (quickstart).",
  )
  source_language: Name = key(
    'en', CORPUS | SEARCH, 'Code of the source language, as in train.en.'
  )
  target_language: Name = key(
    'de', CORPUS | SEARCH, "Code of the target language, or 'tree'."
  )
  raw_dir: str = key('', BOOKKEEPING, 'Folder of raw text, unless --raw_dir names one.')
  files: Files = Files()
  tags: bool = key(
    True, CORPUS | MODEL | TREES, 'Write words in a tree as their tags. False: as XX.'
  )
  numbers: bool = key(
    False, CORPUS | MODEL | TREES, "Write each word's number before its tag in a tree."
  )
  whole_words: bool = key(
    False,
    CORPUS | MODEL | TREES,
    'Make each source word one piece. A rare word becomes the piece of its class.',
  )
  suffix: str = key(
    '', CORPUS, "Part of a file name before the language, such as '.lc.norm.tok'."
  )
  tokenized: bool = key(
    False, SEARCH, 'The files are tokenised, so score their tokens as they are.'
  )
  seed: FromZero = key(1, CORPUS, 'Seed for sampling pairs during preparation.')
  cleaning: Cleaning = Cleaning()
  train_pairs: Pairs = key(
    10**9,
    CORPUS,
    'Largest number of training pairs, chosen by a hash of the text.',
  )
  vocabulary_pairs: Pairs = key(
    1_000_000, CORPUS, 'Largest number of pairs that the vocabulary is learned from.'
  )
  vocabulary: str = key(
    '', CORPUS, "File of your own SentencePiece model. '': learn one."
  )
  character_coverage: Coverage = key(
    0.99995,
    CORPUS,
    'Fraction of characters that get a piece. The others are spelt in bytes.',
  )
  byte_fallback: bool = key(
    True, CORPUS, 'Add the 256 bytes as pieces, which spell any text.'
  )
  nfc: bool = key(
    False, CORPUS, "Normalise text to Unicode's form NFC, except references."
  )
  lowercase: bool = key(False, CORPUS, 'Lower-case all text, references too.')
  max_length: Length = key(
    256, CORPUS, 'Longest training sentence in tokens, with EOS.'
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """model: the Transformer (section 3), by the names of Table 3."""

  N: Few = key(6, MODEL | CELL, 'Layers of the encoder and of the decoder (3.1).')
  d_model: Width = key(512, MODEL | CELL, 'Width of embeddings and layers (3.1).')
  d_ff: Width = key(2048, MODEL | CELL, 'Inner width of feed-forward networks (3.3).')
  h: Few = key(8, MODEL | CELL, 'Attention heads (3.2.2).')
  d_k: Width = key(64, MODEL | CELL, "Width of a head's queries and keys (3.2.2).")
  d_v: Width = key(64, MODEL | CELL, "Width of a head's values (3.2.2).")
  P_drop: Rate = key(
    0.1, TRAINING | CELL, 'Dropout of sub-layer outputs and embedding sums (5.4).'
  )
  P_drop_attention: Rate = key(
    0.0, TRAINING, 'Dropout of attention weights, which the paper does not have (5.4).'
  )
  positions: Literal['sinusoid', 'learned'] = key(
    'sinusoid', MODEL | CELL, "Positional encoding (3.5). Row E has 'learned'."
  )
  max_positions: Width = key(
    256, MODEL, 'Longest sequence that learned positions can encode.'
  )
  vocab_size: Pieces = key(37000, CORPUS | MODEL, 'Vocabulary size in pieces (5.1).')
  target_vocab_size: PiecesOrNone = key(
    0, CORPUS | MODEL, 'Size of a separate target vocabulary. 0: one for both (3.4).'
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitFrom:
  """init_from: another run's checkpoint to start from, which --init_from fills in."""

  run: str = key('', BOOKKEEPING, 'Folder of the run to start from.')
  step: FromZero = key(0, TRAINING, 'Step of the checkpoint to start from.')
  sha256: str = key('', TRAINING, "sha256 of that checkpoint's manifest.")
  vocabulary: str = key('', CORPUS | TRAINING, "sha256 of that run's vocabularies.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """All keys of a config."""

  task: Name = key('translation', MODEL, "Task: 'translation' or 'parsing' (6.3).")
  row: str | None = key(
    'base', BOOKKEEPING | VARIES, 'Row of Table 3 that this config trains, or None.'
  )
  data: Data = Data()
  # Batches (5.1)
  tokens_per_batch: Tokens = key(
    25000,
    TRAINING,
    'Tokens per batch, counted on the longer side, without padding (5.1).',
  )
  slices: Width = key(
    8, TRAINING, 'Number of slices of a batch. The paper had 8 GPUs (5.2).'
  )
  max_shapes: Few = key(
    24,
    TRAINING,
    'Largest number of batch shapes. Fewer compile faster and pad more.',
    before=12,
  )
  model: Model = Model()
  epsilon_ls: BelowOne = key(0.1, TRAINING | CELL, 'Label smoothing (5.4).')
  train_steps: Count = key(100_000, TRAINING | CELL, 'Number of updates (5.2).')
  # Optimiser (5.3)
  warmup_steps: Count = key(
    4000, TRAINING, 'Updates in which the learning rate rises, in Equation 3 (5.3).'
  )
  rate_factor: Positive = key(
    1.0, TRAINING, 'Factor of the learning rate of Equation 3 (5.3).'
  )
  adam_b1: BelowOne = key(0.9, TRAINING, "Adam's beta_1 (5.3).")
  adam_b2: BelowOne = key(0.98, TRAINING, "Adam's beta_2 (5.3).")
  adam_epsilon: Positive = key(1e-9, TRAINING, "Adam's epsilon (5.3).")
  # Checkpoints
  checkpoint_every_steps: Count = key(
    1500, BOOKKEEPING, 'Updates from one checkpoint to the next (10 minutes in 6.1).'
  )
  keep_checkpoints: Count = key(20, BOOKKEEPING, 'Number of last checkpoints to keep.')
  average_last: Count = key(
    5, SEARCH | VARIES, 'Number of last checkpoints to average (6.1).'
  )
  best_by: Literal['', 'perplexity', 'bleu'] = key(
    '',
    BOOKKEEPING,
    "Also keep the best checkpoint by dev perplexity or greedy dev BLEU. '': do not.",
  )
  bleu_every_checkpoints: Count = key(
    1, BOOKKEEPING, 'Checkpoints from one greedy dev BLEU to the next.'
  )
  bleu_sentences: Count = key(
    500,
    BOOKKEEPING,
    'Number of dev sentences, from the first on, that greedy dev BLEU uses.',
  )
  patience: FewOrNone = key(
    0,
    BOOKKEEPING,
    'Stop after this many dev scores in a row without a better one. The score is BLEU '
    'with best_by=bleu, else perplexity. 0: never stop.',
  )
  init_from: InitFrom = InitFrom()
  # Search (6.1)
  beam: Few = key(4, SEARCH | VARIES, 'Beam size (6.1).')
  alpha: Exponent = key(0.6, SEARCH | VARIES, 'Length penalty (6.1).')
  extra_length: FewOrNone = key(
    50, SEARCH, 'Number of tokens by which an output may exceed its source (6.1).'
  )
  constrained: bool = key(
    False, SEARCH, "Restrict a parser's search to well-formed trees."
  )
  decode_tokens: TokensOrNone = key(
    0,
    BOOKKEEPING,
    'Tokens per batch in search and dev perplexity, with padding. 0: 4,096 on CPUs, '
    'and for each accelerator 4,096 per 4 GiB of its memory, at most 32,768.',
  )
  decode_dtype: DType = key(
    'auto',
    SEARCH | VARIES,
    "Dtype of search's products and, on accelerators, activations. auto: bfloat16 on "
    'accelerators, Intel CPUs with AMX and AMD CPUs with avx512_bf16, else float32.',
  )
  # Running
  seed: FromZero = key(
    1, TRAINING | VARIES, 'Seed for initialisation, batch order and dropout.'
  )
  dtype: DType = key(
    'auto',
    TRAINING,
    "Dtype of training's products and, on accelerators, activations. auto: bfloat16 on "
    'accelerators, else float32.',
  )
  kernels: Literal['auto', 'plain'] = key(
    'auto',
    BOOKKEEPING,
    'Kernels in training. auto: Pallas kernels on NVIDIA GPUs. plain: none.',
  )
  log_every_steps: Count = key(
    100, BOOKKEEPING, 'Updates from one line of the log to the next.'
  )


# The declarations


class Key(NamedTuple):
  """A declared key; its name is dotted, such as model.N."""

  name: str
  type: Any  # with its range
  tags: Tag
  meaning: str
  before: Any  # its value in what was stored before the key existed
  base: Any  # its value in base


def _declared(schema: Any, prefix: str = '') -> Iterator[Key]:
  for field in dataclasses.fields(schema):
    name = prefix + field.name
    if dataclasses.is_dataclass(field.type):
      yield from _declared(field.type, f'{name}.')
    else:
      tags, meaning, before = field.metadata['notes']
      yield Key(name, field.type, tags, meaning, before, field.default)


KEYS = {key.name: key for key in _declared(Config)}


def keys_of(tag: Tag) -> tuple[str, ...]:
  """Returns the names of the keys that have a tag."""
  return tuple(name for name, key in KEYS.items() if tag in key.tags)


def values(config: Mapping[str, Any], tag: Tag) -> dict[str, Any]:
  """Returns a config's values of the keys that have a tag, under dotted names."""
  every = flat(config)
  return {name: every[name] for name in keys_of(tag)}


def cells(config: Mapping[str, Any]) -> dict[str, float | str]:
  """Returns a config's values of Table 3's columns."""
  return {k.rpartition('.')[2]: value for k, value in values(config, CELL).items()}


def target_pieces(model: Mapping[str, Any]) -> int:
  """Returns the number of pieces that a model, config.model, chooses from."""
  return model['target_vocab_size'] or model['vocab_size']


def describe(config: Mapping[str, Any]) -> Iterator[str]:
  """Yields a line for each key: its value, base's if it differs, and its meaning."""
  values = flat(config)
  for name, key in KEYS.items():
    value = values[name]
    other = '' if value == key.base else f' (base: {key.base!r})'
    yield f'{f"{name} = {value!r}{other}":42}  # {key.meaning}'


# Configs as dictionaries


def base() -> dict[str, Any]:
  """Returns base's values of all keys, in nested dictionaries."""
  return dataclasses.asdict(Config())


def as_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns what config.json holds: plain dictionaries, and lists for tuples."""
  return json.loads(config.to_json_best_effort())


def complete(stored: Mapping[str, Any], schema: Any = Config) -> dict[str, Any]:
  """Returns a stored config, with missing keys filled in from their `before`."""
  values = dict(stored)
  for field in dataclasses.fields(schema):
    if not dataclasses.is_dataclass(field.type):
      before = field.metadata['notes'][-1]
      is_tuple = isinstance(before, tuple)  # JSON has none
      values.setdefault(field.name, [*before] if is_tuple else before)
    elif isinstance(section := stored.get(field.name, {}), Mapping):
      values[field.name] = complete(section, field.type)
  return values


def check(config: Mapping[str, Any], flag: str = '--config.') -> None:
  """Raises UserError if a key is missing, unknown, or has a value that no run can have.

  `flag` begins the command-line flags that set a key, which the message names.
  """
  try:
    msgspec.convert(config, Config)
  except msgspec.ValidationError as error:
    raise UserError(_sentence(str(error), config, flag)) from error
  if differ := KEYS.keys() ^ flat(config).keys():
    name = min(differ)
    raise UserError(
      f'{name} is {"missing" if name in KEYS else "unknown"}: '
      'transformer_jax/config.py declares the keys of this version'
    )
  model = config['model']
  pieces = 'target_vocab_size' if model['target_vocab_size'] else 'vocab_size'
  if config['beam'] > model[pieces]:
    raise UserError(
      f'beam={config["beam"]} is more than {pieces}={model[pieces]} ({flag}beam)'
    )
  if config['keep_checkpoints'] < config['average_last']:
    raise UserError(
      f'keep_checkpoints={config["keep_checkpoints"]} is too few to average the last '
      f'{config["average_last"]} (--config.keep_checkpoints, --config.average_last)'
    )
  for name in ('P_drop', 'P_drop_attention'):
    if 0 < model[name] <= LEAST_RATE:
      raise UserError(
        f'model.{name}={model[name]} drops nothing, since a rate is rounded to a '
        f'65536th: give 0, or {LEAST_RATE:.0e} or more (--config.model.{name})'
      )
  longest, limit = config['data']['max_length'], model['max_positions']
  if model['positions'] == 'learned' and longest > limit:
    raise UserError(
      f'max_length={longest} is more than the model learns positions for, '
      f'max_positions={limit} (--config.data.max_length, --config.model.max_positions)'
    )


def check_row(
  config: ml_collections.ConfigDict, plain: ml_collections.ConfigDict
) -> None:
  """Raises UserError if a config names a row of Table 3 but has other cells.

  `plain` is the config as its file has it. train_steps may differ: results state it.
  """
  of_row = {'row', *keys_of(CELL)} - {'train_steps'}
  changed = sorted(differences(config.to_dict(), plain.to_dict()) & of_row)
  if config.row is not None and changed:
    raise UserError(
      f'{", ".join(changed)}: not as in the config file, so this is not row '
      f'{config.row} of Table 3. Give --config=configs/table3.py:ROW for a row, or '
      '--config.row=None'
    )


def _sentence(error: str, config: Mapping[str, Any], flag: str) -> str:
  """Returns msgspec's error with the key, its value and the flag that sets it."""
  text, _, path = error.partition(' - at ')
  key = re.findall(r'`\$\.([^`[]*)', path)[0]
  value = functools.reduce(operator.getitem, key.split('.'), config)
  if text.startswith('Invalid enum value'):
    choices = get_args(KEYS[key].type)
    text = f'it is one of {", ".join(repr(choice) for choice in choices)}'
  return f'{key}={value}: {text} ({flag}{key})'


def flat(config: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Returns the values of a nested dictionary under dotted names."""
  values: dict[str, Any] = {}
  for key, value in config.items():
    nested = isinstance(value, Mapping)
    values |= flat(value, f'{prefix}{key}.') if nested else {prefix + key: value}
  return values


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
  """Returns the dotted names of keys in which two configs of the same keys differ."""
  a, b = flat(a), flat(b)
  return {key for key in a if a[key] != b[key]}
