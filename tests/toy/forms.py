"""Random arrays, and both forms of an operation: a CPU's and an accelerator's."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.model import ops
from transformer_jax.model.dropout import DropoutKey


@contextlib.contextmanager
def of_an_accelerator() -> Iterator[None]:
  """Programs that are traced meanwhile have the plain form of every operation."""
  plain = lambda *inputs, default, **forms: default(*inputs)
  jax.clear_caches()  # of what was traced with a CPU's forms
  with mock.patch.object(jax.lax, 'platform_dependent', plain):
    yield
  jax.clear_caches()


def normal(*shape: int, seed: int = 0) -> jax.Array:
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def random_like(shapes: Any, scale: float = 1.0, seed: int = 0) -> Any:
  """Returns a tree of float32 arrays of these shapes, from numpy: nothing compiles."""
  rng = np.random.default_rng(seed)
  draw = lambda x: rng.normal(size=x.shape, scale=scale).astype(np.float32)
  return jax.tree.map(draw, shapes)


def dropout_key(seed: Any = 0, step: Any = 0, slices: Any = (0,)) -> DropoutKey:
  return DropoutKey(*(jnp.asarray(x, jnp.int32) for x in (seed, step, slices)))


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
  return ops.linear(x, weight, dtype=weight.dtype)


def linear_transposed(x: jax.Array, weight: jax.Array) -> jax.Array:
  return ops.linear(x, ops.TransposedWeight(weight), dtype=weight.dtype)
