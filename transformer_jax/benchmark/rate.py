"""How fast the devices multiply matrices, which is what utilisation is a share of."""

import statistics
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.machine import parallel

# Sizes of square matrices that are tried; the fastest counts.
SIZES = {'cpu': (512, 1024, 2048), 'else': (4096, 8192, 16384)}
ENOUGH = 0.3  # seconds that are timed


def matrix_products(dtype: jnp.dtype, sizes: Sequence[int] | None = None) -> dict:
  """FLOP/s of square products, on all of this host's devices at once.

  Operands are of `dtype`, results float32 as the model's scores and logits are, and
  turned to `dtype` again for the next product.

  Returns:
    `flops_per_second` of the fastest size, and `of_size` {size: FLOP/s}.
  """
  if sizes is None:
    sizes = SIZES['cpu' if jax.default_backend() == 'cpu' else 'else']
  rates = {size: _rate(size, dtype) for size in sizes}
  return {
    'dtype': dtype.name,
    'flops_per_second': max(rates.values()),
    'of_size': {str(size): rate for size, rate in rates.items()},
  }


def _rate(size: int, dtype: jnp.dtype) -> float:
  # Of about the same magnitude after however many products.
  random = np.random.default_rng(0).standard_normal((size, size), np.float32)
  matrix = parallel.everywhere((random * size**-0.5).astype(dtype))
  rows = np.arange(1, jax.local_device_count() + 1, dtype=np.int32)

  def products(given: tuple[jax.Array, jax.Array], row: jax.Array) -> jax.Array:
    a, count = given
    one = lambda _, x: jnp.dot(x, a, preferred_element_type=jnp.float32).astype(dtype)
    start = jnp.roll(a, row[0], axis=0)
    return jax.lax.fori_loop(0, count, one, start).sum(dtype=jnp.float32)[None]

  run = parallel.spread(products)

  def seconds(count: int) -> float:
    begin = time.perf_counter()
    run((matrix, parallel.everywhere(np.int32(count))), rows)()
    return time.perf_counter() - begin

  count, _ = 1, seconds(1)  # which compiles
  while (taken := seconds(count)) < ENOUGH:
    count *= 2
  taken = statistics.median([taken, seconds(count), seconds(count)])
  return len(rows) * count * 2 * size**3 / taken
