"""A config's model, optimizer and batches, and its compiled steps on all devices."""

import contextlib
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.config import target_pieces
from transformer_jax.data import batches
from transformer_jax.data.corpus import Split
from transformer_jax.machine import hosts, platform
from transformer_jax.machine.devices import (
  Devices,
  compile_if_it_fits,
  device_memory,
  without_data,
)
from transformer_jax.model import build
from transformer_jax.runs.run import find_parent
from transformer_jax.training import checkpoint
from transformer_jax.training.kernels import Kernels
from transformer_jax.training.step import (
  StepInput,
  Sums,
  TrainState,
  adam,
  learning_rate,
  train_step,
)

POLL = 0.1  # seconds


def make_step(
  config: ml_collections.ConfigDict, graph: nnx.GraphDef[Any], slices_per_pass: int
) -> Callable[[TrainState, StepInput, jax.Array], tuple[TrainState, Sums]]:
  """Returns train_step() with a config's optimizer and label smoothing."""
  return functools.partial(
    train_step,
    graph=graph,
    transform=adam(config),
    epsilon_ls=config.epsilon_ls,
    slices_per_pass=slices_per_pass,
  )


class Trainer:
  """Makes a config's updates on all devices of all hosts.

  Args:
    train: the token ids of training, from Corpus.split().

  Attributes:
    devices: the devices and their slices of a batch.
    batches: the batches of the training set.
    graph: the model without its parameters.
    learning_rate: the rate of an update, counted from 0.
    pieces: the size of the target vocabulary.
  """

  def __init__(self, config: ml_collections.ConfigDict, train: Split):
    self._config = config
    self.devices = Devices(config.slices)
    self._kernels = Kernels(config, self.devices.platform)
    self.batches = batches.train_batches(config, train)
    self.graph, params = build.architecture(config)
    self.learning_rate = learning_rate(config)
    self.pieces = target_pieces(config.model)
    self._transform = adam(config)
    self._shapes = params, jax.eval_shape(self._transform.init, params)
    self._seed = self.devices.replicate(np.int32(config.seed))
    self._programs: dict[batches.Shape, futures.Future[jax.stages.Compiled]] = {}

  def initialize(self) -> TrainState:
    """Returns a state at step 0 on the devices.

    Its parameters are random, or those of the config's `init_from`.
    """
    if not self._config.init_from.run:
      _, params = build.transformer(self._config)
    elif hosts.is_first_host():
      run, step = find_parent(self._config.init_from)
      params = checkpoint.restore_params(run.checkpoints, step, self._shapes[0])
    else:  # replicate() sends the first host's
      params = _zeros(self._shapes[0])
    fresh = TrainState(jnp.int32(0), params, self._transform.init(params))
    return self.devices.replicate(fresh)

  def restore(self, folder: pathlib.Path) -> TrainState:
    """Returns the newest checkpoint that is not damaged, else initialize()."""
    state = None
    if hosts.is_first_host():
      state = checkpoint.restore_newest(folder, *self._shapes)
    step = hosts.from_first_host(np.int32(state.step if state else 0))
    if not step:
      return self.initialize()
    # replicate() sends the other hosts the first host's arrays.
    return self.devices.replicate(state or TrainState(step, *_zeros(self._shapes)))

  @contextlib.contextmanager
  def compile(
    self,
    state: TrainState,
    shapes: Sequence[batches.Shape],
    say: Callable[[str], None] = lambda text: None,
  ) -> Iterator[None]:
    """Compiles a step for each shape, in this order, in other threads.

    Training runs meanwhile on the shapes that have a program, since XLA releases
    Python's lock. At its end the context drops the programs that are not started, and
    waits for the others: a process must not end while XLA compiles in it.
    """
    if self._kernels.mode != 'plain':
      model = lambda: build.transformer(self._config)
      self._kernels.check(model, self._smallest_batch(), say)
    # Without the arrays: the first step donates their memory while others compile.
    state = without_data(state)
    # The longest texts take the most memory. All shapes and hosts take as many slices
    # at once as fit with these.
    largest = max(self.batches.shapes, key=lambda s: (s.source + s.target, s.rows))
    size, program = self._choose_slices_per_pass(state, largest, say)
    if plain := ', '.join(self._kernels.plain_forms(shapes, size)):
      say(f'no kernel takes {plain}: plain forms')
    ready = {largest: program} if program else {}

    def compile_for(shape: batches.Shape) -> jax.stages.Compiled:
      begin = time.monotonic()
      compiled = lambda: self._lower(state, shape, size).compile()
      program = ready.get(shape) or self._kernels.compile(compiled, say)
      seconds = time.monotonic() - begin
      if seconds > 1:  # else it was read from JAX's cache of compiled programs
        done = 1 + sum(future.done() for future in self._programs.values())
        say(
          f'compiled {done} of {len(shapes)}, for slices of {shape.rows} pairs of '
          f'{shape.source} and {shape.target} tokens, in {seconds:.0f} s'
        )
      return program

    # XLA uses several cores for one program, and on a CPU training needs them too.
    is_gpu = self.devices.platform == 'gpu'
    threads = platform.cores() // (2 if is_gpu else 4)
    if is_gpu:
      # XLA times a product's candidates, each with an output of the product's size and
      # one to compare with. The logits are the largest.
      positions = size * max(shape.rows * shape.target for shape in shapes)
      threads = min(threads, int(device_memory() / (3 * 4 * positions * self.pieces)))
    pool = futures.ThreadPoolExecutor(max(1, threads), 'compile')
    self._programs = {shape: pool.submit(compile_for, shape) for shape in shapes}
    try:
      yield
    finally:
      pool.shutdown(cancel_futures=True)

  def _choose_slices_per_pass(
    self, state: TrainState, shape: batches.Shape, say: Callable[[str], None]
  ) -> tuple[int, jax.stages.Compiled | None]:
    """Returns how many slices a device computes at once: as many as memory allows.

    Returns the program of the shape too, if it was compiled to learn that. The first
    host decides. The others compile with it, since GPUs' hosts tune programs together.
    """
    *larger_sizes, smallest = self.devices.pass_sizes
    for size in larger_sizes:
      fitting = lambda size=size: compile_if_it_fits(self._lower(state, shape, size))
      program = self._kernels.compile(fitting, say)
      hosts.wait_for_all(f'{size} slices per pass')
      if hosts.from_first_host(np.int32(program is not None)):
        break
    else:
      size, program = smallest, None
    if larger_sizes:
      count = self.devices.slices_per_device
      say(f'a device computes {size} of its {count} slices at once')
    return size, program

  def _lower(
    self, state: TrainState, shape: batches.Shape, slices_per_pass: int
  ) -> jax.stages.Lowered:
    """Returns the step for a shape, before it is compiled."""
    host = self.devices.host_slices
    rows = host.stop - host.start, shape.rows
    source = np.zeros((*rows, shape.source), np.int32)
    target = np.zeros((*rows, shape.target), np.int32)
    step = make_step(self._config, self.graph, slices_per_pass)
    inputs = self._inputs(source, target, False, False)
    return self.devices.pmap(step).lower(state, inputs, self._seed)

  def batch(self, step: int) -> batches.Batch:
    """Returns this host's slices of the batch of update `step`, and all its `pairs`."""
    return self.batches.batch(step, self.devices.host_slices)

  def _smallest_batch(self) -> batches.Batch:
    """Returns one slice of the first batch with the fewest positions."""
    smallest = min(self.batches.shapes, key=lambda s: s.rows * (s.source + s.target))
    first_slices = (self.batches.batch(n, slice(0, 1)) for n in itertools.count())
    return next(batch for batch in first_slices if batch.shape == smallest)

  def wait_for_program(
    self, batch: batches.Batch, unless: Callable[[], bool] = lambda: False
  ) -> None:
    """Returns when the step of this batch is compiled, or once unless() is true."""
    future = self._programs[batch.shape]
    while not future.done() and not unless():
      futures.wait([future], POLL)

  def wait_for_all_programs(self) -> None:
    """Returns when all programs are compiled; raises what compiling raised."""
    for future in futures.as_completed(self._programs.values()):
      future.result()

  def step(
    self,
    state: TrainState,
    batch: batches.Batch,
    stop: bool = False,
    save: bool = False,
  ) -> tuple[TrainState, Sums]:
    """Starts one update on the devices as soon as its program is compiled.

    Args:
      state: donated, so its memory becomes that of the new state.
      stop, save: whether this host has to stop, or to save. Sums.requests add up those
        of all hosts.
    """
    inputs = self._inputs(batch.source, batch.target, stop, save)
    return self._programs[batch.shape].result()(state, inputs, self._seed)

  def _inputs(
    self, source: np.ndarray, target: np.ndarray, stop: bool, save: bool
  ) -> StepInput:
    """Returns what a step takes besides the state, on the devices."""
    requests = np.full((len(source), 2), (stop, save), np.int32)
    return StepInput(*self.devices.split((source, target, requests)))


def _zeros(shapes: PyTree) -> PyTree:
  return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
