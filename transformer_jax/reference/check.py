"""Compares another implementation's arrays with the kit's, and names its mistake."""

import difflib
import functools
import pathlib
import types
from collections.abc import Iterator

import numpy as np
from safetensors import numpy as safetensors_numpy

from transformer_jax.machine.errors import UserError
from transformer_jax.reference import compute, kit, mistakes, torch_names
from transformer_jax.reference.compute import Arrays

# Two arrays are equal if their mean absolute difference is at most this part of the
# mean absolute value; of parameters after updates, of their mean change. In float32 a
# right model in PyTorch has at most 1.3e-6.
TOLERANCE = 2e-5
BLEU_TOLERANCE = 0.0051  # a score may be rounded to two decimals
MOST_MISTAKES = 3
PAGE = 'docs/check_yours.md lists the names'


def group_of(name: str) -> str:
  """Returns the name of the arrays that are computed together with this one."""
  if name.startswith('search.'):
    return name.rpartition('.')[0]
  first = name.partition('.')[0]
  if first in ('gradient', 'learning_rate', 'bleu'):
    return first
  return 'update' if first.startswith('update_') else 'forward'


@functools.cache
def arrays_of(group: str, names: tuple[str, ...] = ()) -> Arrays:
  """Returns a group's arrays as a model with these mistakes computes them.

  Raises:
    ValueError: the mistakes exclude each other.
  """
  params = {name: x.astype(np.float64) for name, x in kit.read('parameters').items()}
  for name in names:
    params |= mistakes.read()[name].added(params)
  tree, ids = compute.unflatten(params), kit.read('inputs')
  batch = ids['source'], ids['target']
  if group == 'gradient':
    return compute.gradient(_module(names), tree, *batch)
  if group == 'update':
    loss = tuple(name for name in names if mistakes.read()[name].section != '5.3')
    return compute.updates(_module(loss), _module(names), tree, *batch)
  module = compute.load_in_numpy(_edits(names))
  if group == 'forward':
    return compute.forward(module, tree, *batch)
  if group == 'learning_rate':
    return {group: compute.learning_rates(module, **kit.BASE)}
  return kit.search(module, tree, ids['sentences'], group)


@functools.cache
def _module(names: tuple[str, ...]) -> types.ModuleType:
  return compute.load(_edits(names))


def _edits(names: tuple[str, ...]) -> list[tuple[str, str]]:
  return [edit for name in names for edit in mistakes.read()[name].edits]


@functools.cache
def right_arrays() -> Arrays:
  """Returns the kit's arrays in the order of computation."""
  stored = kit.read('forward')
  arrays = {name: stored[name] for name in arrays_of('forward')}
  stored = kit.read('backward')
  order = ['learning_rate', 'gradient', *(f'update_{n}' for n in compute.UPDATES)]
  key = lambda name: order.index(name.partition('.')[0])
  arrays |= {name: stored[name] for name in sorted(stored, key=key)}
  best = kit.read_json('search')['best']
  best |= kit.read_json('bleu')['right']
  return arrays | {name: np.array(x) for name, x in best.items()}


# The user's arrays


def read_arrays(path: pathlib.Path) -> Arrays:
  """Returns a file's arrays in the order of computation, in the kit's shapes.

  Raises:
    UserError: the file cannot be read, or has an array that cannot be compared.
  """
  right, mine = right_arrays(), {}
  for name, x in _load(path).items():
    for key, array in torch_names.from_torch(name, x, kit.SIZES['h']).items():
      if key not in right:
        near = difflib.get_close_matches(key, right, 1, 0)[0]
        raise UserError(
          f'{path}: {name} is not in the kit; the nearest: {near} ({PAGE})'
        )
      mine[key] = _checked(f'{path}: {name}', array, right[key])
  if not mine:
    raise UserError(f'{path} has no array of the kit, such as logits ({PAGE})')
  return {name: mine[name] for name in right if name in mine}


def _load(path: pathlib.Path) -> Arrays:
  if path.suffix not in ('.safetensors', '.npz'):
    raise UserError(f'{path}: save the arrays as .safetensors or .npz')
  try:
    with path.open('rb') as file:  # its error names the file
      if path.suffix == '.safetensors':
        return safetensors_numpy.load_file(path)
      with np.load(file) as arrays:
        return dict(arrays)
  except OSError:
    raise
  except Exception as error:  # NumPy has many for a damaged byte
    raise UserError(f'{path} is damaged or of another format: {error}') from error


def _checked(place: str, x: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Returns an array in the kit's shape if only axes are merged, else as it is.

  Raises:
    UserError: of a dtype that is too coarse, with NaN, or with its axes exchanged.
  """
  if x.dtype.kind not in 'iuf' or x.dtype.itemsize == 2:
    raise UserError(f'{place} is {x.dtype}: compute in float32 or float64')
  if np.isnan(x).any():
    where = [int(i) for i in np.argwhere(np.isnan(x))[0]]
    hint = 'softmax of a query whose keys are all masked by -inf is NaN'
    raise UserError(f'{place} is NaN, first at {where}; {hint}')
  if x.shape != right.shape and sorted(x.shape) == sorted(right.shape):
    here = f'{[*x.shape]}, in the kit {[*right.shape]}'
    raise UserError(f'{place} is transposed: {here}')
  ends = lambda shape: {*np.cumprod(shape)}
  if x.size == right.size and ends(x.shape) <= ends(right.shape) | {1}:
    x = x.reshape(right.shape)  # heads side by side, for instance
  return x


# Comparing


def difference(name: str, mine: np.ndarray, right: np.ndarray) -> float:
  """Returns the mean absolute difference in units of the tolerance.

  Padding is left out.
  """
  if name.endswith('.tokens'):
    return float(not np.array_equal(_trimmed(mine), _trimmed(right)))
  if mine.shape != right.shape:
    return np.inf
  if name.startswith('bleu.'):
    return float(abs(mine - right)) / BLEU_TOLERANCE
  scale = right
  if name.startswith('update_'):
    scale = right - kit.read('parameters')[name.partition('.')[2]]
  real = _is_real(name, right.shape)
  distance = np.abs(mine[real].astype(np.float64) - right[real]).mean()
  # The scale is 0 where a wrong rate changes nothing.
  return float(distance / max(np.abs(scale[real]).mean(), 1e-30) / TOLERANCE)


def _trimmed(tokens: np.ndarray) -> list[list[int]]:
  return [[int(token) for token in row if token != kit.CONFIG['PAD']] for row in tokens]


@functools.cache
def _is_real(name: str, shape: tuple[int, ...]) -> np.ndarray:
  """Returns a mask of this shape that is False where an array belongs to padding.

  Scores count only where the query may see the key.
  """
  stack, last = name.partition('.')[0], name.rpartition('.')[2]
  everything = np.ones(shape, bool)
  # A mistake can change a shape.
  if (
    shape != right_arrays()[name].shape or group_of(name) != 'forward' or len(shape) < 3
  ):
    return everything
  ids = kit.read('inputs')
  source, target = (ids[side] != kit.CONFIG['PAD'] for side in ('source', 'target'))
  queries = source if stack == 'encoder' else target
  if last not in ('scores', 'weights'):
    return everything & queries.reshape(*queries.shape, *(1,) * (len(shape) - 2))
  mask = queries[:, None, :, None]
  if last == 'scores':
    causal = np.tri(shape[-1], dtype=bool)
    of_target = name.startswith('decoder') and '.attention.' in name
    mask = mask & (causal if of_target else source[:, None, None])
  return everything & mask


def first_difference(mine: Arrays, names: tuple[str, ...]) -> int:
  """Returns the number of the first array that differs from a wrong model's.

  That is len(mine) if none does, and -1 if the mistakes exclude each other.
  """
  known = mistakes.read()
  for number, (name, x) in enumerate(mine.items()):
    group = group_of(name)
    relevant = tuple(n for n in names if known[n].affects(group))
    try:
      wrong = arrays_of(group, relevant) if relevant else right_arrays()
    except ValueError:
      return -1
    if difference(name, x, wrong[name]) > 1:
      return number
  return len(mine)


def find(mine: Arrays, first: int) -> tuple[list[tuple[str, ...]], int]:
  """Returns the mistakes that explain the most arrays, and the first that then differs.

  Each item explains the arrays alone; the user's file cannot tell them apart.
  """
  best: list[tuple[str, ...]] = [()]
  for _ in range(MOST_MISTAKES):
    reached = {
      frozenset((*names, name)): first_difference(mine, (*names, name))
      for names in best
      for name in mistakes.read()
      if name not in names
    }
    farthest = max(reached.values())
    if farthest <= first:
      break
    first = farthest
    best = [tuple(names) for names, number in reached.items() if number == first]
    if first == len(mine):
      break
  return best, first


# What is printed


def report(mine: Arrays) -> Iterator[str]:
  """Yields how far the user's arrays are right, and what is wrong."""
  names, right = [*mine], right_arrays()
  first = first_difference(mine, ())
  if first:
    others = f', {names[0]} to {names[first - 1]}' if first > 1 else f': {names[0]}'
    yield f'equal: {first} of {len(mine)} arrays{others}'
  if first == len(mine):
    return
  name = names[first]
  yield f'first difference: {name}, {_where(name, mine[name], right[name])}'
  if rate := dropout_rate(mine[name], right[name]):
    yield f'mistake: dropout is on, with a rate of {rate:.2f} (section 5.4)'
    return
  if any(difference(name, x, right[name]) <= 1 for x in _transposes(mine[name])):
    yield f'{name} is transposed'
    return
  if name.startswith('bleu.'):
    yield from _wrong_bleu(name, mine[name])
    return
  best, reached = find(mine, first)
  if reached == first:
    yield 'no known mistake explains it'
    later = [n for n in names[first:] if difference(n, mine[n], right[n]) <= 1]
    if later:
      yield f'{later[-1]} is equal: {name} may be another quantity than in the kit'
    return
  known = mistakes.read()
  for number, wrong in enumerate(best):
    start = 'mistake' if len(wrong) == 1 else f'{len(wrong)} mistakes'
    if reached < len(mine):
      start = f'at least {len(wrong) + 1} mistakes, the first'
      start += f' {len(wrong)}' if len(wrong) > 1 else ''
    text = '; '.join(
      f'{known[n].says} (section {known[n].section})' for n in known if n in wrong
    )
    yield f'{"or" if number else start}: {text}'
    if len(wrong) == 1:
      yield from known[wrong[0]].lines()
  if reached < len(mine):
    yield f'with that the first difference is {names[reached]}'


def _wrong_bleu(name: str, score: np.ndarray) -> Iterator[str]:
  """Yields which mistake yields a score."""
  bleu = kit.read_json('bleu')
  others = {key: x for key, x in bleu['right'].items() if key != name}
  explained = [
    f'mistake: it is {says} (docs/bleu.md)'
    for says, x in (others | bleu['wrong']).items()
    if difference(name, score, np.array(x)) <= 1
  ]
  yield from explained or ['no known mistake explains it']


def _where(name: str, mine: np.ndarray, right: np.ndarray) -> str:
  """Returns how far arrays differ, and in which part of them."""
  if mine.shape != right.shape:
    return f'of shape {[*mine.shape]}, in the kit {[*right.shape]}'
  real = _is_real(name, right.shape)
  distance = np.where(real, np.abs(mine - right), 0)  # masked scores may be -inf
  index = np.unravel_index(distance.argmax(), distance.shape)
  by = distance[real].mean() / np.abs(right[real]).mean()
  text = f'by {by:.1e} of its size, most at {[int(i) for i in index]}: '
  text += f'{mine[index]:.6g} for {right[index]:.6g}'
  axes = {'scores': 'sentence head query key', 'heads': 'sentence position head column'}
  labels = axes.get(name.rpartition('.')[2].replace('weights', 'scores'), '').split()
  labels = labels or 'sentence position column'.split()
  if group_of(name) != 'forward' or right.ndim != len(labels):
    return text
  differs = distance > 1e-3 * distance.max()
  for axis, label in enumerate(labels):
    hits = np.flatnonzero(differs.any(tuple({*range(right.ndim)} - {axis})))
    if len(hits) == 1 < right.shape[axis]:
      text += f'; only {label} {hits[0]}'
  padded = (kit.read('inputs')['source'] == kit.CONFIG['PAD']).any(1)
  if not differs[~padded].any():
    text += '; only where the source has padding'
  return text


def dropout_rate(mine: np.ndarray, right: np.ndarray) -> float:
  """Returns P_drop if that share of an array is 0 and the rest is scaled up, else 0."""
  if mine.shape != right.shape:
    return 0.0
  exists = right != 0
  kept = exists & (mine != 0)
  if not kept.any() or kept.sum() == exists.sum():
    return 0.0
  scale = mine[kept] / right[kept]
  rate = 1 - 1 / scale.mean()
  return rate if rate > 0.01 and np.ptp(scale) < 1e-2 else 0.0


def _transposes(x: np.ndarray) -> Iterator[np.ndarray]:
  """Yields transposes that have the same shape."""
  for axis in range(1, x.ndim):
    matrix = x.reshape(np.prod(x.shape[:axis]), -1)
    if matrix.shape[0] == matrix.shape[1]:
      yield matrix.T.reshape(x.shape)
  if x.ndim > 2 and x.shape[-1] == x.shape[-2]:
    yield x.swapaxes(-1, -2)
