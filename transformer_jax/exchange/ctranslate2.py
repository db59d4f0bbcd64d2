"""A folder that ctranslate2.Translator loads; CTranslate2 itself writes it.

This needs neither PyTorch nor transformers. CTranslate2's own converter of Marian
models would not do: it drops the last piece, and starts every translation from an
embedding of zeros, as published models need. Ours start from the embedding of <s>.
"""

import pathlib
import shutil
from collections.abc import Sequence

import ml_collections
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from jaxtyping import PyTree

from transformer_jax.data.vocabulary import BOS, EOS, UNK, Vocabulary
from transformer_jax.exchange import huggingface
from transformer_jax.exchange.huggingface import Arrays
from transformer_jax.model.ops import NORM_EPSILON

LOADING = """\
    pip install ctranslate2 sentencepiece

```python
import ctranslate2, sentencepiece

translator = ctranslate2.Translator('FOLDER')
source = sentencepiece.SentencePieceProcessor(model_file='FOLDER/source.spm')
target = sentencepiece.SentencePieceProcessor(model_file='FOLDER/target.spm')
lines = source.encode(['A sentence.'], out_type=str)  # CTranslate2 adds </s>
options = dict(beam_size={beam}, length_penalty={alpha}, max_decoding_length=512)
results = translator.translate_batch(lines, **options)
print([target.decode(result.hypotheses[0]) for result in results])
```

`docs/export.md` says how its search differs from ours.
"""


def write(
  params: PyTree,
  config: ml_collections.ConfigDict,
  spm: Sequence[pathlib.Path],
  dtype: str,
  folder: pathlib.Path,
) -> None:
  """Writes all files but README.md.

  Args:
    spm: the SentencePiece models of source and target, with the same pieces.
    dtype: of the weights: float32, float16 or int8.
  """
  sizes, pieces = config.model, Vocabulary(spm[1]).pieces()
  spec = _spec(huggingface.to_marian(params), sizes.N, sizes.h)
  spec.register_source_vocabulary(pieces)
  spec.register_target_vocabulary(pieces)
  spec.config.add_source_eos = True
  spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS]
  spec.config.eos_token, spec.config.unk_token = pieces[EOS], pieces[UNK]
  spec.config.layer_norm_epsilon = NORM_EPSILON
  spec.validate()
  spec.optimize(quantization=dtype)
  spec.save(str(folder))
  for path, name in zip(spm, huggingface.SPM, strict=True):
    shutil.copyfile(path, folder / name)


def _spec(arrays: Arrays, N: int, h: int) -> transformer_spec.TransformerSpec:
  spec = transformer_spec.TransformerSpec.from_config(
    N, h, pre_norm=False, activation=common_spec.Activation.RELU
  )
  embedding = arrays[huggingface.EMBEDDING]
  d_model = embedding.shape[1]
  for name, stack in (('encoder', spec.encoder), ('decoder', spec.decoder)):
    embeddings = stack.embeddings[0] if name == 'encoder' else stack.embeddings
    embeddings.weight = embedding
    stack.scale_embeddings = d_model**0.5
    stack.position_encodings.encodings = huggingface.positions(d_model)
    for n, layer in enumerate(stack.layer):
      _fill_layer(layer, arrays, f'model.{name}.layers.{n}')
  spec.decoder.projection.weight = embedding
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
