"""Computes the kit's arrays by examples/one_file.py in float64, as it is or edited.

A mistake is an edit of that file's text. NumPy computes what needs no gradient, so that
nothing is compiled. The scores, weights and heads of attention are local variables in
one_file.py, so they are read as each function returns.
"""

import contextlib
import functools
import inspect
import pathlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.special
from jax.flatten_util import ravel_pytree

from transformer_jax.machine.errors import UserError

Arrays = dict[str, np.ndarray]

ONE_FILE = pathlib.Path(__file__).parents[2] / 'examples/one_file.py'
EPSILON_LS, WARMUP, UPDATES = 0.1, 4, (1, 2, 10)
EXTRA_LENGTH = 12
# Functions of one_file.py -> their local variables -> the arrays' names. '' is the
# value that the function returns.
RECORDED = {
  'embed': {
    'encoding': 'positional_encoding',
    'scaled': 'scaled_embedding',
    '': 'input',
  },
  'attention': {
    'scores': 'scores',
    'weights': 'weights',
    'heads': 'heads',
    '': 'output',
  },
  'feed_forward': {'hidden': 'hidden', '': 'output'},
  'add_and_norm': {'': ''},
}
# What one_file.py uses of JAX, in NumPy.
NUMPY_FORM = types.SimpleNamespace(
  jit=lambda function: function,
  lax=types.SimpleNamespace(stop_gradient=lambda x: x),
  nn=types.SimpleNamespace(
    gelu=lambda x, approximate: (
      x * scipy.special.expit((8 / np.pi) ** 0.5 * (x + 0.044715 * x**3))
      if approximate
      else x * scipy.special.ndtr(x)
    ),
    log_softmax=lambda x: scipy.special.log_softmax(x, -1),
    relu=lambda x: np.maximum(x, 0),
    softmax=lambda x, axis=-1: scipy.special.softmax(x, axis),
  ),
)


def load(edits: Sequence[tuple[str, str]] = ()) -> types.ModuleType:
  """Returns one_file.py as a module, after edits of its text.

  Args:
    edits: pairs of a text that occurs once in the file and what replaces it.

  Raises:
    UserError: the package does not lie in a checkout.
    ValueError: a text to replace does not occur once.
  """
  if not ONE_FILE.exists():
    raise UserError(f'{ONE_FILE} does not exist: give the command in a checkout')
  text = ONE_FILE.read_text()
  for old, new in edits:
    if (count := text.count(old)) != 1:
      raise ValueError(f'{old!r} occurs {count} times in {ONE_FILE}')
    text = text.replace(old, new)
  module = types.ModuleType('one_file')
  module.__file__ = str(ONE_FILE)
  exec(compile(text, str(ONE_FILE), 'exec'), module.__dict__)
  return module


def load_in_numpy(edits: Sequence[tuple[str, str]] = ()) -> Any:
  """Returns load()'s module, which computes by NumPy."""
  module: Any = load(edits)
  module.jax, module.jnp = NUMPY_FORM, np
  module.next_log_p = inspect.unwrap(module.next_log_p)
  return module


def flatten(tree: Any) -> dict[str, Any]:
  """Returns one_file's parameters by name, such as `encoder.0.norm_1.scale`."""
  return {name: x for name, x in _nodes(tree) if not isinstance(x, dict | list)}


def _nodes(tree: Any, prefix: str = '') -> Iterator[tuple[str, Any]]:
  """Yields names and values of a tree: dictionaries, lists and arrays."""
  for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
    name = f'{prefix}{key}'
    yield name, value
    if isinstance(value, dict | list):
      yield from _nodes(value, f'{name}.')


def unflatten(arrays: Mapping[str, Any]) -> dict[str, Any]:
  """Returns one_file's parameters from their names."""
  tree: dict[str, Any] = {}
  for name, array in arrays.items():
    *path, last = name.split('.')
    node = functools.reduce(lambda node, key: node.setdefault(key, {}), path, tree)
    node[last] = array
  for stack in ('encoder', 'decoder'):
    tree[stack] = [tree[stack][str(n)] for n in range(len(tree[stack]))]
  return tree


def observe(
  function: Callable[[], Any], see: Callable[[types.FrameType, Any], None]
) -> None:
  """Calls function(), and see(frame, value) as functions of one_file.py return."""

  def hook(frame: types.FrameType, event: str, value: Any) -> None:
    if event == 'return' and frame.f_code.co_filename == str(ONE_FILE):
      see(frame, value)

  before = sys.getprofile()
  sys.setprofile(hook)
  try:
    function()
  finally:
    sys.setprofile(before)


def forward(module: Any, params: Any, source: np.ndarray, target: np.ndarray) -> Arrays:
  """Returns all arrays of the forward pass, in the order of computation."""
  arrays: Arrays = {}
  names = {id(node): name for name, node in _nodes(params)}

  def see(frame: types.FrameType, value: Any) -> None:
    function, variables = frame.f_code.co_name, frame.f_locals
    prefix = names.get(id(variables.get('p')), '')
    if function == 'embed' and frame.f_back:  # encode() or decode() called it
      prefix = f'{frame.f_back.f_code.co_name}r'
    for variable, name in RECORDED.get(function, {}).items():
      array = variables[variable] if variable else value
      arrays[f'{prefix}.{name}'.rstrip('.')] = array
    if function == 'loss':
      arrays['logits'] = variables['logits']
      arrays['log_probabilities'] = variables['log_p']

  loss = functools.partial(module.loss, params, source, target)
  observe(lambda: loss(EPSILON_LS), see)
  return arrays | {'loss.smoothed': loss(EPSILON_LS), 'loss.plain': loss(0.0)}


def learning_rates(module: Any, d_model: int, warmup: int, count: int) -> np.ndarray:
  """Returns the rates of the first `count` updates."""
  schedules = []

  def see(frame: types.FrameType, value: Any) -> None:
    if frame.f_code.co_name == 'adam':
      schedules.append(frame.f_locals['rate'])

  observe(lambda: module.adam(d_model, warmup), see)
  with np.errstate(divide='ignore'):  # a schedule may begin at step 0
    return schedules[0](np.arange(count, dtype=np.float64))


def search(
  module: Any, params: Any, source: np.ndarray, beam: int, alpha: float
) -> Arrays:
  """Returns each sentence's best translation, padded, and its score."""
  last: dict[str, Any] = {}

  def see(frame: types.FrameType, value: Any) -> None:
    if frame.f_code.co_name == 'beam_search':
      last.update(frame.f_locals, translations=value)

  arguments = params, source, beam, alpha, EXTRA_LENGTH
  observe(lambda: module.beam_search(*arguments), see)
  cut = [
    beams[0][0] / last['penalty'](limit)
    for beams, limit in zip(last['live'], last['limits'], strict=True)
  ]
  scores = [
    score if tokens else other
    for (score, tokens), other in zip(last['finished'], cut, strict=True)
  ]
  tokens = module.pad(last['translations'], source.shape[1] + EXTRA_LENGTH)
  return {'tokens': tokens, 'scores': np.array(scores)}


def gradient(
  module: Any, params: Any, source: np.ndarray, target: np.ndarray
) -> Arrays:
  """Returns the smoothed loss's gradient w.r.t. each parameter, as `gradient.NAME`."""
  with _float64():
    params = jax.tree.map(jnp.asarray, params)
    tree = jax.grad(module.loss)(params, source, target, EPSILON_LS)
    return _named('gradient', tree)


def updates(
  module: types.ModuleType, optimized: types.ModuleType, params: Any, *batch: np.ndarray
) -> Arrays:
  """Returns the parameters after some updates on one batch, `update_1.NAME`.

  `module` has the loss, `optimized` the optimizer.
  """
  arrays: Arrays = {}
  with _float64():
    optimizer = optimized.adam(params['embedding'].shape[1], WARMUP)
    # As one vector, so that an update is few operations.
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
    state, gradient = optimizer.init(x), _compiled_gradient(module)
    for number in range(1, UPDATES[-1] + 1):
      by_x = ravel_pytree(gradient(unravel(x), *batch))[0]
      changes, state = optimizer.update(by_x, state, x)
      x = optax.apply_updates(x, changes)
      if number in UPDATES:
        arrays |= _named(f'update_{number}', unravel(x))
  return arrays


@functools.cache
def _compiled_gradient(module: types.ModuleType) -> Callable[..., Any]:
  def loss(params: Any, source: np.ndarray, target: np.ndarray) -> jax.Array:
    return module.loss(params, source, target, EPSILON_LS)

  # It is computed ten times, so compiling takes longer than computing.
  options = {'xla_backend_optimization_level': 0}
  return jax.jit(jax.grad(loss), compiler_options=options)


@contextlib.contextmanager
def _float64() -> Iterator[None]:
  with jax.enable_x64(True), jax.numpy_rank_promotion('allow'):  # as one_file.py does
    yield


def _named(prefix: str, tree: Any) -> Arrays:
  return {f'{prefix}.{name}': np.array(x) for name, x in flatten(tree).items()}
