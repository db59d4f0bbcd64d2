"""A folder that transformers.MarianMTModel and MarianTokenizer load."""

import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import ml_collections
from jaxtyping import PyTree
from safetensors.numpy import save_file

from transformer_jax.data.vocabulary import BOS, EOS, PAD, Vocabulary
from transformer_jax.exchange import marian
from transformer_jax.model import build

WEIGHTS, SPM = 'model.safetensors', ('source.spm', 'target.spm')
POSITIONS = 1024  # rows of the table of sinusoids that Marian computes

IDS = {
  'pad_token_id': PAD,
  'eos_token_id': EOS,
  'bos_token_id': BOS,
  'decoder_start_token_id': BOS,
}

LOADING = """\
```python
from transformers import MarianMTModel, MarianTokenizer

model = MarianMTModel.from_pretrained('FOLDER')
tokenizer = MarianTokenizer.from_pretrained('FOLDER')
inputs = tokenizer(['A sentence.'], return_tensors='pt', padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```

Its beam search divides log P by length**alpha, where GNMT's penalty, with which the
scores below were made, is ((5 + length) / 6)**alpha. Greedy translations are the same.

The tokenizer reads `<s>`, `</s>`, `<pad>` and `<unk>` in a text as plain characters. It
reads a leading `>>xx<<` as the code of a language, which becomes `<unk>` where the
model has no such code.

`ct2-transformers-converter` cannot convert this folder, since it starts every
translation from an embedding of zeros and drops the last piece, as published Marian
models need. `scripts.export --format=ctranslate2` writes the run for CTranslate2.
"""


def write(
  params: PyTree,
  config: ml_collections.ConfigDict,
  spm: Sequence[pathlib.Path],
  folder: pathlib.Path,
) -> None:
  """Writes all files but README.md.

  Args:
    spm: the SentencePiece models of source and target, with the same pieces.
  """
  sizes, arrays = config.model, marian.to_marian(params)
  arrays = marian.scale_norm_inputs(arrays, sizes.N, marian.NORM_FACTOR)
  save_file(arrays, folder / WEIGHTS, metadata={'format': 'pt'})
  for path, name in zip(spm, SPM, strict=True):
    shutil.copyfile(path, folder / name)
  pieces = Vocabulary(spm[1]).pieces()
  for name, value in (
    ('vocab.json', {piece: row for row, piece in enumerate(pieces)}),
    ('config.json', _config(sizes)),
    ('generation_config.json', _generation(config)),
    ('tokenizer_config.json', _tokenizer(config)),
  ):
    text = json.dumps(value, indent=1, ensure_ascii=False) + '\n'
    (folder / name).write_text(text, encoding='utf-8')


def _config(model: ml_collections.ConfigDict) -> dict[str, Any]:
  sizes = {'d_model': model.d_model, 'num_hidden_layers': model.N}
  for stack in ('encoder', 'decoder'):
    sizes[f'{stack}_layers'] = model.N
    sizes[f'{stack}_attention_heads'] = model.h
    sizes[f'{stack}_ffn_dim'] = model.d_ff
  return {
    'architectures': ['MarianMTModel'],
    'model_type': 'marian',
    **sizes,
    'vocab_size': model.vocab_size,
    'decoder_vocab_size': model.vocab_size,
    'max_position_embeddings': POSITIONS,
    'activation_function': 'relu',
    'dropout': model.P_drop,
    'attention_dropout': model.P_drop_attention,
    'activation_dropout': 0.0,
    'scale_embedding': True,
    'static_position_embeddings': True,
    'normalize_before': False,
    'normalize_embedding': False,
    'add_final_layer_norm': False,
    'share_encoder_decoder_embeddings': True,
    'tie_word_embeddings': True,
    'is_encoder_decoder': True,
    'init_std': model.d_model**-0.5,
    'dtype': 'float32',
    'forced_eos_token_id': None,
    **IDS,
  }


def _generation(config: ml_collections.ConfigDict) -> dict[str, Any]:
  return {
    **IDS,
    'bad_words_ids': [[PAD], [BOS]],
    'num_beams': config.beam,
    'length_penalty': config.alpha,
    'max_length': build.LONGEST,
  }


def _tokenizer(config: ml_collections.ConfigDict) -> dict[str, Any]:
  return {
    'tokenizer_class': 'MarianTokenizer',
    'source_lang': config.data.source_language,
    'target_lang': config.data.target_language,
    'model_max_length': build.LONGEST,
    'separate_vocabs': False,
    'clean_up_tokenization_spaces': False,
    'split_special_tokens': True,  # so that '</s>' in a text does not end it
    'bos_token': '<s>',
    'eos_token': '</s>',
    'pad_token': '<pad>',
    'unk_token': '<unk>',
  }
