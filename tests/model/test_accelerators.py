"""The programs of accelerators: lowered for one, and run here, in bfloat16."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx

from configs import quickstart
from transformer_jax.data.vocabulary import BOS, EOS
from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.model import build
from transformer_jax.model.search_weights import search_weights
from transformer_jax.model.transformer import Cache
from transformer_jax.training import loss

PAIRS = np.random.default_rng(0).integers(4, 50, (2, 3, 6)).astype(np.int32)
PAIRS[:, 0, 4:] = 0


def config(dtype: str) -> ml_collections.ConfigDict:
  made = quickstart.get_config()
  made.dtype = dtype
  made.model.update(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8, vocab_size=50)
  return made


def objective(
  params: Any, graph: nnx.GraphDef, key: jax.Array | None = None
) -> jax.Array:
  key = jax.random.key(1) if key is None else key
  outputs = nnx.merge(graph, params).outputs(*PAIRS, key)
  return loss.cross_entropy(outputs, PAIRS[1], 0.1)[0]


def search(params: Any, graph: nnx.GraphDef, dtype: Any = jnp.bfloat16) -> Any:
  weights = search_weights(params, dtype)
  model = nnx.merge(graph, weights.params)
  source = jnp.asarray(PAIRS[0])
  return beam_search(
    lambda *state: model.step(*state, weights.table),
    model.empty_cache(3, 4, 8),
    model.precompute_cross_attention(source),
    jnp.full(3, 8),
    reorder=Cache.reorder,
    grow=Cache.grow,
    beam=4,
    nbest=1,
    alpha=0.6,
    bos=BOS,
    eos=EOS,
    lengths=[8],
  )


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch):
  """JAX seems to run on a GPU, so that ops.py takes an accelerator's forms."""
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')


def lowered(function: Any) -> str:
  """StableHLO for an NVIDIA GPU, as JAX gives it to XLA."""
  graph, params = build.architecture(config('bfloat16'))
  traced = jax.jit(lambda params: function(params, graph)).trace(params)
  return traced.lower(lowering_platforms=('cuda',)).as_text()


DOT = re.compile(r'stablehlo.dot_general .* : \((tensor<\S+), (tensor<\S+)\) ->')
# Either form that JAX prints a sum along axes in.
SUM = re.compile(r'stablehlo.reduce\(.* applies stablehlo.add .*: \((tensor<\S+),')


@pytest.mark.parametrize('function', [jax.grad(objective), search])
def test_all_products_are_of_bfloat16(elsewhere: None, function: Any):
  """JAX would make those of softmaxes' gradients float32, at half the speed."""
  text = lowered(function)
  found = DOT.findall(text)
  assert len(found) == text.count('stablehlo.dot_general') > 10
  assert all(side.endswith('bf16>') for sides in found for side in sides)


def test_slices_at_once_share_their_products(elsewhere: None):
  """Each has its own dropout, but no product of its own."""
  keys = jax.random.split(jax.random.key(1), 3)
  three = lowered(jax.grad(lambda *given: objective(*given, keys)))
  assert DOT.findall(three) == DOT.findall(lowered(jax.grad(objective)))


def test_all_sums_are_in_float32(elsewhere: None):
  """A bias's gradient is summed over all rows, for which bfloat16 is too short."""
  found = SUM.findall(lowered(jax.grad(objective)))
  assert len(found) > 10 and not [sum_ for sum_ in found if 'bf16' in sum_]


@pytest.mark.slow
def test_gradients_are_near_those_of_float32(monkeypatch: pytest.MonkeyPatch):
  graph, params = build.transformer(config('float32'))
  exact = jax.jit(lambda params: jax.grad(objective)(params, graph))(params)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  rounding, _ = build.architecture(config('bfloat16'))
  found = jax.jit(lambda params: jax.grad(objective)(params, rounding))(params)
  for ours, expected in zip(*map(jax.tree.leaves, (found, exact)), strict=True):
    assert ours.dtype == jnp.float32
    off = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
    assert off < 0.03


def test_a_search_in_bfloat16_scores_as_in_float32(monkeypatch: pytest.MonkeyPatch):
  graph, params = build.transformer(config('float32'))
  exact = jax.jit(lambda params: search(params, graph, jnp.float32))(params)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  rounding, _ = build.architecture(config('bfloat16'))
  found = jax.jit(lambda params: search(params, rounding))(params)
  np.testing.assert_allclose(found.scores[:, 0], exact.scores[:, 0], rtol=0.02)


def test_the_embedding_is_cast_once_and_not_at_each_step(elsewhere: None):
  """By itself, not by a pass of XLA's, which a GPU's compiler may not have."""
  text = lowered(search)
  cast = re.findall(
    r'stablehlo.convert .*tensor<50x16xf32>\) -> tensor<50x16xbf16>', text
  )
  (body,) = re.findall(r'stablehlo.while.*', text, re.DOTALL)
  assert len(cast) == 1 and cast[0] not in body
