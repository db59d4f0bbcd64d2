"""The model equals section 3 written out in numpy; causality and padding by gradient.

Sizes are odd primes, d_k is not d_v and h d_v is not d_model, so that no two axes can
be taken for one another.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx

from configs import base
from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.model import attention as attention_module
from transformer_jax.model import build
from transformer_jax.model import layers as module
from transformer_jax.model.layers import Dropout, sinusoids
from transformer_jax.model.search_weights import search_weights
from transformer_jax.model.transformer import Transformer
from transformer_jax.training import loss

Tree = Any
Drop = Callable[[np.ndarray], np.ndarray]

SIZES = {'N': 2, 'd_model': 7, 'd_ff': 11, 'h': 3, 'd_k': 5, 'd_v': 2}
PLAIN = {'P_drop': 0.3, 'P_drop_attention': 0.0, 'target_vocab_size': 0}
PLAIN |= {'activation': 'relu', 'biases': False, 'norm_epsilon': 1e-6}
VOCABULARY, LONGEST = 29, 13
LENGTHS = ((5, 7), (3, 4), (1, 6))  # source and target tokens of each sentence


@functools.cache
def graph_of(positions: str = 'sinusoid', dtype: Any = jnp.float32, **sizes: Any):
  """A model's graph and the shapes of its parameters; nothing is computed."""

  def make() -> Transformer:
    return Transformer(
      **(SIZES | PLAIN | sizes),
      positions=positions,
      max_positions=LONGEST,
      vocab_size=VOCABULARY,
      dtype=dtype,
      activation_dtype=dtype,
      rngs=nnx.Rngs(params=0),
    )

  graph, shapes = nnx.split(nnx.eval_shape(make))
  return graph, nnx.to_pure_dict(shapes)


def random_params(shapes: Tree, seed: int = 0, fresh_norms: bool = False) -> Tree:
  """Every parameter random, biases and norms too, unless the norms are as made."""
  rng = np.random.default_rng(seed)

  def fill(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    names = [p.key for p in path]
    values = rng.normal(size=leaf.shape) * 0.5
    if 'norm' in names:
      values = values * (not fresh_norms) + (names[-1] == 'scale')
    return values.astype(np.float32)

  return jax.tree_util.tree_map_with_path(fill, shapes)


def sentences(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
  """Padded source and target of LENGTHS; ids from 3 on."""
  rng = np.random.default_rng(seed)
  pair = []
  for lengths in zip(*LENGTHS, strict=True):
    side = np.full((len(lengths), max(lengths)), PAD, np.int32)
    for row, length in zip(side, lengths, strict=True):
      row[:length] = rng.integers(3, VOCABULARY, length)
    pair.append(side)
  return pair[0], pair[1]


@functools.cache
def logits_of(graph: nnx.GraphDef) -> Callable[..., jax.Array]:
  return jax.jit(
    lambda params, source, target, key=None: nnx.merge(graph, params)(
      source, target, key
    )
  )


def weights_of(graph: nnx.GraphDef) -> Callable[..., Any]:
  return jax.jit(lambda params, *pair: nnx.merge(graph, params).attention(*pair))


# The paper once more, a sentence and a head at a time, without padding or masks


def softmax(scores: np.ndarray) -> np.ndarray:
  exponent = np.exp(scores - scores.max())
  return exponent / exponent.sum()


def attention(p: Tree, queries: np.ndarray, memory: np.ndarray, causal: bool):
  out, h = np.zeros_like(queries), p['query'].shape[1]
  biases = {
    name: p[f'{name}_bias'].reshape(h, -1) if f'{name}_bias' in p else np.zeros((h, 1))
    for name in ('query', 'key', 'value')
  }
  for head in range(h):
    q, k, v = (
      x @ p[name][:, head] + biases[name][head]
      for x, name in ((queries, 'query'), (memory, 'key'), (memory, 'value'))
    )
    for t in range(len(queries)):
      sees = t + 1 if causal else len(memory)
      weights = softmax(
        np.array([q[t] @ k[s] for s in range(sees)]) / k.shape[1] ** 0.5
      )
      out[t] += sum(weights[s] * v[s] for s in range(sees)) @ p['output'][head]
  return out + p['output_bias'] if 'output_bias' in p else out


class Marians(NamedTuple):
  """What Marian's models may have otherwise than the paper's."""

  epsilon: float = 1e-6
  is_swish: bool = False


def feed_forward(p: Tree, x: np.ndarray, is_swish: bool) -> np.ndarray:
  inner = x @ p['inner']['kernel'] + p['inner']['bias']
  inner = inner / (1 + np.exp(-inner)) if is_swish else np.maximum(0, inner)
  return inner @ p['outer']['kernel'] + p['outer']['bias']


def add_and_norm(
  p: Tree, x: np.ndarray, sublayer: np.ndarray, epsilon: float
) -> np.ndarray:
  total = x + sublayer
  for row in total:
    row[:] = (row - row.mean()) / np.sqrt(row.var() + epsilon)
  return total * p['norm']['scale'] + p['norm']['bias']


def embed(p: Tree, ids: list[int], table: str) -> np.ndarray:
  own = 'source_embedding' in p and table == 'source_positions'
  rows = p['source_embedding' if own else 'embedding']
  d = rows.shape[1]
  x = np.array([rows[i] * math.sqrt(d) for i in ids])
  if table in p:
    return x + p[table][: len(ids)]
  for position in range(len(ids)):
    for i in range(d):
      angle = position / 10000 ** ((i - i % 2) / d)
      x[position, i] += math.cos(angle) if i % 2 else math.sin(angle)
  return x


def reference(
  p: Tree,
  source: list[int],
  target: list[int],
  drop: Drop = lambda x: x,
  of: Marians = Marians(),  # noqa: B008
):
  """[T, W] logits of one sentence; `drop` is called where section 5.4 drops."""
  add_and_norm_ = functools.partial(add_and_norm, epsilon=of.epsilon)
  feed_forward_ = functools.partial(feed_forward, is_swish=of.is_swish)
  x = drop(embed(p, source, 'source_positions'))
  for layer in (p['encoder'][n] for n in range(len(p['encoder']))):
    attended = attention(layer['attention'], x, x, causal=False)
    x = add_and_norm_(layer['attention_norm'], x, drop(attended))
    x = add_and_norm_(
      layer['feed_forward_norm'], x, drop(feed_forward_(layer['feed_forward'], x))
    )
  y = drop(embed(p, [BOS, *target[:-1]], 'target_positions'))
  for layer in (p['decoder'][n] for n in range(len(p['decoder']))):
    attended = attention(layer['attention'], y, y, causal=True)
    y = add_and_norm_(layer['attention_norm'], y, drop(attended))
    attended = attention(layer['cross'], y, x, causal=False)
    y = add_and_norm_(layer['cross_norm'], y, drop(attended))
    y = add_and_norm_(
      layer['feed_forward_norm'], y, drop(feed_forward_(layer['feed_forward'], y))
    )
  return y @ p['embedding'].T + (p['logits_bias'] if 'logits_bias' in p else 0)


def double(params: Tree) -> Tree:
  return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


@pytest.mark.parametrize('own', [0, 31])
@pytest.mark.parametrize('positions', ['sinusoid', 'learned'])
def test_equals_the_paper_written_out(positions: str, own: int):
  """With one table, and with one for the target and another for the source."""
  graph, shapes = graph_of(positions, target_vocab_size=own)
  params = random_params(shapes)
  source, target = sentences()
  logits = logits_of(graph)(params, source, target)
  assert logits.shape == (*target.shape, own or VOCABULARY)
  assert logits.dtype == jnp.float32
  for row, (S, T) in enumerate(LENGTHS):
    expected = reference(double(params), source[row, :S], target[row, :T])
    np.testing.assert_allclose(logits[row, :T], expected, rtol=1e-5, atol=1e-5)


def test_equals_marians_written_out():
  """Biases of attention and of the logits, swish, and another epsilon of the norms."""
  graph, shapes = graph_of(norm_epsilon=0.3, biases=True, activation='swish')
  params = random_params(shapes)
  source, target = sentences()
  logits = logits_of(graph)(params, source, target)
  for row, (S, T) in enumerate(LENGTHS):
    pair = source[row, :S], target[row, :T]
    expected = reference(double(params), *pair, of=Marians(0.3, True))
    np.testing.assert_allclose(logits[row, :T], expected, rtol=1e-5, atol=1e-5)


def test_shapes_and_dtypes_are_checked_in_tests():
  """By the hook of conftest.py: a mask has to be of booleans."""
  q, mask = jnp.ones((1, 2, 3, 4)), jnp.ones((1, 2, 2), int)
  with pytest.raises(jaxtyping.TypeCheckError):
    attention_module.attention_weights(q, q, mask)


# The weights of attention


def test_weights_equal_the_paper_written_out(monkeypatch: pytest.MonkeyPatch):
  """To 1e-6; they sum to 1 where a head may look, and are 0 elsewhere."""
  graph, shapes = graph_of()
  params = random_params(shapes)
  source, target = sentences()
  found = jax.device_get(weights_of(graph)(params, source, target))
  rows = []
  monkeypatch.setitem(globals(), 'softmax', recorded(softmax, rows))
  for b, (S, T) in enumerate(LENGTHS):
    rows.clear()
    reference(double(params), source[b, :S], target[b, :T])
    left = iter(rows)
    kinds = [('encoder', S, S)] * SIZES['N']
    kinds += [('decoder', T, T), ('cross', T, S)] * SIZES['N']
    for place, (kind, queries, keys) in enumerate(kinds):
      n = place if kind == 'encoder' else (place - SIZES['N']) // 2
      ours = getattr(found, kind)[n, b, :, :queries]
      np.testing.assert_allclose(ours.sum(-1), 1, atol=1e-6)
      for head, t in np.ndindex(*ours.shape[:2]):
        row = next(left)
        assert len(row) == (t + 1 if kind == 'decoder' else keys)
        np.testing.assert_allclose(ours[head, t, : len(row)], row, atol=1e-6)
        assert (ours[head, t, len(row) :] == 0).all()
    assert not [*left]


def recorded(function: Callable, results: list) -> Callable:
  """The function, which puts all it returns into `results`."""

  def record(*args: Any) -> Any:
    results.append(function(*args))
    return results[-1]

  return record


def test_weights_of_cached_decoding_equal_those_of_teacher_forcing(
  monkeypatch: pytest.MonkeyPatch,
):
  graph, shapes = graph_of(N=1)
  params = jax.tree.map(jnp.asarray, random_params(shapes))
  weights = search_weights(params, jnp.float32)
  model = nnx.merge(graph, weights.params)
  source, target = sentences()[0], sentences()[1][:, :2]
  forced = weights_of(graph)(params, source, target)
  B, T = target.shape
  memory = model.precompute_cross_attention(source)
  cache = model.empty_cache(B, 1, T)
  rows = []
  monkeypatch.setattr(jax.nn, 'softmax', recorded(jax.nn.softmax, rows))
  for t in range(T):
    rows.clear()
    tokens = target[:, t - 1 : t] if t else np.full((B, 1), BOS)
    with jax.disable_jit():  # else there would be tracers in `rows`
      _, cache = model.step(tokens, jnp.int32(t), cache, memory, weights.table)
    assert len(rows) == 2
    for kind, found in zip(('decoder', 'cross'), rows, strict=True):
      expected = getattr(forced, kind)[0, :, :, t]
      np.testing.assert_allclose(found[:, :, 0], expected, atol=1e-6)


@pytest.mark.torch
def test_weights_equal_those_of_torch():
  torch = pytest.importorskip('torch')
  D, H, S, T = 12, 3, 5, 7
  rng = np.random.default_rng(0)
  layer = attention_module.MultiHeadAttention(
    D, H, D // H, D // H, dtype=jnp.float32, rngs=nnx.Rngs(params=0)
  )
  x, memory = (rng.normal(size=(2, n, D)).astype(np.float32) for n in (T, S))
  mask = np.ones((2, 1, S), bool)
  mask[1, :, 3:] = False
  theirs = torch.nn.MultiheadAttention(D, H, bias=False, batch_first=True)
  with torch.no_grad():
    for n, part in enumerate((layer.query, layer.key, layer.value)):
      matrix = torch.tensor(np.asarray(part[...]).reshape(D, -1).T)
      theirs.in_proj_weight[n * D : (n + 1) * D] = matrix
    inputs = (torch.tensor(x), *[torch.tensor(memory)] * 2)
    ignored = torch.tensor(~mask[:, 0])
    options = {'need_weights': True, 'average_attn_weights': False}
    _, expected = theirs(*inputs, key_padding_mask=ignored, **options)
  _, ours = layer.with_weights(x, memory, mask)
  np.testing.assert_allclose(ours, expected.numpy(), atol=1e-6)


def plain_attention(self, x: jax.Array, memory: jax.Array, mask: jax.Array):
  """MultiHeadAttention.__call__ without a way to see its weights."""
  q = self._split_heads(x, self.query, None)
  k = self._split_heads(memory, self.key, None)
  v = self._split_heads(memory, self.value, None)
  weights = attention_module.attention_weights(q, k, mask).astype(v.dtype)
  return self._join_heads(jnp.einsum('bhts,bshv->bthv', weights, v))


def plain_encoder(self, x: jax.Array, mask: jax.Array, dropout: Dropout):
  x = self.attention_norm(x, self.attention(x, x, mask), dropout, 0)
  return self.feed_forward_norm(x, self.feed_forward(x), dropout, 1)


def plain_decoder(self, x, causal, memory, mask, dropout):
  x = self.attention_norm(x, self.attention(x, x, causal), dropout, 0)
  x = self.cross_norm(x, self.cross(x, memory, mask), dropout, 1)
  return self.feed_forward_norm(x, self.feed_forward(x), dropout, 2)


@pytest.mark.parametrize(
  'dtype', [jnp.float32, pytest.param(jnp.bfloat16, marks=pytest.mark.slow)]
)
def test_weights_that_nobody_looks_at_cost_nothing(dtype, monkeypatch):
  """Training and search are the programs that they are without them, to the letter."""
  graph, shapes = graph_of(dtype=dtype)
  source, target = sentences()

  def training(params: Tree) -> jax.Array:
    outputs = nnx.merge(graph, params).outputs(source, target, jax.random.key(0))
    return loss.cross_entropy(outputs, target, 0.1)[0]

  def search(params: Tree) -> Any:
    weights = search_weights(params, dtype)
    model = nnx.merge(graph, weights.params)
    memory = model.precompute_cross_attention(source)
    cache = model.empty_cache(len(source), 2, 3)
    return model.step(source[:, :2], jnp.int32(0), cache, memory, weights.table)

  texts = lambda: [
    jax.jit(f).lower(shapes).as_text() for f in (jax.grad(training), search)
  ]
  with_the_option = texts()
  for owner, plain in (
    (attention_module.MultiHeadAttention, plain_attention),
    (module.EncoderLayer, plain_encoder),
    (module.DecoderLayer, plain_decoder),
  ):
    monkeypatch.setattr(owner, '__call__', plain)
  assert texts() == with_the_option


# Dropout


def test_dropout_stands_where_section_5_4_has_it(monkeypatch: pytest.MonkeyPatch):
  """With known masks the model equals the reference, which drops in those places."""
  graph, shapes = graph_of()
  params = random_params(shapes)
  source, target = sentences()
  rng, masks, made = np.random.default_rng(2), [], []

  def construct(
    rate: float, key: jax.Array, places: int, weights_rate: float
  ) -> Dropout:
    assert weights_rate == 0
    made.append((rate, places, tuple(np.asarray(jax.random.key_data(key)))))
    return Dropout(rate, None)

  def drop(self: Dropout, x: jax.Array, place: int) -> jax.Array:
    masks.append(rng.integers(0, 2, x.shape) * 2.0)
    return x * masks[-1].astype(np.float32)

  monkeypatch.setattr(Dropout, 'of', construct)
  monkeypatch.setattr(Dropout, '__call__', drop)
  with jax.disable_jit():  # else equal layers would share a mask
    logits = nnx.merge(graph, params)(source, target, jax.random.key(0))
  N = SIZES['N']
  assert [m[:2] for m in made] == [(0.3, 1 + 2 * N), (0.3, 1 + 3 * N)]
  assert made[0][2] != made[1][2]
  assert len(masks) == 2 + 5 * N
  for row, (S, T) in enumerate(LENGTHS):
    left = iter(masks)
    expected = reference(
      double(params),
      source[row, :S],
      target[row, :T],
      lambda x, row=row, left=left: x * next(left)[row, : len(x)],
    )
    np.testing.assert_allclose(logits[row, :T], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('rate', [0.1, 0.3])
def test_dropout_keeps_the_expectation_at_its_rate(rate: float):
  size = 200_001
  dropout = Dropout.of(rate, jax.random.key(3), 2)
  first, second = (np.asarray(dropout(jnp.ones((size,)), n)) for n in range(2))
  deviation = 5 * math.sqrt(rate * (1 - rate) / size)
  for dropped in (first, second):
    assert abs((dropped == 0).mean() - rate) < deviation
    np.testing.assert_allclose(dropped[dropped != 0], 1 / (1 - rate), rtol=1e-4)
    assert abs(dropped.mean() - 1) < deviation / (1 - rate)
  # Independent between places, and between elements that share a random word.
  both = lambda a, b: ((a == 0) & (b == 0)).mean()
  assert abs(both(first, second) - rate**2) < deviation
  assert abs(both(first[:-1], first[1:]) - rate**2) < deviation
  again = Dropout.of(rate, jax.random.key(3), 2)(jnp.ones((size,)), 0)
  np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('rate', [0.1, 0.3])
def test_what_dropout_keeps_is_scaled_exactly_in_the_mean(rate: float, dtype):
  """1 / 0.9 rounded to bfloat16 would make everything 0.16 per cent smaller."""
  x = jax.random.normal(jax.random.key(0), (200_001,), dtype)
  dropped = Dropout.of(rate, jax.random.key(3), 1)(x, 0)
  assert dropped.dtype == dtype
  x, dropped = (np.asarray(y, np.float64) for y in (x, dropped))
  kept = dropped != 0
  scale = (dropped * x)[kept].sum() / np.square(x[kept]).sum()
  assert scale == pytest.approx(1 / (1 - rate), rel=5e-4)  # rounding x moves 3e-4


def test_every_place_has_its_own_key():
  dropout = Dropout.of(0.1, jax.random.key(3), 1 + 2 * 3)
  layers = dropout.of_layers(3, 2)
  keys = [dropout.keys[0], *(layer.keys[n] for layer in layers for n in range(2))]
  assert (jnp.stack(keys) == dropout.keys).all() and len(
    np.unique(jax.random.key_data(dropout.keys), axis=0)
  ) == 7


def test_each_of_several_keys_drops_its_part_of_the_rows():
  """As if the part were there alone: in a layer, and among attention's weights."""
  keys = jax.random.split(jax.random.key(3), 2)
  of = lambda key: Dropout.of(0.3, key, 1 + 2 * 3, 0.4).of_layers(3, 2)[1]
  x = jnp.ones((2, 3, 5, 7))  # an odd number of elements in a part
  rows = jnp.ones((6, 5, 7))
  for drop in (
    lambda own, x: own(x, 1),
    lambda own, x: own.of_weights(1)(x),
  ):
    apart = [drop(of(key), part) for key, part in zip(keys, x, strict=True)]
    together = drop(of(keys), rows)
    np.testing.assert_array_equal(together, jnp.concatenate(apart))
    assert not jnp.array_equal(*apart)


def test_equal_layers_are_traced_once(monkeypatch: pytest.MonkeyPatch):
  calls = []
  original = module.EncoderLayer.__call__

  def counted(self, *inputs):
    calls.append(1)
    return original(self, *inputs)

  monkeypatch.setattr(module.EncoderLayer, '__call__', counted)
  graph, shapes = graph_of(N=3)
  source, target = sentences()
  loss = lambda p: nnx.merge(graph, p)(source, target, jax.random.key(0)).sum()
  jax.make_jaxpr(jax.grad(loss))(random_params(shapes))
  assert len(calls) == 1


def test_dropout_is_off_without_a_key_or_a_rate():
  graph, shapes = graph_of(N=1)
  params = random_params(shapes)
  source, target = sentences()
  logits = logits_of(graph)
  plain = logits(params, source, target)
  np.testing.assert_array_equal(plain, logits(params, source, target))
  dropped = [logits(params, source, target, jax.random.key(k)) for k in (0, 0, 1)]
  np.testing.assert_array_equal(dropped[0], dropped[1])
  assert not np.allclose(plain, dropped[0]) and not np.allclose(dropped[0], dropped[2])
  never, _ = graph_of(N=1, P_drop=0.0)
  key = jax.random.key(0)
  np.testing.assert_allclose(
    logits_of(never)(params, source, target, key), plain, rtol=1e-5, atol=1e-5
  )


def test_dropout_of_attentions_weights():
  """It is there with a key and a rate alone, and is that of the weights alone."""
  shapes = graph_of(N=1)[1]
  params, (source, target) = random_params(shapes), sentences()
  key = jax.random.key(0)
  rates = {'P_drop': 0.0, 'P_drop_attention': 0.5}
  plain, dropped = (
    logits_of(graph_of(N=1, **rates | {'P_drop_attention': rate})[0])
    for rate in (0.0, 0.5)
  )
  same = plain(params, source, target)
  np.testing.assert_allclose(plain(params, source, target, key), same, atol=1e-5)
  np.testing.assert_allclose(dropped(params, source, target), same, atol=1e-5)
  assert not np.allclose(dropped(params, source, target, key), same)


def test_weights_are_dropped_in_every_attention(monkeypatch: pytest.MonkeyPatch):
  """With known masks the model equals the reference, whose softmax has them.

  So they stand between the softmax and the values, in both stacks.
  """
  graph, shapes = graph_of(P_drop=0.0, P_drop_attention=0.5)
  params, (source, target) = random_params(shapes), sentences()
  rng, masks, places = np.random.default_rng(2), [], []

  def of_weights(self: Dropout, place: int) -> Callable[[jax.Array], jax.Array]:
    def drop(weights: jax.Array) -> jax.Array:
      masks.append((rng.integers(0, 2, weights.shape) * 2).astype(np.float32))
      return weights * masks[-1]

    assert self.weights_rate == 0.5
    places.append(place)
    return drop

  monkeypatch.setattr(Dropout, 'of_weights', of_weights)
  with jax.disable_jit():  # else equal layers would share a mask
    logits = nnx.merge(graph, params)(source, target, jax.random.key(0))
  N = SIZES['N']
  assert places == [0] * N + [0, 1] * N and len(masks) == 3 * N
  plain = softmax
  for row, (S, T) in enumerate(LENGTHS):
    queries = [S] * N + [T] * 2 * N
    left = iter(
      mask[row, head, query]
      for mask, count in zip(masks, queries, strict=True)
      for head in range(SIZES['h'])
      for query in range(count)
    )
    dropped = lambda scores, left=left: plain(scores) * next(left)[: len(scores)]
    monkeypatch.setitem(globals(), 'softmax', dropped)
    expected = reference(double(params), source[row, :S], target[row, :T])
    np.testing.assert_allclose(logits[row, :T], expected, rtol=1e-4, atol=1e-4)
    assert next(left, None) is None


def test_weights_are_dropped_by_bits_of_their_own():
  """Each is dropped or divided by what is kept, and not where the output is dropped."""
  dropout = Dropout.of(0.25, jax.random.key(3), 2, 0.25)
  x = np.ones((4, 5, 100, 100), np.float32)
  weights, output = dropout.of_weights(1)(x), dropout(x, 1)
  assert {*np.unique(weights)} == {0, np.float32(4 / 3)}
  assert abs((np.asarray(weights) == 0).mean() - 0.25) < 0.005
  both = ((np.asarray(weights) == 0) & (np.asarray(output) == 0)).mean()
  assert abs(both - 0.25**2) < 0.005


# What may be seen


def test_causality_and_padding_by_gradient():
  """Every token has an id of its own, so a row of the embedding is one position.

  The logits that are looked at are those of words that do not occur, whose rows the
  softmax's product alone would reach.
  """
  graph, shapes = graph_of()
  source = np.array([[3, 4, 5, PAD, PAD]])
  target = np.array([[6, 7, 8, 9, 10]])
  absent = np.arange(11, 14)

  def logits(embedding: jax.Array, rest: Tree) -> jax.Array:
    model = nnx.merge(graph, rest | {'embedding': embedding})
    return model(source, target)[0][:, absent]

  params = random_params(shapes)
  jacobian = jax.jit(jax.jacrev(logits))(params['embedding'], params)
  reaches = np.abs(jacobian).max((1, 3))  # [position of the logits, word]
  for t in range(5):
    for j in range(5):
      if j < t:
        assert reaches[t, target[0, j]] > 1e-4, (t, j)
      else:
        assert reaches[t, target[0, j]] == 0, (t, j)
  assert (reaches[:, [BOS, 3, 4, 5]] > 1e-4).all()
  assert (reaches[:, PAD] == 0).all()


def test_more_padding_changes_nothing():
  graph, shapes = graph_of()
  params = random_params(shapes)
  source, target = sentences()
  pad = lambda ids, rows, columns: np.pad(ids, ((0, rows), (0, columns)))
  run = logits_of(graph)
  narrow = run(params, source, target)
  wide = run(params, pad(source, 2, 4), pad(target, 2, 3))
  assert np.isfinite(wide).all()
  for row, (_, T) in enumerate(LENGTHS):
    np.testing.assert_allclose(wide[row, :T], narrow[row, :T], rtol=1e-5, atol=1e-5)


def test_empty_rows_give_finite_values_and_gradients():
  graph, shapes = graph_of(N=1)
  params = random_params(shapes)
  empty = np.full((2, 3), PAD, np.int32)
  total = lambda p: (nnx.merge(graph, p)(empty, empty) ** 2).sum()
  value, gradient = jax.jit(jax.value_and_grad(total))(params)
  assert all(np.isfinite(x).all() for x in [value, *jax.tree.leaves(gradient)])


# 3.5 Positional encoding


def test_sinusoids_are_the_papers():
  d, length = 12, 300
  table = sinusoids(length, d)
  assert table.shape == (length, d) and table.dtype == np.float32
  for position in (0, 1, 17, 299):
    for i in range(d // 2):
      wavelength = 2 * math.pi * 10000 ** (2 * i / d)
      assert 2 * math.pi <= wavelength < 10000 * 2 * math.pi
      turn = 2 * math.pi * position / wavelength
      expected = [math.sin(turn), math.cos(turn)]
      np.testing.assert_allclose(
        table[position, 2 * i : 2 * i + 2], expected, atol=1e-6
      )


@pytest.mark.parametrize('k', [1, 40])
def test_a_fixed_offset_is_a_linear_map(k: int):
  """Section 3.5: PE(pos + k) is a linear function of PE(pos), the same at every pos."""
  d, length = 12, 200
  table = sinusoids(length, d)
  turn = np.zeros((d, d))
  for i in range(d // 2):
    angle = k / 10000 ** (2 * i / d)
    cos, sin = math.cos(angle), math.sin(angle)
    turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
  np.testing.assert_allclose(table[:-k] @ turn.T, table[k:], atol=1e-5)


# 3.4 and 3.1: one embedding, norms after the sums


def test_one_embedding_matrix():
  _, shapes = graph_of()
  with_words = [x.shape for x in jax.tree.leaves(shapes) if VOCABULARY in x.shape]
  assert with_words == [(VOCABULARY, SIZES['d_model'])]


def test_fresh_parameters():
  """Glorot's bounds by fan, unit norms, zero biases, no two matrices alike."""
  D = 64
  make = lambda: module.EncoderLayer(
    module.Sizes(D, 96, 4, 8, 24, 'relu', False, 1e-6),
    dtype=jnp.float32,
    rngs=nnx.Rngs(params=0),
  )
  layer = jax.jit(lambda: nnx.to_pure_dict(nnx.state(make())))()
  assert (layer['attention_norm']['norm']['scale'] == 1).all()
  assert not layer['attention_norm']['norm']['bias'].any()
  assert not layer['feed_forward']['inner']['bias'].any()
  fans = {
    'query': (D, 4 * 8),
    'key': (D, 4 * 8),
    'value': (D, 4 * 24),
    'output': (4 * 24, D),
  }
  for name, fan in fans.items():
    bound = math.sqrt(6 / sum(fan))
    assert 0.97 * bound < np.abs(layer['attention'][name]).max() <= bound
    np.testing.assert_allclose(
      layer['attention'][name].std(), bound / 3**0.5, rtol=0.05
    )
  inner = layer['feed_forward']['inner']['kernel']
  assert np.abs(inner).max() <= math.sqrt(6 / (D + 96))
  assert not np.array_equal(layer['attention']['query'], layer['attention']['key'])


def fresh(seed: int, **changes: Any) -> dict[str, np.ndarray]:
  """A model's parameters as they are before training, by their paths."""
  config = base.get_config()
  sizes = {'N': 2, 'd_model': 64, 'd_ff': 64, 'h': 4, 'd_k': 16, 'd_v': 16}
  config.model.update(sizes | {'vocab_size': 512} | changes)
  config.seed = seed
  leaves = jax.tree_util.tree_leaves_with_path(build.transformer(config)[1])
  return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def test_fresh_embeddings_have_unit_variance_once_scaled():
  """And so have the tables of learned positions before."""
  own = {'positions': 'learned', 'max_positions': 300, 'target_vocab_size': 400}
  tables = [x for x in fresh(0, **own).values() if len(x) in (512, 400, 300)]
  assert len(tables) == 4
  for table in tables:
    np.testing.assert_allclose(table.std() * 64**0.5, 1, rtol=0.02)


def test_seeds_and_layers_start_apart():
  """No matrix is that of another seed, and none that of another place."""
  one, other = fresh(1), fresh(2)
  matrices = {path: x for path, x in one.items() if x.ndim > 1}
  assert len(matrices) == 1 + 2 * (4 + 2) + 2 * (8 + 2)
  different = [*matrices.values(), *(other[path] for path in matrices)]
  assert len({x.tobytes() for x in different}) == len(different)


def test_norms_come_last(monkeypatch: pytest.MonkeyPatch):
  """Each sub-layer's output has mean 0, variance 1; the last makes the logits."""
  graph, shapes = graph_of()
  params = random_params(shapes, fresh_norms=True)
  original, outputs = module.AddAndNorm.__call__, []

  def record(self: module.AddAndNorm, *arguments: Any) -> jax.Array:
    outputs.append(original(self, *arguments))
    return outputs[-1]

  monkeypatch.setattr(module.AddAndNorm, '__call__', record)
  with jax.disable_jit():  # else only the first of equal layers would be seen
    logits = nnx.merge(graph, params)(*sentences())
  assert len(outputs) == 5 * SIZES['N']
  for output in outputs:
    np.testing.assert_allclose(output.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(output.var(-1), 1, atol=1e-3)
  np.testing.assert_allclose(logits, outputs[-1] @ params['embedding'].T, atol=1e-5)


def test_unknown_positions_and_too_long_a_sentence_are_refused():
  with pytest.raises(UserError, match="'sinusoid' or 'learned'"):
    graph_of('rotary')
  graph, shapes = graph_of('learned')
  ids = np.ones((1, LONGEST + 1), np.int32)
  with pytest.raises(UserError, match='max_positions=13'):
    nnx.merge(graph, random_params(shapes))(ids, ids)


def test_bfloat16_keeps_float32_parameters_and_logits():
  graph, shapes = graph_of(dtype=jnp.bfloat16)
  assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype('float32')}
  params = random_params(shapes)
  source, target = sentences()
  logits = logits_of(graph)(params, source, target)
  assert logits.dtype == jnp.float32
  exact = logits_of(graph_of()[0])(params, source, target)
  assert np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.slow
def test_bfloat16_keeps_float32_gradients():
  """Near the exact ones, for sizes that fill no register as well."""
  source, target = sentences()
  shapes = graph_of(N=1)[1]

  def gradient(dtype: Any) -> Tree:
    graph, _ = graph_of(dtype=dtype, N=1)

    def objective(params: Tree) -> jax.Array:
      outputs = nnx.merge(graph, params).outputs(source, target)
      return loss.cross_entropy(outputs, target, 0.1)[0]

    return jax.jit(jax.grad(objective))(random_params(shapes))

  rounded, exact = map(jax.tree.leaves, (gradient(jnp.bfloat16), gradient(jnp.float32)))
  off = [
    np.linalg.norm(a - b) / np.linalg.norm(b)
    for a, b in zip(rounded, exact, strict=True)
  ]
  assert {x.dtype for x in rounded} == {jnp.dtype('float32')}
  assert max(off) < 0.2


# 6.1 Decoding with a cache


def repeated(rows: int) -> tuple[np.ndarray, np.ndarray]:
  """The sources, and [B, rows, T] different targets."""
  source, target = sentences()
  rng = np.random.default_rng(4)
  return source, rng.integers(3, VOCABULARY, (len(source), rows, target.shape[1]))


FORMS = [
  {'target_vocab_size': 31, 'positions': 'learned'},
  {'activation': 'swish', 'biases': True},
]


@pytest.mark.parametrize('form', FORMS)
def test_cached_decoding_equals_teacher_forcing(form: dict[str, Any]):
  """At every position, with rows that swap as beams do, in a cache that grows."""
  R, swap_at, grow_at = 3, 3, 5
  graph, shapes = graph_of(**form)
  params = random_params(shapes)
  prepared = search_weights(params, jnp.float32)
  source, targets = repeated(R)
  B, _, T = targets.shape
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
      cache = cache.reorder(np.broadcast_to(order, (B, R)))
    if t == grow_at:
      cache = cache.grow(T + 2)
    given = tokens, jnp.int32(t), cache, memory, prepared.table
    logits, cache = step(prepared.params, *given)
    stepped.append(logits)
  run = logits_of(graph)
  for r in range(R):
    swapped = run(params, source, histories[:, r])
    straight = run(params, source, targets[:, r])
    for t in range(T):
      expected = straight[:, t] if t < swap_at else swapped[:, t]
      np.testing.assert_allclose(stepped[t][:, r], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('mutant', ['unscaled', 'seeing ahead'])
def test_mutants_fail_the_comparison(mutant: str, monkeypatch: pytest.MonkeyPatch):
  graph, shapes = graph_of(N=1)
  params = random_params(shapes)
  source, target = (side[:1] for side in sentences())
  original = attention_module.attention_weights

  def changed(q: jax.Array, k: jax.Array, mask: jax.Array) -> jax.Array:
    if mutant == 'unscaled':
      return original(q * q.shape[-1] ** 0.5, k, mask)
    ahead = jnp.eye(*mask.shape[1:], 1, dtype=bool)
    return original(q, k, mask | ahead[None])

  monkeypatch.setattr(attention_module, 'attention_weights', changed)
  logits = jax.jit(lambda p: nnx.merge(graph, p)(source, target))(params)[0]
  expected = reference(double(params), source[0], target[0])
  assert np.abs(logits - expected).max() > 1e-3
