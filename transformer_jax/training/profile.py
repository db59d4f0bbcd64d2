"""A trace of a few updates by jax.profiler, which xprof shows."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator

import jax

from transformer_jax.training.step import Sums

STEPS = 5  # updates in a trace; the first update of a process is left out


class Profile:
  """Traces updates 2 to 6 of this process, if it has a folder to write to.

  As a context manager it also writes the trace of fewer updates, at its end.
  """

  def __init__(self, folder: pathlib.Path | None, say: Callable[[str], None]):
    """Creates the folder. `say` prints a line for the user."""
    self._folder, self._say = folder, say
    self._count = 0  # of updates
    self._first: int | None = None  # the first traced step, while the trace runs
    if folder:
      folder.mkdir(parents=True, exist_ok=True)

  def __enter__(self) -> 'Profile':
    return self

  def __exit__(self, *_: object) -> None:
    if self._first is not None:
      self._stop()

  @contextlib.contextmanager
  def step(self, step: int, previous: Sums | None) -> Iterator[None]:
    """Wraps the start of an update, and starts or stops the trace before it.

    Args:
      step: the update's number, from 1.
      previous: the sums of the update before, if nobody has waited for them yet.
    """
    if self._folder is None:
      yield
      return
    if self._count == 1:
      jax.block_until_ready(previous)
      jax.profiler.start_trace(self._folder)
      self._first = step
    if self._count == 1 + STEPS:
      jax.block_until_ready(previous)
      self._stop()
    self._count += 1
    with jax.profiler.StepTraceAnnotation('train', step_num=step):
      yield

  def _stop(self) -> None:
    """Writes the trace, and says which steps it has."""
    jax.profiler.stop_trace()
    last = self._first + self._count - 2  # the process's first update is not in it
    self._say(
      f'steps {self._first} to {last} are traced in {self._folder}: '
      f'xprof --port 6006 {self._folder}'
    )
    self._first = None
