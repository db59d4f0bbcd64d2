"""The operations in the forms of a CPU, or of an accelerator that run on this CPU."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.model import ops


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


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
  return ops.linear(x, weight, dtype=weight.dtype)


def linear_transposed(x: jax.Array, weight: jax.Array) -> jax.Array:
  return ops.linear(x, ops.TransposedWeight(weight), dtype=weight.dtype)
