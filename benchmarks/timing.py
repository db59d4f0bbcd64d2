"""Timing programs in turn, and the rate of matrix products to compare with."""

import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.machine.devices import map_rows, replicate_read_only

OURS = 'ours'
# Sizes of square matrices to try; the fastest one counts.
SIZES = {'cpu': (512, 1024, 2048), 'accelerator': (4096, 8192, 16384)}
MIN_SECONDS = 0.3  # of one timing of products


def interleave(
  programs: Mapping[str, Callable[[int], object]], rounds: int
) -> dict[str, list[float]]:
  """Calls every program once in every round, so that other load slows all alike.

  Each round starts with another program, so that none always follows the same one.
  A program is called with the round's number.

  Returns:
    The seconds of each program, by round.
  """
  names = list(programs)
  seconds = {name: [] for name in names}
  for number in range(rounds):
    first = number % len(names)
    for name in names[first:] + names[:first]:
      start = time.perf_counter()
      programs[name](number)
      seconds[name].append(time.perf_counter() - start)
  return seconds


def columns(
  seconds: Mapping[str, Sequence[float]], work: Mapping[str, Sequence[float]]
) -> dict[str, dict]:
  """Returns how fast each program was, and how many times as fast we were.

  Args:
    seconds: of each program, by round; one of the programs is OURS.
    work: what was done in each round, by kind: {'sentences': [64, 64, 64]}.

  Returns:
    For each program its `seconds`, the median rate of each kind of work as
    'KIND_per_second', and `ratio`, the median of its seconds over ours.
  """
  result = {}
  for name, rounds in seconds.items():
    rate = lambda amounts, rounds=rounds: statistics.median(
      map(operator.truediv, amounts, rounds)
    )
    result[name] = {
      **{f'{kind}_per_second': rate(amounts) for kind, amounts in work.items()},
      'ratio': statistics.median(map(operator.truediv, rounds, seconds[OURS])),
      'seconds': list(rounds),
    }
  return result


def matrix_products(dtype: jnp.dtype) -> dict:
  """Returns FLOP/s of square matrix products on all devices of this host at once.

  They are the 100 % of model FLOPs utilisation. Operands have `dtype`. Results are
  float32, as the model's scores and logits are, and are cast to `dtype` for the next
  product.

  Returns:
    `flops_per_second` of the fastest size, and `of_size`, {size: FLOP/s}.
  """
  sizes = SIZES['cpu' if jax.default_backend() == 'cpu' else 'accelerator']
  rates = {size: _products_rate(size, dtype) for size in sizes}
  return {
    'dtype': dtype.name,
    'flops_per_second': max(rates.values()),
    'of_size': {str(size): rate for size, rate in rates.items()},
  }


def _products_rate(size: int, dtype: jnp.dtype) -> float:
  """Returns FLOP/s of products of this size, by a chain long enough to be timed."""
  # Scaled so that the numbers keep their magnitude through any number of products.
  random = np.random.default_rng(0).standard_normal((size, size), np.float32)
  matrix = replicate_read_only((random * size**-0.5).astype(dtype))
  rows = np.arange(1, jax.local_device_count() + 1, dtype=np.int32)

  def chain(params: tuple[jax.Array, jax.Array], row: jax.Array) -> jax.Array:
    a, count = params
    multiply = lambda _, x: jnp.dot(x, a, preferred_element_type=jnp.float32).astype(
      dtype
    )
    first = jnp.roll(a, row[0], axis=0)
    return jax.lax.fori_loop(0, count, multiply, first).sum(dtype=jnp.float32)[None]

  run = map_rows(chain)

  def seconds(count: int) -> float:
    start = time.perf_counter()
    run((matrix, replicate_read_only(np.int32(count))), rows)()
    return time.perf_counter() - start

  seconds(1)  # compiles
  count = 1
  while (first := seconds(count)) < MIN_SECONDS:
    count *= 2
  median = statistics.median([first, seconds(count), seconds(count)])
  return len(rows) * count * 2 * size**3 / median
