"""Gradients of an accelerator's programs in bfloat16, on this CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx

from configs import quickstart
from toy import forms
from transformer_jax.model import build
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
