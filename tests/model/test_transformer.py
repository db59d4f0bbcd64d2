"""The model equals section 3 written out in NumPy; causality and padding by gradient.

Sizes are odd primes, d_k is not d_v and h d_v is not d_model, so that no two axes can
be taken for one another.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
from transformer_jax.config import Model
from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops, layers
from transformer_jax.model.dropout import NO_DROPOUT, Dropout
from transformer_jax.model.transformer import Transformer, search_weights
from transformer_jax.training.step import cross_entropy

Drop = Callable[[np.ndarray], np.ndarray]

SIZES = {'N': 2, 'd_model': 7, 'd_ff': 11, 'h': 3, 'd_k': 5, 'd_v': 2}
LONGEST, VOCABULARY = 13, 29
PAPER = SIZES | {'P_drop': 0.3, 'P_drop_attention': 0.0, 'positions': 'sinusoid'}
PAPER |= {'max_positions': LONGEST, 'vocab_size': VOCABULARY, 'target_vocab_size': 0}
OTHER = {'target_vocab_size': 31, 'positions': 'learned'}
LENGTHS = ((5, 7), (3, 4), (1, 6))  # source and target tokens of each sentence


@functools.cache
def graph_of(dtype: Any = jnp.float32, **changes: Any) -> tuple[nnx.GraphDef, PyTree]:
  """Returns a model's graph and the shapes of its parameters; nothing is computed."""

  def make() -> Transformer:
    model = Model(**PAPER | changes)
    dtypes = {'dtype': dtype, 'activation_dtype': dtype}
    return Transformer(model, **dtypes, rngs=nnx.Rngs(params=0))

  graph, shapes = nnx.split(nnx.eval_shape(make))
  return graph, nnx.to_pure_dict(shapes)


def random_params(shapes: PyTree) -> PyTree:
  """Makes every parameter random, biases and norms too; scales of norms are near 1."""
  rng = np.random.default_rng(0)

  def fill(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    values = rng.normal(size=leaf.shape) * 0.5
    return jnp.asarray(values + (path[-1].key == 'scale'), jnp.float32)

  return jax.tree_util.tree_map_with_path(fill, shapes)


def sentences() -> tuple[jax.Array, jax.Array]:
  """Returns padded source and target of LENGTHS; ids from 3 on."""
  rng = np.random.default_rng(1)
  pair = []
  for lengths in zip(*LENGTHS, strict=True):
    ids = np.full((len(lengths), max(lengths)), PAD, np.int32)
    for row, length in zip(ids, lengths, strict=True):
      row[:length] = rng.integers(3, VOCABULARY, length)
    pair.append(jnp.asarray(ids))
  return pair[0], pair[1]


@functools.cache
def logits_of(graph: nnx.GraphDef) -> Callable[..., jax.Array]:
  return jax.jit(lambda params, *inputs: nnx.merge(graph, params)(*inputs).logits)


# The paper once more, a sentence and a head at a time, without padding or masks


class Other(NamedTuple):
  """Where a test looks in."""

  drop: Drop = lambda x: x  # where section 5.4 drops
  drop_weights: Drop = lambda weights: weights  # of one query of one head


def attention(p: PyTree, x: np.ndarray, memory: np.ndarray, causal: bool, other: Other):
  out, h = np.zeros_like(x), p['query'].shape[1]
  for head in range(h):
    q, k, v = (
      y @ p[name][:, head]
      for y, name in ((x, 'query'), (memory, 'key'), (memory, 'value'))
    )
    for t in range(len(x)):
      sees = t + 1 if causal else len(memory)
      scores = np.array([q[t] @ k[s] for s in range(sees)]) / k.shape[1] ** 0.5
      exponents = np.exp(scores - scores.max())
      weights = other.drop_weights(exponents / exponents.sum())
      out[t] += sum(weights[s] * v[s] for s in range(sees)) @ p['output'][head]
  return out


def feed_forward(p: PyTree, x: np.ndarray) -> np.ndarray:
  inner = np.maximum(0, x @ p['inner']['kernel'] + p['inner']['bias'])
  return inner @ p['outer']['kernel'] + p['outer']['bias']


def add_and_norm(p: PyTree, x: np.ndarray, sublayer: np.ndarray, other: Other):
  total = x + other.drop(sublayer)
  for row in total:
    row[:] = (row - row.mean()) / np.sqrt(row.var() + 1e-6)
  return total * p['norm']['scale'] + p['norm']['bias']


def embed(p: PyTree, ids: list[int], stack: str) -> np.ndarray:
  has_table = 'source_embedding' in p and stack == 'source'
  rows = p['source_embedding' if has_table else 'embedding']
  d = rows.shape[1]
  x = np.array([rows[i] * math.sqrt(d) for i in ids])
  if f'{stack}_positions' in p:
    return x + p[f'{stack}_positions'][: len(ids)]
  for position in range(len(ids)):
    for i in range(d):
      angle = position / 10000 ** ((i - i % 2) / d)
      x[position, i] += math.cos(angle) if i % 2 else math.sin(angle)
  return x


def reference(params: PyTree, source: list[int], target: list[int], other: Other):
  """Returns [T, W] logits of one sentence."""
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  x = other.drop(embed(p, source, 'source'))
  for layer in (p['encoder'][n] for n in range(len(p['encoder']))):
    attended = attention(layer['attention'], x, x, False, other)
    x = add_and_norm(layer['attention_norm'], x, attended, other)
    transformed = feed_forward(layer['feed_forward'], x)
    x = add_and_norm(layer['feed_forward_norm'], x, transformed, other)
  y = other.drop(embed(p, [BOS, *target[:-1]], 'target'))
  for layer in (p['decoder'][n] for n in range(len(p['decoder']))):
    attended = attention(layer['attention'], y, y, True, other)
    y = add_and_norm(layer['attention_norm'], y, attended, other)
    attended = attention(layer['cross'], y, x, False, other)
    y = add_and_norm(layer['cross_norm'], y, attended, other)
    transformed = feed_forward(layer['feed_forward'], y)
    y = add_and_norm(layer['feed_forward_norm'], y, transformed, other)
  return y @ p['embedding'].T


def pairs() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
  """Yields each row of sentences() without padding."""
  source, target = map(np.asarray, sentences())
  for row, (S, T) in enumerate(LENGTHS):
    yield row, source[row, :S], target[row, :T]


def assert_equals_reference(logits: jax.Array, params: PyTree, other: Callable) -> None:
  """`other` takes a row and returns its Other."""
  for row, source, target in pairs():
    expected = reference(params, source, target, other(row))
    np.testing.assert_allclose(
      logits[row, : len(target)], expected, rtol=1e-4, atol=2e-5
    )


@pytest.mark.parametrize('changes', [{}, OTHER])
def test_equals_the_paper_written_out(changes: dict[str, Any]):
  """Also with a source table of its own, and with row E's learned positions."""
  graph, shapes = graph_of(**changes)
  params = random_params(shapes)
  source, target = sentences()
  logits = logits_of(graph)(params, source, target)
  assert logits.shape == (*target.shape, changes.get('target_vocab_size', VOCABULARY))
  assert logits.dtype == jnp.float32
  assert_equals_reference(logits, params, lambda row: Other())


def test_layer_norms_epsilon():
  """It shows where the variance is as small."""
  x = 1e-3 * forms.normal(1, 4, 12)
  expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
  vectors = jnp.ones(12), jnp.zeros(12)
  ours = layers.add_and_norm(x, jnp.zeros(x.shape), *vectors, NO_DROPOUT)
  np.testing.assert_allclose(ours, expected, rtol=1e-4)


def test_weights_equal_the_paper_written_out():
  """They sum to 1 where a head may look, and are 0 elsewhere."""
  graph, shapes = graph_of()
  params = random_params(shapes)
  weights_of = lambda p: nnx.merge(graph, p).attention_weights(*sentences())
  weights = jax.device_get(jax.jit(weights_of)(params))
  N = SIZES['N']
  for b, source, target in pairs():
    rows: list[np.ndarray] = []
    record = lambda row, rows=rows: rows.append(row) or row
    reference(params, source, target, Other(drop_weights=record))
    expected = iter(rows)
    S, T = len(source), len(target)
    order = [(weights.encoder[n], S) for n in range(N)]
    order += [
      (kind[n], T) for n in range(N) for kind in (weights.decoder, weights.cross)
    ]
    for ours, queries in order:
      np.testing.assert_allclose(ours[b, :, :queries].sum(-1), 1, atol=1e-6)
      for head, t in np.ndindex(SIZES['h'], queries):
        row = next(expected)
        np.testing.assert_allclose(ours[b, head, t, : len(row)], row, atol=1e-6)
        assert (ours[b, head, t, len(row) :] == 0).all()
    assert next(expected, None) is None


def test_dropout_is_where_section_5_4_has_it(monkeypatch):
  """With known masks the model equals the reference, which drops at the same sites.

  Attention's weights are dropped too, between the softmax and the values.
  """
  graph, shapes = graph_of(N=2, P_drop=0.3, P_drop_attention=0.5)
  params = random_params(shapes)
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

  def other(row: int) -> Other:
    S, T = LENGTHS[row]
    outputs = iter(masks[0.3])
    queries = iter(
      mask[row, head, query]
      for mask, count in zip(masks[0.5], [S, S, T, T, T, T], strict=True)
      for head, query in np.ndindex(SIZES['h'], count)
    )
    return Other(
      drop=lambda x: x * next(outputs)[row, : len(x)],
      drop_weights=lambda weights: weights * next(queries)[: len(weights)],
    )

  assert_equals_reference(logits, params, other)


def test_causality_and_padding_by_gradient():
  """Every token has an id of its own, so a row of the embedding is one position.

  The logits that are looked at are those of tokens that do not occur, whose rows the
  softmax's product alone would reach.
  """
  graph, shapes = graph_of()
  source = jnp.array([[3, 4, 5, PAD, PAD]])
  target = jnp.array([[6, 7, 8, 9, 10]])
  absent = np.arange(11, 14)

  def logits(embedding: jax.Array, rest: PyTree) -> jax.Array:
    model = nnx.merge(graph, rest | {'embedding': embedding})
    return model(source, target).logits[0][:, absent]

  params = random_params(shapes)
  jacobian = jax.jit(jax.jacrev(logits))(params['embedding'], params)
  reaches = np.abs(jacobian).max((1, 3))  # [position of the logits, token]
  for t in range(5):
    for j in range(5):
      if j < t:
        assert reaches[t, target[0, j]] > 1e-4, (t, j)
      else:
        assert reaches[t, target[0, j]] == 0, (t, j)
  assert (reaches[:, [BOS, 3, 4, 5]] > 1e-4).all()
  assert (reaches[:, PAD] == 0).all()


def multiply_adds(program: Any) -> int:
  """Returns how many the matrix products of a jaxpr have."""
  total = 0
  for operation in program.eqns:
    if operation.primitive.name == 'dot_general':
      ((axes, _), _), (left, _) = (
        operation.params['dimension_numbers'],
        operation.invars,
      )
      (result,) = operation.outvars
      terms = math.prod(left.aval.shape[axis] for axis in axes)
      total += terms * math.prod(result.aval.shape)
    inner = [getattr(x, 'jaxpr', x) for x in jax.tree.leaves(operation.params)]
    total += sum(multiply_adds(x) for x in inner if hasattr(x, 'eqns'))
  return total


@pytest.mark.parametrize('changes', [{}, OTHER])
def test_parameters_and_flops(changes: dict[str, Any]):
  """They equal those of the model that is built, and of the products it makes."""
  sizes, T = PAPER | changes, 5
  graph, shapes = graph_of(**changes)
  count = sum(x.size for x in jax.tree.leaves(shapes))
  assert flops.parameters(sizes) == count
  ids = jax.ShapeDtypeStruct((1, T), jnp.int32)
  forward = lambda p, *pair: nnx.merge(graph, p)(*pair).logits
  with forms.of_an_accelerator():
    program = jax.make_jaxpr(forward)(shapes, ids, ids)
  each = multiply_adds(program.jaxpr) // T
  assert flops.flops_per_target_token(sizes, T) == 3 * 2 * each


# 3.4 and 3.1: one embedding, norms after the sums


def fresh(seed: int, **changes: Any) -> dict[str, np.ndarray]:
  """Returns a model's parameters as they are before training, by their paths."""
  config = base.get_config()
  sizes = {'N': 1, 'd_model': 64, 'd_ff': 96, 'h': 4, 'd_k': 8, 'd_v': 24}
  config.model.update(sizes | {'vocab_size': 512} | changes)
  config.seed = seed
  leaves = jax.tree_util.tree_leaves_with_path(build.transformer(config)[1])
  names = lambda path: '/'.join(str(part.key) for part in path)
  return {names(path): np.asarray(leaf) for path, leaf in leaves}


def test_fresh_parameters():
  """Glorot's bounds by fan, unit norms, zero biases; embeddings have variance 1 / D.

  So embeddings have unit variance once they are scaled. No two matrices of layers or
  seeds are alike.
  """
  sizes = {'positions': 'learned', 'max_positions': 300, 'target_vocab_size': 400}
  params, D = fresh(1, **sizes), 64
  fans = {'query': (D, 32), 'key': (D, 32), 'value': (D, 96), 'output': (96, D)}
  fans |= {'inner/kernel': (D, 96), 'outer/kernel': (96, D)}
  tables = []
  for path, x in params.items():
    if x.ndim == 1:
      assert (x == path.endswith('scale')).all()
    elif fan := next((fan for name, fan in fans.items() if path.endswith(name)), None):
      bound = math.sqrt(6 / sum(fan))
      assert 0.97 * bound < np.abs(x).max() <= bound
      np.testing.assert_allclose(x.std(), bound / 3**0.5, rtol=0.05)
    else:
      tables.append(x)
      np.testing.assert_allclose(x.std() * D**0.5, 1, rtol=0.02)
  assert sorted(len(x) for x in tables) == [300, 300, 400, 512]
  assert sum(x.ndim > 1 for x in params.values()) == 4 + (4 + 2) + (8 + 2)
  other = fresh(2, **sizes)
  with jax.default_prng_impl('rbg'):
    jax.tree.map(np.testing.assert_array_equal, fresh(2, **sizes), other)
  matrices = [x for some in (params, other) for x in some.values() if x.ndim > 1]
  assert len({x.tobytes() for x in matrices}) == len(matrices)


def test_more_positions_than_are_learned():
  learned = {'model.positions': 'learned', 'model.max_positions': 600}
  longest = [build.longest_text(tiny(**x)) for x in ({}, learned)]
  assert longest == [512, 512]
  assert build.longest_text(tiny(**learned | {'model.max_positions': 30})) == 30
  graph, shapes = graph_of(positions='learned')
  ids = jnp.ones((1, LONGEST + 1), int)
  with pytest.raises(UserError, match='14 positions, but max_positions=13'):
    nnx.merge(graph, random_params(shapes))(ids, ids)


@pytest.mark.parametrize(
  ('how', 'of_products', 'of_layers'),
  [
    ({'backend': 'cpu'}, 'float32', 'float32'),
    ({'backend': 'gpu'}, 'bfloat16', 'bfloat16'),
    ({'backend': 'cpu', 'dtype': jnp.bfloat16}, 'bfloat16', 'float32'),
    ({'backend': 'gpu', 'dtype': jnp.float32}, 'float32', 'float32'),
  ],
)
def test_dtypes(how: dict[str, Any], of_products: str, of_layers: str):
  """Parameters and logits are in float32; a CPU has no layers in bfloat16."""
  graph, shapes = build.architecture(tiny(), **how)
  assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype('float32')}
  ids = jnp.ones((1, 3), int)
  outputs = jax.eval_shape(lambda p: nnx.merge(graph, p)(ids, ids), shapes)
  assert (outputs.table.dtype, outputs.x.dtype) == (of_products, of_layers)
  logits = jax.eval_shape(lambda outputs: outputs.logits, outputs)
  assert (logits.dtype, logits.shape) == ('float32', (1, 3, 60))


@pytest.mark.slow
def test_gradients_in_bfloat16_are_near_those_of_float32():
  """In an accelerator's forms."""
  pair = jnp.array(np.random.default_rng(0).integers(4, 50, (2, 3, 6)))

  def gradient(dtype: str) -> PyTree:
    graph, _ = build.architecture(tiny(dtype=dtype), backend='gpu')
    outputs = lambda params: nnx.merge(graph, params)(*pair)
    loss = lambda params: cross_entropy(outputs(params), pair[1], 0.1)[0]
    return jax.jit(jax.grad(loss))(build.transformer(tiny())[1])

  with forms.of_an_accelerator():
    leaves = map(jax.tree.leaves, (gradient('float32'), gradient('bfloat16')))
  for exact, ours in zip(*leaves, strict=True):
    assert ours.dtype == jnp.float32
    assert np.linalg.norm(ours - exact) / np.linalg.norm(exact) < 0.03


# 6.1 Decoding with a cache


@pytest.mark.parametrize('changes', [{}, pytest.param(OTHER, marks=pytest.mark.slow)])
def test_cached_decoding_equals_teacher_forcing(changes: dict[str, Any]):
  """At every position, with rows that swap as beams do, in a cache that grows."""
  R, swap_at, grow_at = 3, 3, 5
  graph, shapes = graph_of(**changes)
  params = random_params(shapes)
  prepared = search_weights(params, jnp.float32)
  source, target = sentences()
  B, T = target.shape
  targets = np.random.default_rng(4).integers(3, VOCABULARY, (B, R, T))
  order = np.array([2, 0, 0])
  histories = np.concatenate(
    [targets[:, order, :swap_at], targets[:, :, swap_at:]], axis=2
  )
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
  run = logits_of(graph)
  for r in range(R):
    swapped = run(params, source, histories[:, r])
    straight = run(params, source, targets[:, r])
    for t in range(T):
      expected = straight[:, t] if t < swap_at else swapped[:, t]
      np.testing.assert_allclose(stepped[t][:, r], expected, rtol=1e-5, atol=1e-5)
