"""Our parameters under the names and in the shapes of Hugging Face's Marian.

Marian's model is ours but for these things:

- Its sinusoids are not interleaved: all sines come first, then all cosines. So the axis
  of d_model is put in that order, in all weights that have one. Nothing of the model
  depends on the order but the sinusoids, which are added to the embeddings.
- Its matrices are transposed, [out, in], and the heads of attention share one axis.
- Its attention and its logits have biases. They are zeros.
- Its LayerNorms add 1e-5 to the variance, ours 1e-6; see scale_norm_inputs().

Axes are those of layers.py: D is d_model, W the vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from transformer_jax.machine.errors import UserError
from transformer_jax.model.layers import sinusoids

Tree = Any
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


def order_of(d_model: int) -> np.ndarray:
  """Returns our dimension for each of Marian's, [D]: first sines, then cosines."""
  return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def positions(length: int, d_model: int) -> np.ndarray:
  """Returns [length, D]: the sinusoids in Marian's order."""
  return sinusoids(length, d_model)[:, order_of(d_model)]


def check(model: Mapping[str, Any]) -> None:
  """Raises UserError for columns of Table 3 that a Marian model cannot have."""
  for key in ('d_k', 'd_v'):
    if (size := model['h'] * model[key]) != model['d_model']:
      raise UserError(
        f'model.h x model.{key} is {size} and model.d_model {model["d_model"]}: a '
        'Marian model needs them equal; --format=safetensors takes any'
      )
  if model['positions'] != 'sinusoid':
    raise UserError(
      f'model.positions={model["positions"]!r}: a Marian model has sinusoids; '
      '--format=safetensors takes any'
    )
  if model['target_vocab_size']:
    raise UserError(
      f'model.target_vocab_size={model["target_vocab_size"]}: a Marian model has one '
      'vocabulary for both sides; --format=safetensors takes any'
    )


def name_arrays(params: Tree) -> Arrays:
  """Returns our arrays by dotted names, such as encoder.0.attention.query."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  dotted = lambda path: '.'.join(str(part.key) for part in path)
  return {dotted(path): np.asarray(leaf) for path, leaf in leaves}


def to_marian(params: Tree) -> Arrays:
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


def _layer(layer: Tree, order: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
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


def scale_norm_inputs(arrays: Arrays, N: int, factor: float) -> Arrays:
  """Returns the same model with LayerNorm inputs that are `factor` times as large.

  So a norm's epsilon has factor**2 times less effect. The output of each norm, and that
  of the sub-layer that is then added to it, are multiplied by `factor`. The weights
  that read the norm's output are divided by `factor`. Two things do not change: the
  input of a stack's first norm, which contains the sinusoids, and the stack's output.
  A power of two rounds nothing. The keys and values of encoder_attn do not change: they
  read the encoder's output.
  """
  scaled = dict(arrays)

  def scale(names: list[str], by: float) -> None:
    for name in names:
      scaled[name] = scaled[name] * np.float32(by)

  for stack in ('encoder', 'decoder'):
    sublayers = [
      (f'model.{stack}.layers.{n}.', kind)
      for n in range(N)
      for kind in ('self_attn', 'encoder_attn', 'fc')
      if stack == 'decoder' or kind != 'encoder_attn'
    ]
    for layer, kind in sublayers:
      if kind == 'fc':
        reading, adding, norm = ['fc1'], 'fc2', 'final_layer_norm'
      else:
        letters = 'qkv' if kind == 'self_attn' else 'q'
        reading = [f'{kind}.{letter}_proj' for letter in letters]
        adding, norm = f'{kind}.out_proj', f'{kind}_layer_norm'
      both = 'weight', 'bias'
      if (layer, kind) != sublayers[0]:
        scale([f'{layer}{name}.weight' for name in reading], 1 / factor)
        scale([f'{layer}{adding}.{part}' for part in both], factor)
      if (layer, kind) != sublayers[-1]:
        scale([f'{layer}{norm}.{part}' for part in both], factor)
  return scaled
