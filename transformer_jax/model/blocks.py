"""What the kernels of ops_gpu.py are made of.

Blocks of Triton have powers of two elements, so the last block of an axis is masked.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import ArrayLike

from transformer_jax.model import ops


class Kernel(NamedTuple):
  """An operation's form for a GPU, and whether it takes these inputs."""

  form: Callable
  takes: Callable[..., bool]


def launch(kernel: Callable, grid: tuple, warps: int, *results: Any) -> Callable:
  parameters = triton.CompilerParams(num_warps=warps, num_stages=1)
  is_test = ops.chosen() == 'interpret'
  options = {'interpret': is_test, 'compiler_params': parameters}
  return pl.pallas_call(kernel, grid=grid, out_shape=results, **options)


def with_vjp(forward: Callable, backward: Callable) -> Callable:
  """Returns a function of these passes, whose first argument is static."""
  primal = jax.custom_vjp(lambda *inputs: forward(*inputs)[0], nondiff_argnums=(0,))
  primal.defvjp(forward, backward)
  return primal


class Span(NamedTuple):
  """A block of `size` indices of an axis, of which those below `end` exist."""

  start: ArrayLike
  size: int
  end: int | None = None  # None: all exist

  @classmethod
  def of(cls, number: ArrayLike, size: int, count: int) -> 'Span':
    """Returns one of the blocks into which `count` indices are cut."""
    return cls(number * size, size, count if count % size else None)

  def indices(self, axis: int = 0, axes: int = 1) -> Array:
    shape = tuple(self.size if n == axis else 1 for n in range(axes))
    return self.start + jax.lax.broadcasted_iota(jnp.int32, shape, axis)


def _access(ref: Any, at: tuple, value: Array | None = None) -> Array | None:
  """Stores a block of an array, or loads one, with zeros where it does not exist."""
  spans = [x for x in at if isinstance(x, Span)]
  ends = [(n, x) for n, x in enumerate(spans) if x.end is not None]
  masks = [x.indices(n, len(spans)) < x.end for n, x in ends]
  mask = functools.reduce(jnp.logical_and, masks) if masks else None
  index = (pl.ds(x.start, x.size) if isinstance(x, Span) else x for x in at)
  block = ref.at[tuple(index)]
  if value is not None:
    return triton.store(block, value.astype(ref.dtype), mask=mask)
  return triton.load(
    block, mask=mask, other=jnp.zeros((), ref.dtype) if masks else None
  )


def load(ref: Any, *at: Span | ArrayLike) -> Array:
  return _access(ref, at)


def store(value: Array, ref: Any, *at: Span | ArrayLike) -> None:
  _access(ref, at, value)
