"""From a config to a model."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from flax import nnx

from transformer_jax.machine import platform
from transformer_jax.model.transformer import Transformer

Tree = Any

LONGEST = 512  # tokens of a side; the memory for attention grows with the square


def transformer(config: ml_collections.ConfigDict) -> tuple[nnx.GraphDef, Tree]:
  """Returns the model a config describes: its graph, and fresh parameters as a tree."""
  dtype = platform.training_dtype(config.dtype)
  initial = jax.jit(lambda: nnx.to_pure_dict(nnx.split(_build(config, dtype))[1]))
  return architecture(config)[0], initial()


def architecture(config: ml_collections.ConfigDict) -> tuple[nnx.GraphDef, Tree]:
  """Returns a config's graph, and its parameters' shapes and dtypes without values."""
  graph, shapes = split(config, platform.training_dtype(config.dtype))
  return graph, nnx.to_pure_dict(shapes)


def split(
  config: ml_collections.ConfigDict, dtype: jnp.dtype
) -> tuple[nnx.GraphDef, nnx.State]:
  """Returns the graph and the shapes of a model that multiplies in `dtype`."""
  return nnx.split(nnx.eval_shape(lambda: _build(config, dtype)))


def longest_side(config: ml_collections.ConfigDict) -> int:
  """The most tokens of a side, EOS included, that a search or a measurement takes.

  Training takes up to `max_length`, which may be more.
  """
  if config.model.positions == 'learned':
    return min(LONGEST, config.model.max_positions)
  return LONGEST


def _build(config: ml_collections.ConfigDict, dtype: jnp.dtype) -> Transformer:
  return Transformer(
    **config.model,
    dtype=dtype,
    activation_dtype=platform.activation_dtype(dtype),
    rngs=nnx.Rngs(params=config.seed),
  )
