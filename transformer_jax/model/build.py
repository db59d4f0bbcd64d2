"""Builds the model that a config describes."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import PyTree

from transformer_jax.config import Model
from transformer_jax.machine import platform
from transformer_jax.model.transformer import Transformer

# The maximum length in search, since attention's memory grows with its square.
LONGEST = 512


def transformer(config: ml_collections.ConfigDict) -> tuple[nnx.GraphDef[Any], PyTree]:
  """Returns a config's model: its graph, and parameters initialized from its seed."""
  initial = jax.jit(lambda: nnx.to_pure_dict(nnx.split(_build(config))[1]))
  return architecture(config)[0], initial()


def architecture(
  config: ml_collections.ConfigDict,
  backend: str | None = None,
  dtype: DTypeLike | None = None,
) -> tuple[nnx.GraphDef[Any], PyTree]:
  """Returns a config's graph, and its parameters' shapes and dtypes without values.

  Args:
    backend: 'cpu', 'gpu' or 'tpu': the platform that programs will be compiled for.
      None: the platform that JAX runs on.
    dtype: the dtype of matrix products. None: training's.
  """
  graph, shapes = nnx.split(nnx.eval_shape(lambda: _build(config, backend, dtype)))
  return graph, nnx.to_pure_dict(shapes)


def longest_text(config: ml_collections.ConfigDict) -> int:
  """Returns the maximum length with EOS in search and evaluation.

  Training takes up to `max_length` tokens, which may be more.
  """
  if config.model.positions == 'learned':
    return min(LONGEST, config.model.max_positions)
  return LONGEST


def _build(
  config: ml_collections.ConfigDict,
  backend: str | None = None,
  dtype: DTypeLike | None = None,
) -> Transformer:
  if dtype is None:
    dtype = platform.training_dtype(config.dtype, backend)
  return Transformer(
    Model(**config.model),
    dtype=dtype,
    activation_dtype=platform.activation_dtype(jnp.dtype(dtype), backend),
    # The generator is named, since a setting of JAX may change the default.
    rngs=nnx.Rngs(params=jax.random.key(config.seed, impl='threefry2x32')),
  )
