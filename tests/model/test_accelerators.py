"""An accelerator's programs in bfloat16: dtypes, and gradients on this CPU."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx

from configs import quickstart
from toy import forms
from transformer_jax.data.vocabulary import BOS, EOS, PAD
from transformer_jax.decoding.beam_search import Search
from transformer_jax.model import build
from transformer_jax.model.transformer import search_weights
from transformer_jax.training.step import cross_entropy

PAIRS = np.random.default_rng(0).integers(4, 50, (2, 3, 6)).astype(np.int32)
PAIRS[:, 0, 4:] = 0


def config(dtype: str) -> ml_collections.ConfigDict:
  settings = quickstart.get_config()
  settings.dtype = dtype
  settings.model.update(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8, vocab_size=50)
  return settings


def objective(params: Any, graph: nnx.GraphDef) -> jax.Array:
  outputs = nnx.merge(graph, params)(*PAIRS, forms.dropout_key())
  return cross_entropy(outputs, PAIRS[1], 0.1)[0]


def search(params: Any, graph: nnx.GraphDef) -> Any:
  weights = search_weights(params, jnp.bfloat16)
  model = nnx.merge(graph, weights.params)
  source = jnp.asarray(PAIRS[0])
  step = lambda *state: model.step(*state, weights.table)
  beam_search = Search(step, [8], beam=4, nbest=1, alpha=0.6, bos=BOS, eos=EOS, pad=PAD)
  memory = model.precompute_cross_attention(source)
  return beam_search(model.empty_cache(3, 4, 8), memory, jnp.full(3, 8))


def equations(jaxpr: Any) -> Iterator[Any]:
  """Yields all equations of a traced program and of the programs within it."""
  for equation in jaxpr.eqns:
    yield equation
    for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, 'eqns')):
      if hasattr(inner, 'eqns'):
        yield from equations(inner)


@functools.cache
def trace(function: Any) -> list[Any]:
  """Returns the equations of a function of parameters and graph, traced for a GPU."""
  graph, params = build.architecture(config('bfloat16'), backend='gpu')
  with forms.of_an_accelerator():
    jaxpr = jax.jit(lambda params: function(params, graph)).trace(params).jaxpr
  return [*equations(jaxpr)]


def operands(function: Any, primitive: str) -> list[list[jax.core.AbstractValue]]:
  """Returns the inputs of each operation of this kind in an accelerator's program."""
  actual = [e for e in trace(function) if e.primitive.name == primitive]
  return [[variable.aval for variable in e.invars] for e in actual]


gradient = jax.grad(objective)


@pytest.mark.parametrize('function', [gradient, search])
def test_all_products_are_of_bfloat16(function: Any):
  """JAX would make those of softmaxes' gradients float32, at half the speed."""
  actual = operands(function, 'dot_general')
  assert len(actual) > 10
  assert {x.dtype.name for pair in actual for x in pair} == {'bfloat16'}


def test_all_sums_are_in_float32():
  """A bias's gradient is summed over all rows, for which bfloat16 is too short."""
  actual = operands(gradient, 'reduce_sum')
  assert len(actual) > 10 and not [x for (x,) in actual if x.dtype == jnp.bfloat16]


@pytest.mark.slow
def test_gradients_are_near_those_of_float32():
  graph, params = build.transformer(config('float32'))
  exact = jax.jit(lambda params: jax.grad(objective)(params, graph))(params)
  rounding, _ = build.architecture(config('bfloat16'), backend='gpu')
  with forms.of_an_accelerator():
    actual = jax.jit(lambda params: jax.grad(objective)(params, rounding))(params)
  for ours, expected in zip(*map(jax.tree.leaves, (actual, exact)), strict=True):
    assert ours.dtype == jnp.float32
    off = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
    assert off < 0.03
