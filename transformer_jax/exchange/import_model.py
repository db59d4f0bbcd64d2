"""From a folder of Hugging Face's Marian to a run; no pickle is opened."""

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import jax
import ml_collections
import msgspec
import numpy as np
import safetensors
from safetensors.numpy import load_file

from transformer_jax.data import card, prepare, vocabulary
from transformer_jax.data.corpus import rename_if_changed
from transformer_jax.data.task import Task
from transformer_jax.data.vocabulary import BOS, EOS, PAD, SPECIAL, UNK
from transformer_jax.exchange import marian, new_folder, pieces
from transformer_jax.exchange.huggingface import SPM, WEIGHTS
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.runs import config as configs
from transformer_jax.training import checkpoint, optimizer

VOCABULARY = 'vocab.json'
FILES = ('config.json', WEIGHTS, VOCABULARY, *SPM)
PICKLES = ('pytorch_model.bin', 'model.npz', 'tf_model.h5', 'rust_model.ot')
MAX_SIZE = 2**16  # the most pieces that fit in token files; other sizes are smaller
UNUSED_BIAS = -100.0  # the logit's bias of a token that must never be generated
STEP = 1  # the checkpoint's step: the least that a checkpoint can have

Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
Row = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SIZE)]
Dropout = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class MarianConfig(msgspec.Struct, kw_only=True):
  """The keys of config.json that count, with the defaults of Hugging Face's Marian."""

  model_type: Literal['marian']
  d_model: Size
  encoder_layers: Size
  decoder_layers: Size
  encoder_attention_heads: Size
  decoder_attention_heads: Size
  encoder_ffn_dim: Size
  decoder_ffn_dim: Size
  vocab_size: Size
  pad_token_id: Row
  eos_token_id: Row
  decoder_start_token_id: Row
  activation_function: Literal['relu', 'swish', 'silu']
  dropout: Dropout = 0.1
  attention_dropout: Dropout = 0.0
  scale_embedding: bool = False
  normalize_before: bool = False  # whether LayerNorms precede sub-layers
  normalize_embedding: bool = False
  add_final_layer_norm: bool = False
  static_position_embeddings: bool = True
  share_encoder_decoder_embeddings: bool = True
  tie_word_embeddings: bool = True
  # Our norm epsilon, by which an export chose the factor of marian.scale_norm_inputs().
  transformer_jax_norm_epsilon: Annotated[float, msgspec.Meta(gt=0, lt=1)] = (
    marian.NORM_EPSILON
  )


# What a model must have to be the paper's.
REQUIRED = {
  'scale_embedding': True,
  'normalize_before': False,
  'normalize_embedding': False,
  'add_final_layer_norm': False,
  'static_position_embeddings': True,
  'share_encoder_decoder_embeddings': True,
  'tie_word_embeddings': True,
}


class MarianModel(NamedTuple):
  """A model of Marian's that ours can be.

  Attributes:
    sizes: keys of our config's `model`.
    arrays: under Marian's names, in float32. Embeddings have rows in our order.
    spm: SentencePiece models of source and target, whose ids are those rows.
    notes: lines to print for the user.
  """

  sizes: dict[str, Any]
  arrays: marian.Arrays
  spm: tuple[bytes, bytes]
  notes: list[str]


def import_model(
  folder: pathlib.Path,
  workdir: pathlib.Path,
  config: ml_collections.ConfigDict,
  task: Task,
  data: tuple[pathlib.Path, pathlib.Path | None, pathlib.Path | None],
  prepare: bool,
) -> Iterator[str]:
  """Makes a run from a model in `folder`, and yields lines for the user.

  Args:
    config: becomes the run's config; its keys on model and checkpoints are replaced.
    data: the folders data_dir, raw_dir and tfds_data_dir of prepare.prepare_corpus().
    prepare: encode the config's corpus with the model's vocabulary, unless that was
      done before. Then the model can be scored on it.

  Raises:
    UserError: `folder` holds no model that can be imported, or `workdir` exists.
  """
  plain = config.copy_and_resolve_references()
  config.update({'row': None, 'train_steps': STEP, 'average_last': 1})
  config.checkpoint_every_steps = STEP
  configs.check(config.to_dict())
  model = read(folder)
  config.model.update(model.sizes)
  try:
    configs.check(config.to_dict())
  except UserError as error:
    raise UserError(f'{folder} has a model that no run can have: {error}') from error
  platform.start(config.slices)
  _, shapes = build.architecture(config)
  params = marian.from_marian(model.arrays, shapes)
  with new_folder(workdir) as run:
    names = (vocabulary.SHARED, vocabulary.TARGETS)[: len({*model.spm})]
    for name, spm in zip(names, model.spm, strict=False):
      (run / name).write_bytes(spm)
    words = vocabulary.read(run, len(names) > 1)
    preparation = (task, *data) if prepare else None
    corpus = _corpus(config, plain, words, data[0], run, preparation)
    imported = {'folder': folder.name, 'sha256': files.sha256(folder / WEIGHTS)}
    if corpus:
      about = msgspec.structs.replace(card.read_card(corpus), imported=imported)
      (run / card.CARD).write_bytes(msgspec.json.encode(about))
    else:
      learnt = card.VocabularyEntry(
        words.source.sha256, len(words.source), from_run=True
      )
      card.write_card(run, card.Card(learnt, {}, imported=imported))
    files.write_json(run / 'config.json', json.loads(config.to_json_best_effort()))
    opt_state = jax.jit(optimizer.adam(config).init)(params)
    checkpoint.save(run / 'checkpoints', STEP, params, opt_state)
  yield from model.notes
  yield f'{workdir}: {flops.parameters(config.model):,} parameters of {folder}'
  yield f'corpus: {corpus or "none; with --prepare it can be scored"}'


def _corpus(
  config: ml_collections.ConfigDict,
  plain: ml_collections.ConfigDict,
  words: vocabulary.Vocabularies,
  data_dir: pathlib.Path,
  run: pathlib.Path,
  preparation: tuple | None,
) -> pathlib.Path | None:
  """Returns the prepared corpus with this vocabulary; None if it is not prepared.

  Args:
    config: the run's. If its corpus has another vocabulary, `data.name` changes.
    plain: the config before it became the run's.
    preparation: what prepare_corpus() takes after the config. None: do not prepare.
  """
  sums = lambda side: ' '.join(dict.fromkeys(words.sha256 for words in side))
  corpus = data_dir / config.data.name
  if (corpus / card.CARD).is_file() and sums(card.vocabularies(corpus)) == sums(words):
    return corpus
  config.init_from.vocabulary = sums(words)
  rename_if_changed(config, plain, ())
  corpus = data_dir / config.data.name
  if preparation is None:
    return corpus if (corpus / card.CARD).is_file() else None
  encoding = config.copy_and_resolve_references()
  encoding.init_from.run = str(run)
  return prepare.prepare_corpus(encoding, *preparation)


def read(folder: pathlib.Path) -> MarianModel:
  """Reads a folder as MarianMTModel.save_pretrained() and its tokenizer write it.

  Raises:
    UserError: the folder is incomplete, or has a model that ours cannot be.
  """
  _check_files(folder)
  config = _config(folder)
  N, d_model = config.encoder_layers, config.d_model
  shapes = marian.expected_shapes(N, d_model, config.encoder_ffn_dim, config.vocab_size)
  try:
    arrays = marian.check_arrays(load_file(folder / WEIGHTS), shapes)
  except (safetensors.SafetensorError, UserError) as error:
    raise UserError(f'{folder / WEIGHTS}: {error}') from error
  epsilon = config.transformer_jax_norm_epsilon
  arrays = marian.scale_norm_inputs(arrays, N, 1 / marian.norm_factor(epsilon))
  theirs, names = _rows(config, _vocabulary(folder / VOCABULARY, config))
  arrays |= _select_rows(arrays, theirs)
  spm, notes = _spm(folder, names)
  heads = config.encoder_attention_heads
  sizes = {
    'N': N,
    'd_model': d_model,
    'd_ff': config.encoder_ffn_dim,
    'h': heads,
    'd_k': d_model // heads,
    'd_v': d_model // heads,
    'P_drop': config.dropout,
    'P_drop_attention': config.attention_dropout,
    'positions': 'sinusoid',
    'vocab_size': len(names),
    'target_vocab_size': 0,
    'activation': 'relu' if config.activation_function == 'relu' else 'swish',
    'biases': marian.has_biases(arrays),
    'norm_epsilon': epsilon,
  }
  return MarianModel(sizes, arrays, spm, notes)


def _check_files(folder: pathlib.Path) -> None:
  missing = [name for name in FILES if not (folder / name).is_file()]
  pickles = [name for name in PICKLES if (folder / name).exists()]
  if not folder.is_dir():
    why = 'is no folder; --input takes the folder of a Hugging Face Marian model'
  elif WEIGHTS in missing and pickles:
    why = (
      f'has its weights as {pickles[0]}, and no such file is opened here, since some '
      'can run code: MarianMTModel.from_pretrained(FOLDER).save_pretrained(OTHER) '
      f'writes {WEIGHTS}'
    )
  elif missing:
    why = (
      f'lacks {", ".join(missing)}: a Hugging Face Marian model has {", ".join(FILES)}'
    )
  else:
    return
  raise UserError(f'{folder} {why}')


def _config(folder: pathlib.Path) -> MarianConfig:
  """Returns config.json. The first word's id may be in generation_config.json."""
  path, generation = folder / 'config.json', folder / 'generation_config.json'
  keys = files.read_json_object(path)
  start = 'decoder_start_token_id'
  if start not in keys and generation.is_file():
    more = files.read_json_object(generation)
    keys |= {start: more[start]} if start in more else {}
  try:
    config = msgspec.convert(keys, MarianConfig)
    _check(config)
  except (msgspec.ValidationError, UserError) as error:
    raise UserError(f'{path}: {error}') from error
  return config


def _check(config: MarianConfig) -> None:
  """Raises UserError for what our model cannot be."""
  for key, needed in REQUIRED.items():
    if getattr(config, key) != needed:
      raise UserError(
        f'{key} is {not needed}: only {needed} can come in, as the paper has it'
      )
  for part in ('layers', 'attention_heads', 'ffn_dim'):
    encoder, decoder = (getattr(config, f'{s}_{part}') for s in ('encoder', 'decoder'))
    if encoder != decoder:
      raise UserError(
        f'encoder_{part} is {encoder} and decoder_{part} {decoder}: only models whose '
        'stacks are alike can come in'
      )
  if config.d_model % config.encoder_attention_heads:
    heads = config.encoder_attention_heads
    raise UserError(f'd_model={config.d_model} is no multiple of the {heads} heads')


def _vocabulary(path: pathlib.Path, config: MarianConfig) -> list[str]:
  """Returns the piece of each of Marian's rows."""
  start, pad, eos = (
    config.decoder_start_token_id,
    config.pad_token_id,
    config.eos_token_id,
  )
  try:
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
  except msgspec.DecodeError as error:
    raise UserError(f'{path}: {error}') from error
  is_whole = sorted(rows.values()) == [*range(config.vocab_size)] and '<unk>' in rows
  if not is_whole or (rows.get('</s>'), rows.get('<pad>')) != (eos, pad):
    raise UserError(
      f'{path}: is not the vocabulary of the model: by config.json it has a piece for '
      f'each row from 0 to {config.vocab_size - 1}, </s> is {eos}, <pad> is {pad}, and '
      '<unk> is one of them'
    )
  if {start, pad} & {eos, rows['<unk>']} or start >= config.vocab_size:
    raise UserError(
      f'{path}: decoder_start_token_id={start} or pad_token_id={pad} is </s>, <unk> or '
      'no row: only models with other rows for padding and first word can come in'
    )
  return sorted(rows, key=lambda piece: rows[piece])


def _rows(
  config: MarianConfig, names: Sequence[str]
) -> tuple[list[int | None], list[str]]:
  """Returns Marian's row for each row of ours (None: zeros), and the pieces of ours.

  Our rows are the four special ones, and then the rest of Marian's, in order. If the
  decoder starts from Marian's padding, as in published models, that row becomes our
  <s>, and our <pad> is a row of zeros.
  """
  start, pad = config.decoder_start_token_id, config.pad_token_id
  special: dict[int, int | None] = {
    PAD: None if start == pad else pad,
    EOS: config.eos_token_id,
    BOS: start,
    UNK: names.index('<unk>'),
  }
  rest = sorted({*range(len(names))} - {*special.values()})
  rows = [special[row] for row in range(SPECIAL)] + rest
  return rows, [*pieces.SPECIALS, *(names[row] for row in rest)]


def _select_rows(arrays: marian.Arrays, rows: Sequence[int | None]) -> marian.Arrays:
  """Returns embeddings and logits' biases in our rows.

  `rows` are from _rows(). A token whose row is None is never generated.
  """
  index = [0 if row is None else row for row in rows]
  new = np.array([row is None for row in rows])
  embedding = arrays[marian.EMBEDDING][index]
  bias = arrays[marian.LOGITS_BIAS][:, index]
  embedding[new], bias[:, new] = 0.0, UNUSED_BIAS
  return {marian.EMBEDDING: embedding, marian.LOGITS_BIAS: bias}


def _spm(
  folder: pathlib.Path, names: Sequence[str]
) -> tuple[tuple[bytes, bytes], list[str]]:
  """Returns the SentencePiece models over our rows, and lines on missing pieces."""
  models, notes = [], []
  for name in SPM:
    model, absent = pieces.over_rows(folder / name, names)
    models.append(model)
    if absent:
      some = ', '.join(map(repr, absent[:3]))
      notes.append(
        f'{name}: {len(absent):,} pieces are not in {VOCABULARY} ({some} ...): text is '
        'split into other pieces'
      )
  return (models[0], models[1]), notes
