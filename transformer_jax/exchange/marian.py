"""Our parameters under the names and in the shapes of Hugging Face's Marian, and back.

Marian's model is ours but for these things:

- Its sinusoids are not interleaved: all sines come first, then all cosines. So the axis
  of d_model is put in that order, in all weights that have one. Nothing of the model
  depends on the order but the sinusoids, which are added to the embeddings.
- Its matrices are transposed, [out, in], and the heads of attention share one axis.
- Its attention and its logits have biases. Where ours have none, they are zeros.
- Its LayerNorms add 1e-5 to the variance, ours 1e-6; see scale_norm_inputs().

Axes are those of layers.py: D is d_model, W the vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.machine.errors import UserError
from transformer_jax.model.layers import sinusoids

Tree = Any
Arrays = dict[str, np.ndarray]

NORM_EPSILON = 1e-5  # which Hugging Face's Marian has
EMBEDDING, LOGITS_BIAS = 'model.shared.weight', 'final_logits_bias'
# What files may hold beside the weights: the embedding under other names, and tables of
# sinusoids. Marian computes both.
COPIES = {'lm_head.weight'} | {
  f'model.{stack}.embed_{what}.weight'
  for stack in ('encoder', 'decoder')
  for what in ('tokens', 'positions')
}

_SUBLAYERS = {'attention': 'self_attn', 'cross': 'encoder_attn'}
_PROJECTIONS = ('query', 'key', 'value', 'output')
_NORMS = {
  'attention_norm': 'self_attn_layer_norm',
  'cross_norm': 'encoder_attn_layer_norm',
  'feed_forward_norm': 'final_layer_norm',
}


# Each sub-layer's input weights, its output weights and biases, and its LayerNorm. The
# keys and values of encoder_attn are left out: they read the encoder's output.
_BOTH = ('weight', 'bias')
_PARTS = {
  'self_attn': (
    [f'self_attn.{letter}_proj.weight' for letter in 'qkv'],
    [f'self_attn.out_proj.{part}' for part in _BOTH],
    [f'self_attn_layer_norm.{part}' for part in _BOTH],
  ),
  'encoder_attn': (
    ['encoder_attn.q_proj.weight'],
    [f'encoder_attn.out_proj.{part}' for part in _BOTH],
    [f'encoder_attn_layer_norm.{part}' for part in _BOTH],
  ),
  'fc': (
    ['fc1.weight'],
    [f'fc2.{part}' for part in _BOTH],
    [f'final_layer_norm.{part}' for part in _BOTH],
  ),
}


class Form(NamedTuple):
  """How an array of ours becomes Marian's, and back.

  Attributes:
    export: (our array, order_of(d_model)) -> Marian's.
    restore: (Marian's array, order_of(d_model), our array's shape) -> ours.
  """

  export: Callable[[np.ndarray, np.ndarray], np.ndarray]
  restore: Callable[[np.ndarray, np.ndarray, tuple[int, ...]], np.ndarray]


INWARD = Form(  # [D, ...] -> [..., D]
  lambda x, order: x.reshape(len(order), -1)[order].T,
  lambda y, order, shape: y.T[np.argsort(order)].reshape(shape),
)
OUTWARD = Form(  # [..., D] -> [D, ...]
  lambda x, order: x.reshape(-1, len(order))[:, order].T,
  lambda y, order, shape: y.T[:, np.argsort(order)].reshape(shape),
)
ALONG = Form(  # [..., D] -> [..., D]
  lambda x, order: x[..., order],
  lambda y, order, shape: y[..., np.argsort(order)],
)
UNCHANGED = Form(lambda x, order: x, lambda y, order, shape: y)  # without an axis D
ROW = Form(lambda x, order: x[None], lambda y, order, shape: y[0])  # [W] -> [1, W]


def order_of(d_model: int) -> np.ndarray:
  """Returns our dimension for each of Marian's, [D]: first sines, then cosines."""
  return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def positions(length: int, d_model: int) -> np.ndarray:
  """Returns [length, D]: the sinusoids in Marian's order."""
  return sinusoids(length, d_model)[:, order_of(d_model)]


def check(model: Mapping[str, Any]) -> None:
  """Raises UserError for columns of Table 3 that a Marian model cannot have."""
  inner = {key: model['h'] * model[key] for key in ('d_k', 'd_v')}
  for key, size in inner.items():
    if size != model['d_model']:
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


def to_marian(params: Tree) -> Arrays:
  """Returns Marian's arrays by name, in float32; biases that ours lack are zeros."""
  ours = name_arrays(params)
  W, D = ours['embedding'].shape
  order = order_of(D)
  arrays = {}
  for mine, theirs, form in _table(len(params['encoder'])):
    if mine in ours:
      arrays[theirs] = np.ascontiguousarray(form.export(ours[mine], order))
    else:
      arrays[theirs] = np.zeros((1, W) if form is ROW else D, np.float32)
  return arrays


def from_marian(arrays: Mapping[str, np.ndarray], shapes: Tree) -> Tree:
  """Returns our parameters; the inverse of to_marian().

  Args:
    arrays: from check_arrays().
    shapes: of our parameters. If they have no biases, Marian's are left out.
  """
  order = order_of(shapes['embedding'].shape[1])
  table = {mine: rest for mine, *rest in _table(len(shapes['encoder']))}

  def restore(path: tuple, leaf: Any) -> np.ndarray:
    theirs, form = table[_dotted(path)]
    array = form.restore(arrays[theirs], order, leaf.shape)
    return np.ascontiguousarray(array, np.float32)

  return jax.tree_util.tree_map_with_path(restore, shapes)


def expected_shapes(
  N: int, d_model: int, d_ff: int, vocab_size: int
) -> dict[str, tuple]:
  """Returns the shape of every array that a Marian model of these sizes has."""
  D, F = d_model, d_ff
  shapes = {EMBEDDING: (vocab_size, D), LOGITS_BIAS: (1, vocab_size)}
  inner = {'fc1.weight': (F, D), 'fc1.bias': (F,), 'fc2.weight': (D, F)}
  for _, theirs, _ in _table(N):
    part = '.'.join(theirs.split('.')[-2:])
    square = theirs.endswith('_proj.weight')
    shapes.setdefault(theirs, inner[part] if part in inner else (D,) * (1 + square))
  return shapes


def check_arrays(
  arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple]
) -> Arrays:
  """Returns the arrays that a Marian model has, in float32, without those in COPIES.

  Args:
    shapes: from expected_shapes().

  Raises:
    UserError: an array is missing, unknown, or of another shape.
  """
  _refuse('it lacks', shapes.keys() - arrays)
  _refuse('no such model has', arrays.keys() - shapes.keys() - COPIES)
  for name, shape in shapes.items():
    if arrays[name].shape != shape:
      raise UserError(
        f'{name} is of shape {list(arrays[name].shape)}, but config.json says '
        f'{list(shape)}'
      )
  return {name: np.asarray(arrays[name], np.float32) for name in shapes}


def norm_factor(epsilon: float) -> float:
  """Returns the power of two with which NORM_EPSILON acts about like `epsilon`.

  It is the factor for scale_norm_inputs().
  """
  return 2.0 ** round(math.log2(NORM_EPSILON / epsilon) / 2)


def scale_norm_inputs(arrays: Arrays, N: int, factor: float) -> Arrays:
  """Returns the same model with LayerNorm inputs that are `factor` times as large.

  So a norm's epsilon has factor**2 times less effect. The output of each norm, and that
  of the sub-layer that is then added to it, are multiplied by `factor`. The weights
  that read the norm's output are divided by `factor`. Two things do not change: the
  input of a stack's first norm, which contains the sinusoids, and the stack's output.
  If `factor` is a power of two, nothing is rounded, and a second call with 1 / factor
  undoes the first exactly.
  """
  scaled = dict(arrays)
  for stack in ('encoder', 'decoder'):
    kinds = [k for k in _PARTS if stack == 'decoder' or k != 'encoder_attn']
    sublayers = [(n, kind) for n in range(N) for kind in kinds]
    for number, (n, kind) in enumerate(sublayers):
      reading, adding, norm = _PARTS[kind]
      factors = dict.fromkeys(reading, 1 / factor) if number else {}
      factors |= dict.fromkeys(adding, factor) if number else {}
      factors |= dict.fromkeys(norm, factor) if number < len(sublayers) - 1 else {}
      for name, by in factors.items():
        name = f'model.{stack}.layers.{n}.{name}'
        scaled[name] = scaled[name] * np.float32(by)
  return scaled


def has_biases(arrays: Mapping[str, np.ndarray]) -> bool:
  """Tells whether the model has a bias, other than 0, that the paper's lacks."""
  N = 1 + max(int(n.split('.')[3]) for n in arrays if n.startswith('model.decoder.l'))
  ours = (theirs for mine, theirs, _ in _table(N) if mine.endswith('_bias'))
  return any(arrays[theirs].any() for theirs in ours)


def name_arrays(params: Tree) -> Arrays:
  """Returns our arrays by dotted names, such as encoder.0.attention.query."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {_dotted(path): np.asarray(leaf) for path, leaf in leaves}


def _dotted(path: tuple) -> str:
  return '.'.join(str(part.key) for part in path)


def _refuse(what: str, names: Any) -> None:
  """Raises UserError if there are names; the message has the first three."""
  if names:
    first, more = ', '.join(sorted(names)[:3]), len(names) - 3
    raise UserError(f'{what} {first}' + (f' and {more} more' if more > 0 else ''))


def _table(N: int) -> Iterator[tuple[str, str, Form]]:
  """Yields our name, Marian's and the form of each array; both of N layers a stack."""
  yield 'embedding', EMBEDDING, ALONG
  yield 'logits_bias', LOGITS_BIAS, ROW
  for stack in ('encoder', 'decoder'):
    for n in range(N):
      for mine, theirs, form in _layer(stack):
        yield f'{stack}.{n}.{mine}', f'model.{stack}.layers.{n}.{theirs}', form


def _layer(stack: str) -> Iterator[tuple[str, str, Form]]:
  has = lambda name: stack == 'decoder' or 'cross' not in name
  for mine, theirs in _SUBLAYERS.items():
    for part in _PROJECTIONS if has(mine) else ():
      outer = part == 'output'
      name = f'{theirs}.{"out" if outer else part[0]}_proj'
      yield f'{mine}.{part}', f'{name}.weight', OUTWARD if outer else INWARD
      yield f'{mine}.{part}_bias', f'{name}.bias', ALONG if outer else UNCHANGED
  for mine, theirs in _NORMS.items():
    if has(mine):
      yield f'{mine}.norm.scale', f'{theirs}.weight', ALONG
      yield f'{mine}.norm.bias', f'{theirs}.bias', ALONG
  for part, theirs, weight, bias in (
    ('inner', 'fc1', INWARD, UNCHANGED),
    ('outer', 'fc2', OUTWARD, ALONG),
  ):
    yield f'feed_forward.{part}.kernel', f'{theirs}.weight', weight
    yield f'feed_forward.{part}.bias', f'{theirs}.bias', bias
