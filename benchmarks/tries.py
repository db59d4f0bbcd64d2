"""Changes of a training step that may make it faster on a GPU, not timed on one yet.

Each is off. `scripts.benchmark --try=NAME` times a training with it beside ours. One
that gains 3 % moves into the package, the others go. CONTRIBUTING.md has what the
compiler says of each.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp

from transformer_jax.model import ops, ops_gpu


class Try(NamedTuple):
  """What is tried.

  Attributes:
    options: XLA's, of each program of training.
    tiles: ops_gpu.TILES.
    from_output: whether the gradient of max(0, x) is computed from its output, so that
      XLA need not keep x, and adds b_1 in the product's epilogue.
  """

  options: Mapping[str, Any] = {}
  tiles: int = ops_gpu.TILES
  from_output: bool = False


TRIES = {
  'relu': Try({'xla_gpu_enable_triton_gemm': False}, from_output=True),
  'merger': Try({'xla_disable_hlo_passes': 'dot-merger'}),
  # 784 programs are 1.48 times what an H200 runs at once; 528 are 1, 1,048 are 2.
  'tiles6': Try(tiles=6),
  'tiles3': Try(tiles=3),
}
TRIES['all'] = Try(
  {**TRIES['relu'].options, **TRIES['merger'].options}, tiles=6, from_output=True
)


def _relu(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  result = jnp.maximum(x, 0)
  return result, result


_relu_from_output = ops.with_vjp(
  _relu, lambda result, gradient: (jnp.where(result != 0, gradient, 0),)
)


@contextlib.contextmanager
def switched_on(name: str) -> Iterator[None]:
  """Programs that are compiled meanwhile have what TRIES[name] changes."""
  change = TRIES[name]
  compile = functools.partialmethod(
    jax.stages.Lowered.compile, compiler_options=dict(change.options)
  )
  jax.clear_caches()  # of layers that were traced without it
  with contextlib.ExitStack() as stack:
    stack.enter_context(mock.patch.object(jax.stages.Lowered, 'compile', compile))
    stack.enter_context(mock.patch.object(ops_gpu, 'TILES', change.tiles))
    if change.from_output:
      stack.enter_context(mock.patch.object(jax.nn, 'relu', _relu_from_output))
    yield
  jax.clear_caches()
