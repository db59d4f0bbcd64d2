"""The model equals examples/one_file.py; causality and padding by gradient.

Sizes are odd primes, d_k is not d_v and h d_v is not d_model, so that no two axes can
be taken for one another.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import PyTree

from configs import base
from toy import forms
from toy.config import tiny
from toy.forms import dropout_key
from toy.names import renamed
from transformer_jax.config import Model
from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.model.dropout import Dropout
from transformer_jax.model.transformer import Transformer, search_weights
from transformer_jax.reference import compute

LONGEST, VOCABULARY = 13, 29
PAPER = {'N': 2, 'd_model': 7, 'd_ff': 11, 'h': 3, 'd_k': 5, 'd_v': 2, 'P_drop': 0.3}
PAPER |= {'P_drop_attention': 0.0, 'positions': 'sinusoid'}
PAPER |= {'max_positions': LONGEST, 'vocab_size': VOCABULARY, 'target_vocab_size': 0}
OTHER = {'target_vocab_size': 31, 'positions': 'learned'}
LENGTHS = ((5, 7), (3, 4), (1, 6))  # source and target tokens of each sentence
# Edits of one_file.py: attention's weights pass through a function, and OTHER's tables.
WEIGHTS = [("->bthv', weights, v", "->bthv', drop_weights(weights), v")]
SOURCE = "params['source_embedding'][source] * 7**0.5 + params['source_positions'][:%s]"
TARGET = "params['embedding'][shifted] * 7**0.5 + params['target_positions'][:%s]"
TABLES = [('embed(params, source)', SOURCE % 'source.shape[1]')]
TABLES += [('embed(params, shifted)', TARGET % 'shifted.shape[1]')]


@functools.cache
def model_of(**changes: Any) -> tuple[nnx.GraphDef, PyTree]:
  """Returns a model and random parameters, those of biases and norms too."""

  def make() -> Transformer:
    dtypes = {'dtype': jnp.float32, 'activation_dtype': jnp.float32}
    return Transformer(Model(**PAPER | changes), **dtypes, rngs=nnx.Rngs(params=0))

  graph, shapes = nnx.split(nnx.eval_shape(make))
  params = forms.random_like(nnx.to_pure_dict(shapes), 0.5)
  return graph, jax.tree.map(jnp.asarray, params)


def sentences() -> tuple[jax.Array, jax.Array]:
  """Returns padded source and target of LENGTHS; ids from 3 on."""
  rng, pair = np.random.default_rng(1), []
  for lengths in np.array(LENGTHS).T:
    is_token = np.arange(lengths.max()) < lengths[:, None]
    ids = rng.integers(3, VOCABULARY, is_token.shape)
    pair.append(jnp.asarray(np.where(is_token, ids, PAD)))
  return pair[0], pair[1]


def assert_equals_one_file(
  logits: jax.Array,
  params: PyTree,
  drop_weights: Callable,
  drop: Callable = lambda row, x: x,
  edits: Sequence[tuple[str, str]] = (),
) -> None:
  """Compares with NumPy in float64, a sentence at a time.

  Both functions get the number of the sentence and weights [1, H, T, S] or [1, T, D].
  """
  one_file = compute.load_in_numpy([*WEIGHTS, *edits])
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  params |= renamed(params)
  for row, (S, T) in enumerate(LENGTHS):
    source, target = (np.asarray(x)[row : row + 1] for x in sentences())
    of_row = functools.partial(drop, row)
    one_file.drop_weights = functools.partial(drop_weights, row)
    memory = one_file.encode(params, source[:, :S], of_row)
    (expected,) = one_file.decode(params, memory, target[:, :T], of_row)
    np.testing.assert_allclose(logits[row, :T], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(('changes', 'edits'), [({}, []), (OTHER, TABLES)])
def test_equals_one_file(changes: dict[str, Any], edits: list):
  """So do the weights of each head, which are 0 where it may not look.

  Also with a source table of its own, and with row E's learned positions.
  """
  graph, params = model_of(**changes)
  source, target = sentences()

  @jax.jit
  def run(params: PyTree) -> tuple:
    model = nnx.merge(graph, params)
    return model(source, target).logits, model.attention_weights(source, target)

  logits, weights = jax.device_get(run(params))
  assert logits.shape == (*target.shape, changes.get('target_vocab_size', VOCABULARY))
  assert logits.dtype == jnp.float32
  both = zip(weights.decoder, weights.cross, strict=True)
  ours = [*weights.encoder, *(kind for pair in both for kind in pair)]
  calls = iter(ours * len(LENGTHS))

  def compare(row: int, expected: np.ndarray) -> np.ndarray:
    _, _, queries, keys = expected.shape
    own = next(calls)[row, :, :queries]
    np.testing.assert_allclose(own[..., :keys], expected[0], atol=1e-6)
    assert (own[..., keys:] == 0).all()
    return expected

  assert_equals_one_file(logits, params, compare, edits=edits)
  assert next(calls, None) is None


def test_dropout_is_where_section_5_4_has_it(monkeypatch):
  """With known masks the model equals one_file.py, which drops at the same sites.

  Attention's weights are dropped too, between the softmax and the values.
  """
  graph, params = model_of(P_drop_attention=0.5)
  rng, sites = np.random.default_rng(2), []
  masks: dict[float, list[np.ndarray]] = {0.3: [], 0.5: []}

  def drop(self: Dropout, x: jax.Array, rate: float, site: int) -> jax.Array:
    sites.append(int(site))
    masks[rate].append((rng.integers(0, 2, x.shape) * 2).astype(np.float32))
    return x * masks[rate][-1]

  monkeypatch.setattr(Dropout, '_drop', drop)

  @jax.jit
  def run(params: PyTree) -> jax.Array:
    with jax.disable_jit():  # otherwise equal layers would share a mask
      return nnx.merge(graph, params)(*sentences(), dropout_key()).logits

  logits = run(params)
  assert (len(masks[0.3]), len(masks[0.5])) == (2 + 2 * 5, 2 * 3)
  assert len({*sites}) == len(sites)
  outputs, weights = (iter(masks[rate] * len(LENGTHS)) for rate in (0.3, 0.5))
  assert_equals_one_file(
    logits,
    params,
    lambda row, x: x * next(weights)[row, :, : x.shape[2], : x.shape[3]],
    lambda row, x: x * next(outputs)[row, : x.shape[1]],
  )


def multiply_adds(program: Any) -> int:
  """Returns how many the matrix products of a jaxpr have."""
  total = 0
  for operation in program.eqns:
    if operation.primitive.name == 'dot_general':
      ((axes, _), _), left = operation.params['dimension_numbers'], operation.invars[0]
      terms = math.prod(left.aval.shape[axis] for axis in axes)
      total += terms * operation.outvars[0].aval.size
    inner = [getattr(x, 'jaxpr', x) for x in jax.tree.leaves(operation.params)]
    total += sum(multiply_adds(x) for x in inner if hasattr(x, 'eqns'))
  return total


@pytest.mark.parametrize('changes', [{}, OTHER])
def test_parameters_and_flops(changes: dict[str, Any]):
  """They equal those of the model that is built, and of the products it makes."""
  sizes, T = PAPER | changes, 5
  graph, params = model_of(**changes)
  count = sum(x.size for x in jax.tree.leaves(params))
  assert flops.parameters(sizes) == count
  ids = jax.ShapeDtypeStruct((1, T), jnp.int32)
  forward = lambda p, *pair: nnx.merge(graph, p)(*pair).logits
  with forms.of_an_accelerator():
    program = jax.make_jaxpr(forward)(params, ids, ids)
  each = multiply_adds(program.jaxpr) // T
  assert flops.flops_per_target_token(sizes, T) == 3 * 2 * each


# 3.4 and 3.1: one embedding, norms after the sums


D = 64
FANS = {'query': (D, 32), 'key': (D, 32), 'value': (D, 96), 'output': (96, D)}
FANS |= {'inner/kernel': (D, 96), 'outer/kernel': (96, D)}


def fresh(seed: int) -> dict[str, np.ndarray]:
  """Returns a model's parameters as they are before training, by their paths."""
  config = base.get_config()
  sizes = {'N': 1, 'd_model': D, 'd_ff': 96, 'h': 4, 'd_k': 8, 'd_v': 24}
  sizes |= {'positions': 'learned', 'max_positions': 300}
  config.model.update(sizes | {'vocab_size': 512, 'target_vocab_size': 400})
  config.seed = seed
  leaves = jax.tree_util.tree_leaves_with_path(build.transformer(config)[1])
  names = lambda path: '/'.join(str(part.key) for part in path)
  return {names(path): np.asarray(leaf) for path, leaf in leaves}


def test_fresh_parameters():
  """Glorot's bounds by fan, unit norms, zero biases; embeddings have variance 1 / D.

  So embeddings have unit variance once they are scaled. No two matrices of layers or
  seeds are alike.
  """
  params, other = fresh(1), fresh(2)
  for path, x in params.items():
    if x.ndim == 1:
      assert (x == path.endswith('scale')).all()
    elif fan := next((fan for name, fan in FANS.items() if path.endswith(name)), None):
      bound = math.sqrt(6 / sum(fan))
      assert 0.97 * bound < np.abs(x).max() <= bound
      np.testing.assert_allclose(x.std(), bound / 3**0.5, rtol=0.05)
    else:
      np.testing.assert_allclose(x.std() * D**0.5, 1, rtol=0.02)
  with jax.default_prng_impl('rbg'):
    jax.tree.map(np.testing.assert_array_equal, fresh(2), other)
  matrices = [x for x in (*params.values(), *other.values()) if x.ndim > 1]
  assert len({x.tobytes() for x in matrices}) == 2 * (4 + (4 + 2) + (8 + 2))


def test_more_positions_than_are_learned():
  learned = {'model.positions': 'learned', 'model.max_positions': 600}
  fewer = learned | {'model.max_positions': 30}
  longest = [build.longest_text(tiny(**x)) for x in ({}, learned, fewer)]
  assert longest == [512, 512, 30]
  graph, params = model_of(positions='learned')
  ids = jnp.ones((1, LONGEST + 1), int)
  with pytest.raises(UserError, match='14 positions, but max_positions=13'):
    nnx.merge(graph, params)(ids, ids)


@pytest.mark.parametrize(
  ('dtype', 'how', 'of_products', 'of_layers'),
  [
    ('auto', {'backend': 'cpu'}, 'float32', 'float32'),
    ('auto', {'backend': 'gpu'}, 'bfloat16', 'bfloat16'),
    ('bfloat16', {'backend': 'cpu'}, 'bfloat16', 'float32'),
    ('auto', {'backend': 'cpu', 'dtype': jnp.bfloat16}, 'bfloat16', 'float32'),
    ('float32', {'backend': 'gpu'}, 'float32', 'float32'),
  ],
)
def test_dtypes(dtype: str, how: dict[str, Any], of_products: str, of_layers: str):
  """Parameters and logits are in float32; a CPU has no layers in bfloat16."""
  graph, shapes = build.architecture(tiny(dtype=dtype), **how)
  assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype('float32')}
  ids = jnp.ones((1, 3), int)
  outputs = jax.eval_shape(lambda p: nnx.merge(graph, p)(ids, ids), shapes)
  assert (outputs.table.dtype, outputs.x.dtype) == (of_products, of_layers)
  logits = jax.eval_shape(lambda outputs: outputs.logits, outputs)
  assert (logits.dtype, logits.shape) == ('float32', (1, 3, 60))


# 6.1 Decoding with a cache


@pytest.mark.parametrize('changes', [{}, pytest.param(OTHER, marks=pytest.mark.slow)])
def test_cached_decoding_equals_teacher_forcing(changes: dict[str, Any]):
  """At every position, with rows that swap as beams do, in a cache that grows."""
  R, swap_at, grow_at = 3, 3, 5
  graph, params = model_of(**changes)
  prepared = search_weights(params, jnp.float32)
  source, target = sentences()
  B, T = target.shape
  targets = np.random.default_rng(4).integers(3, VOCABULARY, (B, R, T))
  order = np.array([2, 0, 0])
  histories = np.concatenate([targets[:, order, :swap_at], targets[:, :, swap_at:]], 2)
  step = jax.jit(lambda p, *state: nnx.merge(graph, p).step(*state))
  precompute = lambda p, source: nnx.merge(graph, p).precompute_cross_attention(source)
  memory = jax.jit(precompute)(prepared.params, source)
  cache = nnx.merge(graph, prepared.params).empty_cache(B, R, grow_at)
  stepped = []
  for t in range(T):
    history = targets if t < swap_at else histories
    tokens = history[:, :, t - 1] if t else np.full((B, R), BOS)
    if t == swap_at:
      cache = cache.reorder(jnp.broadcast_to(order, (B, R)))
    if t == grow_at:
      cache = cache.grow(T + 2)
    inputs = tokens, jnp.int32(t), cache, memory, prepared.table
    logits, cache = step(prepared.params, *inputs)
    stepped.append(logits)
  run = jax.jit(lambda p, *ids: nnx.merge(graph, p)(*ids).logits)
  for r in range(R):
    swapped = run(params, source, histories[:, r])
    straight = run(params, source, targets[:, r])
    for t in range(T):
      expected = straight[:, t] if t < swap_at else swapped[:, t]
      np.testing.assert_allclose(stepped[t][:, r], expected, rtol=1e-5, atol=1e-5)
