"""A folder that transformers.MarianMTModel and MarianTokenizer load."""

import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from safetensors.numpy import save

from transformer_jax.data.vocabulary import BOS, EOS, PAD
from transformer_jax.exchange import marian
from transformer_jax.exchange.outgoing import Outgoing
from transformer_jax.exchange.pieces import as_marian
from transformer_jax.model import build

WEIGHTS, SPM = 'model.safetensors', ('source.spm', 'target.spm')
# The config.json key of our norm epsilon. An import needs it to undo marian.enlarged().
EPSILON = 'transformer_jax_norm_epsilon'
POSITIONS = 1024  # rows of the table that it computes

IDS = {'pad_token_id': PAD, 'eos_token_id': EOS, 'bos_token_id': BOS}
IDS |= {'decoder_start_token_id': BOS}

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
"""


def write(model: Outgoing, arrays: marian.Arrays, to: pathlib.Path) -> None:
  """Writes all files but the page; `arrays` are Marian's."""
  sizes = model.config['model']
  factor = marian.norm_factor(sizes['norm_epsilon'])
  arrays = marian.enlarged(arrays, sizes['N'], factor)
  (to / WEIGHTS).write_bytes(save(arrays, metadata={'format': 'pt'}))
  for path, name in zip(model.spm, SPM, strict=True):
    shutil.copyfile(path, to / name)
  pieces = {as_marian(piece): row for row, piece in enumerate(model.pieces)}
  for name, value in (
    ('vocab.json', pieces),
    ('config.json', config_of(sizes)),
    ('generation_config.json', _generation(model.config)),
    ('tokenizer_config.json', _tokenizer(model.config)),
  ):
    text = json.dumps(value, indent=1, ensure_ascii=False) + '\n'
    (to / name).write_text(text, encoding='utf-8')


def config_of(model: Mapping[str, Any]) -> dict[str, Any]:
  sizes = {'d_model': model['d_model'], 'num_hidden_layers': model['N']}
  for stack in ('encoder', 'decoder'):
    sizes[f'{stack}_layers'] = model['N']
    sizes[f'{stack}_attention_heads'] = model['h']
    sizes[f'{stack}_ffn_dim'] = model['d_ff']
  return {
    'architectures': ['MarianMTModel'],
    'model_type': 'marian',
    **sizes,
    'vocab_size': model['vocab_size'],
    'decoder_vocab_size': model['vocab_size'],
    'max_position_embeddings': POSITIONS,
    'activation_function': model['activation'],
    'dropout': model['P_drop'],
    'attention_dropout': model['P_drop_attention'],
    'activation_dropout': 0.0,
    'scale_embedding': True,
    'static_position_embeddings': True,
    'normalize_before': False,
    'normalize_embedding': False,
    'add_final_layer_norm': False,
    'share_encoder_decoder_embeddings': True,
    'tie_word_embeddings': True,
    'is_encoder_decoder': True,
    'init_std': model['d_model'] ** -0.5,
    'dtype': 'float32',
    'forced_eos_token_id': None,
    EPSILON: model['norm_epsilon'],
    **IDS,
  }


def _generation(config: Mapping[str, Any]) -> dict[str, Any]:
  return {
    **IDS,
    'bad_words_ids': [[PAD], [BOS]],
    'num_beams': config['beam'],
    'length_penalty': config['alpha'],
    'max_length': build.LONGEST,
  }


def _tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'tokenizer_class': 'MarianTokenizer',
    'source_lang': config['data']['source_language'],
    'target_lang': config['data']['target_language'],
    'model_max_length': build.LONGEST,
    'separate_vocabs': False,
    'clean_up_tokenization_spaces': False,
    'bos_token': '<s>',
    'eos_token': '</s>',
    'pad_token': '<pad>',
    'unk_token': '<unk>',
  }
