"""A config's model, optimizer and batches, and its compiled steps on all devices."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
import optax

from transformer_jax.data import batches
from transformer_jax.data.batches import train_batches
from transformer_jax.machine import hosts
from transformer_jax.machine.devices import Devices, compile_if_it_fits, without_data
from transformer_jax.model import build
from transformer_jax.runs.run import find_parent
from transformer_jax.training import checkpoint, optimizer
from transformer_jax.training.compilation import Programs
from transformer_jax.training.step import StepInput, Sums, TrainState, train_step

Tree = Any


def equation_3(config: ml_collections.ConfigDict) -> optimizer.Schedule:
  """A config's learning rate."""
  return optimizer.learning_rate(
    config.model.d_model, config.warmup_steps, config.rate_factor
  )


def adam(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
  """A config's optimizer."""
  return optimizer.adam(
    equation_3(config), config.adam_b1, config.adam_b2, config.adam_epsilon
  )


class Trainer:
  """Makes a config's updates on all devices of all hosts.

  Attributes:
    devices: the devices and their slices of a batch.
    batches: the training batches, all of which are a function of the step.
    graph: the model without its parameters.
    learning_rate: of an update, counted from 0.
    at_once: how many of its slices a device computes at once, as far as compile() has
      found out yet.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    corpus: pathlib.Path,
    devices: Devices | None = None,
  ):
    """`devices` are all of all hosts by default."""
    self._config = config
    self.devices = devices or Devices(config.slices)
    self.batches = train_batches(config, corpus)
    self.graph, params = build.architecture(config)
    self.learning_rate = equation_3(config)
    self._transform = adam(config)
    self._shapes = params, jax.eval_shape(self._transform.init, params)
    self.at_once = self.devices.slices_at_once[0]
    self._programs: Programs

  def compile(self, state: TrainState, shapes: Sequence[batches.Shape]) -> Programs:
    """Begins to compile a step for each shape, in this order, in other threads.

    Returns:
      The programs, which step() uses from now on; to be left as a context.
    """
    # The first step gives up the memory of the arrays themselves.
    compiled = functools.partial(self._compiled, without_data(state))
    self._programs = Programs(compiled, shapes)
    return self._programs

  def _compiled(self, state: TrainState, shape: batches.Shape) -> jax.stages.Compiled:
    """The step for one shape, with as many slices at once as memory allows.

    Other shapes do not try more slices than fitted here.
    """
    *more, fewest = (n for n in self.devices.slices_at_once if n <= self.at_once)
    for at_once in more:
      program = compile_if_it_fits(self.lower(state, shape, at_once))
      if program is not None:
        self.at_once = min(self.at_once, at_once)
        return program
    self.at_once = fewest
    return self.lower(state, shape, fewest).compile()

  def lower(
    self, state: TrainState, shape: batches.Shape, at_once: int
  ) -> jax.stages.Lowered:
    """The step for one shape of batch, not compiled yet.

    Args:
      state: may be as without_data() returns it.
      at_once: how many of its slices a device computes at once.
    """
    host = self.devices.host_slices
    each = host.stop - host.start, shape.rows
    source = np.zeros((*each, shape.source), np.int32)
    target = np.zeros((*each, shape.target), np.int32)
    step = functools.partial(
      train_step,
      graph=self.graph,
      transform=self._transform,
      epsilon_ls=self._config.epsilon_ls,
      at_once=at_once,
    )
    inputs = self._inputs(source, target, False, False)
    return self.devices.pmap(step).lower(state, inputs)

  def batch(self, step: int) -> batches.Batch:
    """This host's slices of the batch of update number `step`, from 0.

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
      state: given up: its memory is used for the new state.
      batch: this host's slices.
      stop: this host has to stop.
      save: this host has to save. Sums.requests are those of all hosts.

    Raises:
      KeyError: the batch has a shape that was not given to compile().
    """
    inputs = self._inputs(batch.source, batch.target, stop, save)
    return self._programs[batch.shape](state, inputs)

  def _inputs(
    self, source: np.ndarray, target: np.ndarray, stop: bool, save: bool
  ) -> StepInput:
    """What a step takes beside the state, on the devices."""
    requests = np.full((len(source), 2), (stop, save), np.int32)
    seed = np.full(len(source), self._config.seed, np.int32)
    return self.devices.split(StepInput(source, target, requests, seed))

  def initial(self) -> TrainState:
    """A fresh state on the devices; its parameters may be those of `init_from`."""
    if not self._config.init_from.run:
      _, params = build.transformer(self._config)
    elif hosts.is_first_host():
      run, step = find_parent(self._config.init_from)
      params = checkpoint.restore_params(run.checkpoints, step, self._shapes[0])
    else:  # it gets the first host's
      params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self._shapes[0])
    fresh = TrainState(np.int32(0), params, self._transform.init(params))
    return self.devices.replicate(fresh)

  def restore(self, folder: pathlib.Path) -> TrainState:
    """The newest checkpoint that is not damaged, or a fresh state if there is none."""
    found = None
    if hosts.is_first_host():
      found = checkpoint.restore_newest(folder, *self._shapes)
    step = hosts.from_first_host(np.int32(0 if found is None else found.step))
    if not step:
      return self.initial()
    if found is None:  # another host, which gets the first host's arrays
      zeros = lambda x: np.zeros(x.shape, x.dtype)
      found = checkpoint.Saved(int(step), *jax.tree.map(zeros, self._shapes))
    return self.devices.replicate(TrainState(np.int32(step), *found[1:]))
