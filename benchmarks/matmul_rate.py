"""How fast the devices multiply matrices, the 100 % of model FLOPs utilisation."""

import statistics
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.machine.devices import map_rows, replicate

# Sizes of square matrices to try; the fastest one counts.
SIZES = {'cpu': (512, 1024, 2048), 'accelerator': (4096, 8192, 16384)}
MIN_SECONDS = 0.3  # of one timing


def measure(dtype: jnp.dtype, sizes: Sequence[int] | None = None) -> dict:
  """FLOP/s of square matrix products on all of this host's devices at once.

  Operands have `dtype`. Results are float32, as the model's scores and logits are, and
  are cast to `dtype` for the next product.

  Returns:
    `flops_per_second` of the fastest size, and `of_size`, {size: FLOP/s}.
  """
  if sizes is None:
    sizes = SIZES['cpu' if jax.default_backend() == 'cpu' else 'accelerator']
  rates = {size: _rate(size, dtype) for size in sizes}
  return {
    'dtype': dtype.name,
    'flops_per_second': max(rates.values()),
    'of_size': {str(size): rate for size, rate in rates.items()},
  }


def _rate(size: int, dtype: jnp.dtype) -> float:
  """FLOP/s of products of this size, by a chain long enough to be timed."""
  # Scaled so that the numbers keep their magnitude through any number of products.
  random = np.random.default_rng(0).standard_normal((size, size), np.float32)
  matrix = replicate((random * size**-0.5).astype(dtype))
  rows = np.arange(1, jax.local_device_count() + 1, dtype=np.int32)

  def chain(given: tuple[jax.Array, jax.Array], row: jax.Array) -> jax.Array:
    a, count = given
    one = lambda _, x: jnp.dot(x, a, preferred_element_type=jnp.float32).astype(dtype)
    first = jnp.roll(a, row[0], axis=0)
    return jax.lax.fori_loop(0, count, one, first).sum(dtype=jnp.float32)[None]

  run = map_rows(chain)

  def seconds(count: int) -> float:
    begin = time.perf_counter()
    run((matrix, replicate(np.int32(count))), rows)()
    return time.perf_counter() - begin

  seconds(1)  # compiles
  count = 1
  while (taken := seconds(count)) < MIN_SECONDS:
    count *= 2
  taken = statistics.median([taken, seconds(count), seconds(count)])
  return len(rows) * count * 2 * size**3 / taken
