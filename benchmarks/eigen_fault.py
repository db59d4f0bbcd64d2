"""Shows XLA multiply wrong on two CPU devices; exits with 1 if it did.

    NPROC=2 python benchmarks/eigen_fault.py   # as many threads as devices: wrong
    NPROC=3 python benchmarks/eigen_fault.py   # one more: right

Each small kernel below leaves a task in its pool thread's queue. While no thread is
idle, nobody takes them. When 1,024 wait, Eigen's pool runs new tasks at once, inside of
the one that made them: a product then packs its next block of columns into the memory
of the first, before that has been multiplied. It needs no loops and none of this
package: a product of 16 column blocks and two blocks of terms is enough.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

DEVICES, ROUNDS, KERNELS = 2, 4, 300
TOKENS, WORDS, WIDTH = 924, 10_000, 128


def program(gradient: jax.Array, x: jax.Array, weight: jax.Array) -> jax.Array:
  """Returns ROUNDS times gradient^T x, with small kernels before each product."""

  def add(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    total, h = carry
    h = jax.lax.fori_loop(0, KERNELS, lambda _, h: jnp.tanh(weight.T @ h), h)
    return total + gradient.T @ (x + 0 * h.T), h

  return jax.lax.fori_loop(0, ROUNDS, add, (jnp.zeros((WORDS, WIDTH)), x.T))[0]


def main() -> int:
  jax.config.update('jax_num_cpu_devices', DEVICES)
  random = np.random.default_rng(0)
  make = lambda *shape: random.standard_normal((DEVICES, *shape), np.float32)
  gradient, x = make(TOKENS, WORDS), make(TOKENS, WIDTH)
  weight = make(WIDTH, WIDTH) / WIDTH**0.5
  products = np.asarray(jax.pmap(program)(gradient, x, weight))
  off = np.abs(products - ROUNDS * gradient.swapaxes(1, 2) @ x).max(2)
  wrong = (off > 0.05).sum(1)
  print(f'JAX {jax.__version__}: {wrong.tolist()} of {WORDS} rows are wrong, by device')
  return int(wrong.any())


if __name__ == '__main__':
  sys.exit(main())
