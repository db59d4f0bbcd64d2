"""A folder of Hugging Face's Marian, read as data and checked (no pickle is opened)."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import safetensors
from safetensors.numpy import load_file

from transformer_jax.data.vocabulary import BOS, EOS, PAD, SPECIAL, UNK
from transformer_jax.exchange import archive, marian, pieces
from transformer_jax.exchange.folders import PARTIAL
from transformer_jax.exchange.huggingface import EPSILON, SPM, WEIGHTS
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

VOCABULARY = 'vocab.json'
FILES = ('config.json', WEIGHTS, VOCABULARY, *SPM)
PICKLES = ('pytorch_model.bin', 'model.npz', 'tf_model.h5', 'rust_model.ot')
START = 'decoder_start_token_id'
# The least share of a SentencePiece model's pieces that has to be in the vocabulary.
OVERLAP = 0.9
MOST = 2**16  # of any size: more pieces do not fit in token files
NEVER = -100.0  # the logit's bias of a row that is never written

# Keys of config.json: the required value, and the value that an absent key stands for.
REQUIRED = {
  'model_type': ('marian', None),
  'normalize_before': (False, False),  # pre-norm
  'normalize_embedding': (False, False),
  'add_final_layer_norm': (False, False),
  'static_position_embeddings': (True, True),
  'share_encoder_decoder_embeddings': (True, True),
  'tie_word_embeddings': (True, True),
}
ACTIVATIONS = {'relu': 'relu', 'swish': 'swish', 'silu': 'swish'}


class Incoming(NamedTuple):
  """A model from elsewhere.

  Attributes:
    model: keys of our config's `model`.
    arrays: Marian's, float32; their rows are ours.
    spm: SentencePiece models of source and target, whose ids are the rows.
    notes: what the user should know.
  """

  model: dict[str, Any]
  arrays: marian.Arrays
  spm: tuple[bytes, bytes]
  notes: list[str]


def read(folder: pathlib.Path) -> Incoming:
  """Reads a folder as MarianMTModel.save_pretrained() and its tokenizer write it.

  Raises:
    UserError: it is no such folder, is not whole, or holds a model that ours cannot be.
  """
  _check_files(folder)
  config = _config(folder)
  try:
    model = _sizes(config)
  except UserError as error:
    raise UserError(f'{folder / "config.json"}: {error}') from error
  N, size = model['N'], config['vocab_size']
  shapes = marian.expected(N, model['d_model'], model['d_ff'], size)
  try:
    arrays = marian.checked(_loaded(folder / WEIGHTS), shapes)
  except (safetensors.SafetensorError, UserError) as error:
    raise UserError(f'{folder / WEIGHTS}: {error}') from error
  if not _value(config, 'scale_embedding', False):
    arrays = marian.with_embedding_scale(arrays, N)
  factor = marian.norm_factor(model['norm_epsilon'])
  arrays = marian.enlarged(arrays, N, 1 / factor)
  rows = _rows(config, _vocabulary(folder / VOCABULARY, config))
  arrays |= _of_rows(arrays, [their for their, _ in rows])
  spm, notes = _spm(folder, rows)
  model |= {'vocab_size': len(rows), 'biases': marian.has_biases(arrays)}
  return Incoming(model, arrays, spm, notes)


def _loaded(path: pathlib.Path) -> marian.Arrays:
  try:
    return load_file(path)
  except (AttributeError, KeyError, TypeError) as error:  # of safetensors, for NumPy
    raise UserError(
      f'it has a type of numbers that cannot come in ({error}): float32, float16 and '
      'bfloat16 can'
    ) from error


def _check_files(folder: pathlib.Path) -> None:
  missing = [name for name in FILES if not (folder / name).is_file()]
  there = lambda *names: [name for name in names if (folder / name).exists()]
  if folder.name.endswith(PARTIAL):
    why = 'is half of an export that was stopped: export again'
  elif not folder.is_dir():
    why = 'is no folder; --input takes the folder of a Hugging Face Marian model'
  elif there(archive.CONFIG):
    why = 'is an archive of our own names: export with --format=huggingface'
  elif there('model.bin'):
    why = 'is a model of CTranslate2: take the one that it was converted from'
  elif WEIGHTS in missing and (old := there(*PICKLES)):
    why = (
      f'has its weights as {old[0]}, and no such file is opened here, since some can '
      'run code: MarianMTModel.from_pretrained(FOLDER).save_pretrained(OTHER) writes '
      f'{WEIGHTS}'
    )
  elif missing:
    why = (
      f'lacks {", ".join(missing)}: a Hugging Face Marian model has {", ".join(FILES)}'
    )
  else:
    return
  raise UserError(f'{folder} {why}')


def _config(folder: pathlib.Path) -> dict[str, Any]:
  """config.json, with the first word's id, which may stand in a file of its own."""
  config = files.read_json_object(folder / 'config.json')
  generation = folder / 'generation_config.json'
  if START not in config and generation.is_file():
    more = files.read_json_object(generation)
    config |= {START: more[START]} if START in more else {}
  return config


def _value(config: Mapping[str, Any], key: str, otherwise: Any) -> Any:
  return config[key] if key in config else otherwise


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
  """Keys of our config's `model`; UserError for what ours cannot be."""
  for key, (needed, otherwise) in REQUIRED.items():
    if (found := _value(config, key, otherwise)) != needed:
      raise UserError(
        f'{key} is {json.dumps(found)}: only {json.dumps(needed)} can come in, as the '
        "paper's model has it"
      )
  activation = _value(config, 'activation_function', 'gelu')
  if not isinstance(activation, str) or activation not in ACTIVATIONS:
    raise UserError(
      f'activation_function is {activation!r}: only {" or ".join(ACTIVATIONS)} can '
      'come in'
    )
  sizes = {'d_model': _whole(config, 'd_model')}
  for ours, theirs in (('N', 'layers'), ('h', 'attention_heads'), ('d_ff', 'ffn_dim')):
    stacks = [_whole(config, f'{stack}_{theirs}') for stack in ('encoder', 'decoder')]
    if stacks[0] != stacks[1]:
      raise UserError(
        f'encoder_{theirs} is {stacks[0]} and decoder_{theirs} {stacks[1]}: only '
        'models whose stacks are alike can come in'
      )
    sizes[ours] = stacks[0]
  if sizes['d_model'] % sizes['h']:
    raise UserError(
      f'd_model={sizes["d_model"]} is no multiple of the {sizes["h"]} heads'
    )
  sizes |= dict.fromkeys(('d_k', 'd_v'), sizes['d_model'] // sizes['h'])
  epsilon = _value(config, EPSILON, marian.NORM_EPSILON)
  if not isinstance(epsilon, float) or not 0 < epsilon < 1:
    raise UserError(f'{EPSILON} is {epsilon!r}: a number between 0 and 1')
  for key in ('pad_token_id', 'eos_token_id', START):
    if _whole(config, key, least=0) >= _whole(config, 'vocab_size'):
      raise UserError(f'{key} is {config[key]}, and vocab_size {config["vocab_size"]}')
  dropout = {}
  for ours, theirs, otherwise in (
    ('P_drop', 'dropout', 0.1),
    ('P_drop_attention', 'attention_dropout', 0.0),
  ):
    dropout[ours] = _value(config, theirs, otherwise)
    if type(dropout[ours]) not in (int, float) or not 0 <= dropout[ours] < 1:
      raise UserError(f'{theirs} is {dropout[ours]!r}: from 0 to less than 1')
  return sizes | {
    **dropout,
    'positions': 'sinusoid',
    'target_vocab_size': 0,
    'activation': ACTIVATIONS[activation],
    'norm_epsilon': epsilon,
  }


def _whole(config: Mapping[str, Any], key: str, *, least: int = 1) -> int:
  value = _value(config, key, None)
  if type(value) is not int or not least <= value <= MOST:
    raise UserError(f'{key} is {value!r}: a whole number from {least} to {MOST:,}')
  return value


def _vocabulary(path: pathlib.Path, config: Mapping[str, Any]) -> list[str]:
  """The piece of each of their rows."""
  found, size = files.read_json_object(path), config['vocab_size']
  if sorted(map(str, found.values())) != sorted(map(str, range(size))):
    raise UserError(
      f'{path}: is not the vocabulary of the model: with vocab_size={size}, the rows 0 '
      f'to {size - 1} should have a piece each, and there are {len(found)} pieces'
    )
  ids = {'</s>': config['eos_token_id'], '<pad>': config['pad_token_id']}
  for piece, row in ids.items():
    if piece not in found or int(found[piece]) != row:
      raise UserError(
        f'{path}: is not the vocabulary of the model: {piece} is not {row}'
      )
  if '<unk>' not in found:
    raise UserError(f'{path}: has no <unk>')
  for key in (START, 'pad_token_id'):
    if config[key] in (int(found['</s>']), int(found['<unk>'])):
      raise UserError(
        f'{path}: {key}={config[key]} is </s> or <unk>: only models in which padding '
        'and first word are neither can come in'
      )
  return sorted(found, key=lambda piece: int(found[piece]))


Row = tuple[int | None, str]  # which of their rows, None for a row of zeros; its piece


def _rows(config: Mapping[str, Any], vocabulary: Sequence[str]) -> list[Row]:
  """Our rows: the four special ones, and then theirs in order.

  Where the first word is their padding, as in published models, that row is our <s>,
  and <pad> is a row of zeros.
  """
  start, pad = config[START], config['pad_token_id']
  special: dict[int, int | None] = {
    PAD: None if start == pad else pad,
    EOS: config['eos_token_id'],
    BOS: start,
    UNK: vocabulary.index('<unk>'),
  }
  rest = sorted({*range(len(vocabulary))} - {*special.values()})
  rows = [(special[row], pieces.SPECIALS[row]) for row in range(SPECIAL)]
  return rows + [(row, vocabulary[row]) for row in rest]


def _of_rows(arrays: marian.Arrays, rows: Sequence[int | None]) -> marian.Arrays:
  """The embeddings and the logits' biases of our rows; a new row is never written."""
  index = [0 if row is None else row for row in rows]
  new = np.array([row is None for row in rows])
  embedding = arrays[marian.EMBEDDING][index]
  bias = arrays[marian.LOGITS_BIAS][:, index]
  embedding[new], bias[:, new] = 0.0, NEVER
  return {marian.EMBEDDING: embedding, marian.LOGITS_BIAS: bias}


def _spm(
  folder: pathlib.Path, rows: Sequence[Row]
) -> tuple[tuple[bytes, bytes], list[str]]:
  """The SentencePiece models over our rows, and what to tell of them."""
  made, notes = [], []
  for name in SPM:
    found = pieces.over_rows(folder / name, [piece for _, piece in rows])
    if found.kept < OVERLAP * (found.kept + len(found.absent)):
      raise UserError(
        f'{folder / name}: is not the vocabulary of the model: of its pieces, '
        f'{found.kept:,} are in {VOCABULARY} and {len(found.absent):,} are not'
      )
    if found.absent:
      some = ', '.join(map(repr, found.absent[:3]))
      notes.append(
        f'{name}: {len(found.absent):,} pieces have no row ({some} ...): text is cut '
        'into others in their place'
      )
    made.append(found.spm)
  return (made[0], made[1]), notes
