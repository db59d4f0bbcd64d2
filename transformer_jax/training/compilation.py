"""Compiles a program for every shape of batch in other threads, while training begins.

XLA gives up Python's lock while it compiles. So updates go on meanwhile, of shapes that
have a program.
"""

from collections.abc import Callable, Sequence
from concurrent import futures

from transformer_jax.data.batches import Shape
from transformer_jax.machine import platform

POLL = 0.1  # seconds


class Programs:
  """A compiled program for each shape, in the order in which the shapes are given.

  Leaving it as a context drops those that are not begun and waits for the others: a
  process must not end while XLA compiles in it.
  """

  def __init__(self, compiled: Callable[[Shape], Callable], shapes: Sequence[Shape]):
    """Begins to compile; `compiled`, which does it, is called in other threads."""
    self._pool = futures.ThreadPoolExecutor(platform.compiling_threads(), 'compile')

    def program(shape: Shape) -> Callable:
      made = compiled(shape)
      platform.trim_memory()
      return made

    self._made = {shape: self._pool.submit(program, shape) for shape in shapes}

  def __enter__(self) -> 'Programs':
    return self

  def __exit__(self, *_: object) -> None:
    self._pool.shutdown(cancel_futures=True)

  def __getitem__(self, shape: Shape) -> Callable:
    """Returns a shape's program when it is compiled; raises what compiling raised."""
    return self._made[shape].result()

  def wait(self, shape: Shape, unless: Callable[[], bool] = lambda: False) -> None:
    """Returns when a shape's program is compiled, or once unless() is true."""
    made = self._made[shape]
    while not made.done() and not unless():
      futures.wait([made], POLL)

  def wait_for_all(self) -> None:
    """Returns when all are compiled; raises what compiling raised."""
    for made in futures.as_completed(self._made.values()):
      made.result()
