"""A folder that transformers.MarianMTModel and MarianTokenizer load.

Marian's model differs from ours in these points:

- Its sinusoids are not interleaved: all sines come first, then all cosines. So the
  d_model axis of all weights is permuted to that order. Only the sinusoids, which are
  added to the embeddings, depend on it.
- Its matrices are transposed, [out, in], and the heads of attention share one axis.
- Its attention and its logits have biases. They are zeros.
- Its LayerNorms add 1e-5 to the variance, ours 1e-6; see scale_norm_inputs().

Axes are those of layers.py: D is d_model, W the vocabulary.
"""

import json
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from jaxtyping import PyTree
from safetensors import numpy as safetensors

from transformer_jax.data.vocabulary import BOS, EOS, PAD, Vocabulary
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.model.layers import sinusoids

Arrays = dict[str, np.ndarray]

EMBEDDING, LOGITS_BIAS = 'model.shared.weight', 'final_logits_bias'
NORM_FACTOR = 4.0  # 1e-5 / 4**2 is near our LayerNorm's 1e-6

# Our names and Marian's, each in the order of a layer.
_SUBLAYERS = {'attention': 'self_attn', 'cross': 'encoder_attn'}
_NORMS = {
  'attention_norm': 'self_attn_layer_norm',
  'cross_norm': 'encoder_attn_layer_norm',
  'feed_forward_norm': 'final_layer_norm',
}
# The weights that read the output of a norm of their own stack.
_READING = re.compile(r'(self_attn\.[qkv]_proj|encoder_attn\.q_proj|fc1)\.weight')

SPM = 'source.spm', 'target.spm'
POSITIONS = 1024  # rows of the table of sinusoids that Marian computes

IDS = {
  'pad_token_id': PAD,
  'eos_token_id': EOS,
  'bos_token_id': BOS,
  'decoder_start_token_id': BOS,
}

LOADING = """\
    pip install transformers torch sentencepiece sacremoses

```python
from transformers import MarianMTModel, MarianTokenizer

model = MarianMTModel.from_pretrained('FOLDER')
tokenizer = MarianTokenizer.from_pretrained('FOLDER')
inputs = tokenizer(['A sentence.'], return_tensors='pt', padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```

`docs/export.md` says how its search and its tokenizer differ from ours.
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
  arrays = scale_norm_inputs(to_marian(params), config.model.N)
  # save_file() would write a file that others cannot read.
  content = safetensors.save(arrays, metadata={'format': 'pt'})
  (folder / 'model.safetensors').write_bytes(content)
  for path, name in zip(spm, SPM, strict=True):
    shutil.copyfile(path, folder / name)
  pieces = Vocabulary(spm[1]).pieces()
  for name, value in (
    ('vocab.json', {piece: row for row, piece in enumerate(pieces)}),
    ('config.json', _config(config.model)),
    ('generation_config.json', _generation(config)),
    ('tokenizer_config.json', _tokenizer(config)),
  ):
    text = json.dumps(value, indent=1, ensure_ascii=False) + '\n'
    (folder / name).write_text(text, encoding='utf-8')


def _config(model: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns where a model differs from MarianConfig's defaults."""
  sizes = {'d_model': model.d_model, 'vocab_size': model.vocab_size}
  for stack in ('encoder', 'decoder'):
    sizes[f'{stack}_layers'] = model.N
    sizes[f'{stack}_attention_heads'] = model.h
    sizes[f'{stack}_ffn_dim'] = model.d_ff
  return {
    'architectures': ['MarianMTModel'],
    'model_type': 'marian',
    'is_encoder_decoder': True,
    **sizes,
    'max_position_embeddings': POSITIONS,
    'activation_function': 'relu',
    'dropout': model.P_drop,
    'attention_dropout': model.P_drop_attention,
    'scale_embedding': True,
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
    'clean_up_tokenization_spaces': False,
    'split_special_tokens': True,  # so that '</s>' in a text does not end it
    'bos_token': '<s>',
    'eos_token': '</s>',
    'pad_token': '<pad>',
    'unk_token': '<unk>',
  }


# Parameters by Marian's names


def order_of(d_model: int) -> np.ndarray:
  """Returns our dimension for each of Marian's, [D]: first sines, then cosines."""
  return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def positions(d_model: int) -> np.ndarray:
  """Returns [POSITIONS, D]: the sinusoids in Marian's order."""
  return sinusoids(POSITIONS, d_model)[:, order_of(d_model)]


def check(model: Mapping[str, Any]) -> None:
  """Raises UserError for sizes and options that a Marian model cannot have."""
  for name, value, needed in (
    ('h x model.d_k', model['h'] * model['d_k'], model['d_model']),
    ('h x model.d_v', model['h'] * model['d_v'], model['d_model']),
    ('positions', model['positions'], 'sinusoid'),
    ('target_vocab_size', model['target_vocab_size'], 0),
  ):
    if value != needed:
      raise UserError(
        f'model.{name} is {value}, but {needed} in a Marian model, which '
        'huggingface and ctranslate2 export: --format=run takes any'
      )


def to_marian(params: PyTree) -> Arrays:
  """Returns Marian's arrays by name, in float32; its biases of attention are zeros."""
  W, D = params['embedding'].shape
  arrays = {
    EMBEDDING: params['embedding'][:, order_of(D)],
    LOGITS_BIAS: np.zeros((1, W)),
  }
  for stack in ('encoder', 'decoder'):
    for n, layer in params[stack].items():
      for name, array in _layer(jax.tree.map(np.asarray, layer), order_of(D)):
        arrays[f'model.{stack}.layers.{n}.{name}'] = array
  return {name: np.ascontiguousarray(x, np.float32) for name, x in arrays.items()}


def _layer(layer: PyTree, order: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
  """Yields Marian's names and arrays of a layer."""
  D = len(order)
  inward = lambda x: x.reshape(D, -1)[order].T  # [D, ...] -> [..., D]
  outward = lambda x: x.reshape(-1, D)[:, order].T  # [..., D] -> [D, ...]
  for mine, theirs in _SUBLAYERS.items():
    if mine not in layer:
      continue
    for part in ('query', 'key', 'value'):
      yield f'{theirs}.{part[0]}_proj.weight', inward(layer[mine][part])
      yield f'{theirs}.{part[0]}_proj.bias', np.zeros(D)
    yield f'{theirs}.out_proj.weight', outward(layer[mine]['output'])
    yield f'{theirs}.out_proj.bias', np.zeros(D)
  for mine, theirs in _NORMS.items():
    if mine in layer:
      yield f'{theirs}.weight', layer[mine]['norm']['scale'][order]
      yield f'{theirs}.bias', layer[mine]['norm']['bias'][order]
  inner, outer = layer['feed_forward']['inner'], layer['feed_forward']['outer']
  yield 'fc1.weight', inward(inner['kernel'])
  yield 'fc1.bias', inner['bias']
  yield 'fc2.weight', outward(outer['kernel'])
  yield 'fc2.bias', outer['bias'][order]


def scale_norm_inputs(arrays: Arrays, N: int) -> Arrays:
  """Returns the same model with LayerNorm inputs that are NORM_FACTOR times as large.

  So a norm's epsilon has NORM_FACTOR**2 times less effect. The output of each norm, and
  that of the sub-layer that is then added to it, are multiplied; the weights that read
  the norm's output are divided. Two things do not change: the input of a stack's first
  norm, which contains the sinusoids, and the stack's output, which the keys and values
  of encoder_attn read. A power of two scales exactly.
  """

  def factor_of(name: str) -> float:
    _, _, _, n, part = name.split('.', 4)  # model.STACK.layers.N.PART
    if '_norm.' in part:
      return 1 if part.startswith('final') and int(n) == N - 1 else NORM_FACTOR
    if n == '0' and part.startswith('self_attn'):
      return 1
    if part.startswith(('self_attn.out', 'encoder_attn.out', 'fc2')):
      return NORM_FACTOR
    return 1 / NORM_FACTOR if _READING.fullmatch(part) else 1

  return {
    name: x * np.float32(factor_of(name)) if '.layers.' in name else x
    for name, x in arrays.items()
  }
