"""A config's model, optimizer and batches, and its compiled steps on all devices."""

import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from concurrent import futures

import jax
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.data import batches
from transformer_jax.data.batches import train_batches
from transformer_jax.machine import hosts, platform
from transformer_jax.machine.devices import Devices, compile_if_it_fits, without_data
from transformer_jax.model import build
from transformer_jax.runs.run import find_parent
from transformer_jax.training import checkpoint
from transformer_jax.training.step import (
  StepInput,
  Sums,
  TrainState,
  adam,
  learning_rate,
  train_step,
)

POLL = 0.1  # seconds


class Programs:
  """A compiled program for each shape of batch.

  Other threads compile them, in the order of `shapes`, while training runs on the
  shapes that have a program: XLA releases Python's lock. As a context manager it drops
  at its end the programs that are not started and waits for the others, since a process
  must not end while XLA compiles in it.
  """

  def __init__(
    self,
    compile_for: Callable[[batches.Shape], Callable],
    shapes: Sequence[batches.Shape],
    say: Callable[[str], None] = lambda text: None,
  ):
    """Begins to compile; `compile_for` and `say` are called in other threads."""
    self._pool = futures.ThreadPoolExecutor(platform.compiling_threads(), 'compile')
    self._compile_for, self._say = compile_for, say
    self._futures = {shape: self._pool.submit(self._compile, shape) for shape in shapes}

  def _compile(self, shape: batches.Shape) -> Callable:
    begin = time.monotonic()
    program = self._compile_for(shape)
    seconds = time.monotonic() - begin
    if seconds > 1:  # else it was read from JAX's cache of compiled programs
      done = 1 + sum(future.done() for future in self._futures.values())
      self._say(
        f'compiled {done} of {len(self._futures)}, for slices of {shape.rows} pairs of '
        f'{shape.source} and {shape.target} tokens, in {seconds:.0f} s'
      )
    return program

  def __enter__(self) -> 'Programs':
    return self

  def __exit__(self, *_: object) -> None:
    self._pool.shutdown(cancel_futures=True)

  def __getitem__(self, shape: batches.Shape) -> Callable:
    """Returns a shape's program when it is compiled; raises what compiling raised."""
    return self._futures[shape].result()

  def wait(
    self, shape: batches.Shape, unless: Callable[[], bool] = lambda: False
  ) -> None:
    """Returns when a shape's program is compiled, or once unless() is true."""
    future = self._futures[shape]
    while not future.done() and not unless():
      futures.wait([future], POLL)

  def wait_for_all(self) -> None:
    """Returns when all are compiled; raises what compiling raised."""
    for future in futures.as_completed(self._futures.values()):
      future.result()


def step_of(
  config: ml_collections.ConfigDict, graph: nnx.GraphDef, at_once: int
) -> Callable[[TrainState, StepInput], tuple[TrainState, Sums]]:
  """Returns train_step() with a config's optimizer and label smoothing."""
  return functools.partial(
    train_step,
    graph=graph,
    transform=adam(config),
    epsilon_ls=config.epsilon_ls,
    at_once=at_once,
  )


class Trainer:
  """Makes a config's updates on all devices of all hosts.

  Attributes:
    devices: the devices and their slices of a batch.
    batches: the training batches; a batch is a function of the step.
    graph: the model without its parameters.
    learning_rate: of an update, counted from 0.
    at_once: how many of its slices a device computes at once. compile() lowers it if
      memory does not suffice.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    corpus: pathlib.Path,
    devices: Devices | None = None,
  ):
    """Builds the model; `devices` are those of all hosts by default."""
    self._config = config
    self.devices = devices or Devices(config.slices)
    self.batches = train_batches(config, corpus)
    self.graph, params = build.architecture(config)
    self.learning_rate = learning_rate(config)
    self._transform = adam(config)
    self._shapes = params, jax.eval_shape(self._transform.init, params)
    self.at_once = self.devices.slices_at_once[0]
    self._programs: Programs

  def initial(self) -> TrainState:
    """Returns a state at step 0 on the devices.

    Its parameters are random, or those of the config's `init_from`.

    Raises:
      UserError: the checkpoint to start from is gone, damaged, or of another model.
    """
    if not self._config.init_from.run:
      _, params = build.transformer(self._config)
    elif hosts.is_first_host():
      run, step = find_parent(self._config.init_from)
      params = checkpoint.restore_params(run.checkpoints, step, self._shapes[0])
    else:  # replicate() sends it the first host's
      params = _zeros(self._shapes[0])
    fresh = TrainState(np.int32(0), params, self._transform.init(params))
    return self.devices.replicate(fresh)

  def restore(self, folder: pathlib.Path) -> TrainState:
    """Returns the newest checkpoint that is not damaged, or initial() without one.

    Raises:
      UserError: what checkpoint.restore_newest() and initial() raise.
    """
    state = None
    if hosts.is_first_host():
      state = checkpoint.restore_newest(folder, *self._shapes)
    step = hosts.from_first_host(np.int32(0 if state is None else state.step))
    if not step:
      return self.initial()
    if state is None:  # on another host: replicate() sends it the first host's arrays
      state = TrainState(step, *_zeros(self._shapes))
    return self.devices.replicate(state)

  def compile(
    self,
    state: TrainState,
    shapes: Sequence[batches.Shape],
    say: Callable[[str], None] = lambda text: None,
  ) -> Programs:
    """Begins to compile a step for each shape, in this order, in other threads.

    Returns:
      The programs, as a context manager. step() calls them from now on.
    """
    # Without the arrays: the first step donates their memory while others compile.
    compile_for = functools.partial(self._compile_for, without_data(state))
    self._programs = Programs(compile_for, shapes, say)
    return self._programs

  def _compile_for(
    self, state: TrainState, shape: batches.Shape
  ) -> jax.stages.Compiled:
    """Returns the step for a shape, with as many slices at once as memory allows.

    Shapes that are compiled later do not try more slices than fitted here.
    """
    host = self.devices.host_slices
    each = host.stop - host.start, shape.rows
    source = np.zeros((*each, shape.source), np.int32)
    target = np.zeros((*each, shape.target), np.int32)
    inputs = self._inputs(source, target, False, False)

    def lower(at_once: int) -> jax.stages.Lowered:
      step = step_of(self._config, self.graph, at_once)
      return self.devices.pmap(step).lower(state, inputs)

    *more, fewest = (n for n in self.devices.slices_at_once if n <= self.at_once)
    for at_once in more:
      program = compile_if_it_fits(lower(at_once))
      if program is not None:
        self.at_once = min(self.at_once, at_once)
        return program
    self.at_once = fewest
    return lower(fewest).compile()

  def batch(self, step: int) -> batches.Batch:
    """Returns this host's slices of the batch of update number `step`, from 0.

    Its `pairs` are those of all slices.
    """
    return self.batches.batch(step, self.devices.host_slices)

  def wait_for_program(self, batch: batches.Batch, unless: Callable[[], bool]) -> None:
    """Returns when the step of this batch is compiled, or once unless() is true."""
    self._programs.wait(batch.shape, unless)

  def step(
    self,
    state: TrainState,
    batch: batches.Batch,
    stop: bool = False,
    save: bool = False,
  ) -> tuple[TrainState, Sums]:
    """Starts one update on the devices, and does not wait for it.

    If its program is still being compiled, it waits for that.

    Args:
      state: it is donated: its memory becomes that of the new state.
      batch: this host's slices.
      stop: this host has to stop.
      save: this host has to save. Sums.requests are those of all hosts.

    Raises:
      KeyError: compile() was called without the batch's shape.
    """
    inputs = self._inputs(batch.source, batch.target, stop, save)
    return self._programs[batch.shape](state, inputs)

  def _inputs(
    self, source: np.ndarray, target: np.ndarray, stop: bool, save: bool
  ) -> StepInput:
    """Returns what a step takes beside the state, on the devices."""
    requests = np.full((len(source), 2), (stop, save), np.int32)
    seed = np.full(len(source), self._config.seed, np.int32)
    return self.devices.split(StepInput(source, target, requests, seed))


def _zeros(shapes: PyTree) -> PyTree:
  return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
