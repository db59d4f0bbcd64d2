"""A folder that ctranslate2.Translator loads; CTranslate2 itself writes it.

It needs neither PyTorch nor transformers. CTranslate2's own converter of Hugging Face's
Marian models would not do: it drops the last piece, and starts from an embedding of
zeros.
"""

import pathlib
import shutil
from collections.abc import Mapping

import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec

from transformer_jax.data.vocabulary import BOS, EOS, UNK
from transformer_jax.exchange import marian
from transformer_jax.exchange.huggingface import POSITIONS, SPM
from transformer_jax.exchange.outgoing import Outgoing

Arrays = Mapping[str, np.ndarray]

ACTIVATIONS = {
  'relu': common_spec.Activation.RELU,
  'swish': common_spec.Activation.SWISH,
}

LOADING = """\
```python
import ctranslate2, sentencepiece

translator = ctranslate2.Translator('FOLDER')
source = sentencepiece.SentencePieceProcessor(model_file='FOLDER/source.spm')
target = sentencepiece.SentencePieceProcessor(model_file='FOLDER/target.spm')
lines = source.encode(['A sentence.'], out_type=str)  # CTranslate2 adds </s>
found = translator.translate_batch(lines, beam_size=BEAM, length_penalty=ALPHA)
print([target.decode(one.hypotheses[0]) for one in found])
```

Its beam search divides log P by length**alpha, where GNMT's penalty, with which the
scores below were made, is ((5 + length) / 6)**alpha. Greedy translations are the
same in float32.
"""


def write(
  model: Outgoing, arrays: Arrays, quantization: str, folder: pathlib.Path
) -> None:
  """Writes all files but the page; `arrays` are Marian's."""
  sizes = model.config['model']
  spec = _spec(arrays, sizes['N'], sizes['h'], sizes['activation'])
  spec.register_source_vocabulary(model.pieces)
  spec.register_target_vocabulary(model.pieces)
  spec.config.add_source_eos = True
  spec.config.bos_token = spec.config.decoder_start_token = model.pieces[BOS]
  spec.config.eos_token, spec.config.unk_token = model.pieces[EOS], model.pieces[UNK]
  spec.config.layer_norm_epsilon = sizes['norm_epsilon']
  spec.validate()
  spec.optimize(quantization=quantization)
  spec.save(str(folder))
  for path, name in zip(model.spm, SPM, strict=True):
    shutil.copyfile(path, folder / name)


def _spec(
  arrays: Arrays, N: int, h: int, activation: str
) -> transformer_spec.TransformerSpec:
  spec = transformer_spec.TransformerSpec.from_config(
    N, h, pre_norm=False, activation=ACTIVATIONS[activation]
  )
  embedding = arrays[marian.EMBEDDING]
  d_model = embedding.shape[1]
  for name, stack in (('encoder', spec.encoder), ('decoder', spec.decoder)):
    embeddings = stack.embeddings[0] if name == 'encoder' else stack.embeddings
    embeddings.weight = embedding
    stack.scale_embeddings = d_model**0.5
    stack.position_encodings.encodings = marian.positions(POSITIONS, d_model)
    for n, layer in enumerate(stack.layer):
      _fill_layer(layer, arrays, f'model.{name}.layers.{n}')
  spec.decoder.projection.weight = embedding
  if arrays[marian.LOGITS_BIAS].any():
    spec.decoder.projection.bias = arrays[marian.LOGITS_BIAS][0]
  return spec


def _fill_layer(
  layer: transformer_spec.TransformerDecoderLayerSpec, arrays: Arrays, name: str
) -> None:
  attentions = {'self_attn': (layer.self_attention, 'qkv')}
  if hasattr(layer, 'attention'):
    attentions['encoder_attn'] = layer.attention, 'q kv'
  for theirs, (spec, fused) in attentions.items():
    for linear, letters in zip(spec.linear, fused.split(), strict=False):
      parts = [_linear(arrays, f'{name}.{theirs}.{letter}_proj') for letter in letters]
      utils.fuse_linear(linear, parts)
    utils.fuse_linear(spec.linear[-1], [_linear(arrays, f'{name}.{theirs}.out_proj')])
    _fill_norm(spec.layer_norm, arrays, f'{name}.{theirs}_layer_norm')
  utils.fuse_linear(layer.ffn.linear_0, [_linear(arrays, f'{name}.fc1')])
  utils.fuse_linear(layer.ffn.linear_1, [_linear(arrays, f'{name}.fc2')])
  _fill_norm(layer.ffn.layer_norm, arrays, f'{name}.final_layer_norm')


def _linear(arrays: Arrays, name: str) -> common_spec.LinearSpec:
  spec = common_spec.LinearSpec()
  spec.weight, spec.bias = arrays[f'{name}.weight'], arrays[f'{name}.bias']
  return spec


def _fill_norm(spec: common_spec.LayerNormSpec, arrays: Arrays, name: str) -> None:
  spec.gamma, spec.beta = arrays[f'{name}.weight'], arrays[f'{name}.bias']
