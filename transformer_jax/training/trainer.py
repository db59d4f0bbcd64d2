"""A config's model, batches and compiled steps on all devices."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from transformer_jax.data import batches
from transformer_jax.data.corpus import train_batches
from transformer_jax.machine import hosts, parallel
from transformer_jax.model import build
from transformer_jax.training import checkpoint
from transformer_jax.training.optimizer import optimizer
from transformer_jax.training.step import Share, Sums, TrainState, train_step


class Trainer:
  """A config's model, batches and compiled steps on all devices."""

  def __init__(self, config: ml_collections.ConfigDict, corpus: pathlib.Path):
    self.config = config
    self.devices = parallel.Devices(config.slices)
    self.batches = train_batches(config, corpus)
    self.graph, params = build.architecture(config)
    self.transform = optimizer(config)
    self._shapes = params, jax.eval_shape(self.transform.init, params)
    step = functools.partial(
      train_step,
      graph=self.graph,
      transform=self.transform,
      epsilon_ls=config.epsilon_ls,
    )
    self._parallel = self.devices.parallel(step)
    self._compiled: dict[batches.Shape, Callable] = {}

  def compile(self, state: TrainState, progress: Callable[[list], Any]) -> None:
    """Compiles a step for every shape of batch; `progress` wraps the list of them."""
    slices = self.devices.host_slices.stop - self.devices.host_slices.start
    for shape in progress(self.batches.shapes):
      side = np.zeros((slices, *shape), np.int32)
      share = self._share(side, side, False, False)
      self._compiled[shape] = self._parallel.lower(state, share).compile()

  def batch(self, step: int) -> batches.Batch:
    """This host's share of the batch that update number `step` (from 0) sees."""
    return self.batches.batch(step, self.devices.host_slices)

  def step(
    self,
    state: TrainState,
    batch: batches.Batch,
    stop: bool = False,
    save: bool = False,
  ) -> tuple[TrainState, Sums]:
    """Dispatches one update; a shape that compile() has not seen is a KeyError.

    `stop` and `save` are this host's wishes; Sums tells those of all.
    """
    shape = batches.Shape(*batch.source.shape[1:])
    share = self._share(batch.source, batch.target, stop, save)
    return self._compiled[shape](state, share)

  def _share(
    self, source: np.ndarray, target: np.ndarray, stop: bool, save: bool
  ) -> Share:
    """On the devices."""
    wishes = np.full((len(source), 2), (stop, save), np.int32)
    seed = np.full(len(source), self.config.seed, np.int32)
    return self.devices.split(Share(source, target, wishes, seed))

  def initial(self) -> TrainState:
    """A fresh state on the devices."""
    _, params = build.transformer(self.config)
    return self.devices.replicate(
      TrainState(np.int32(0), params, self.transform.init(params))
    )

  def restore(self, folder: pathlib.Path) -> TrainState:
    """The newest checkpoint that is as it was written, else the initial state."""
    found = None
    if hosts.is_first_host():
      found = checkpoint.restore_newest(folder, *self._shapes)
    step = hosts.from_first_host(np.int32(0 if found is None else found.step))
    if not step:
      return self.initial()
    if found is None:
      zeros = lambda x: np.zeros(x.shape, x.dtype)
      found = checkpoint.Restored(int(step), *jax.tree.map(zeros, self._shapes))
    return self.devices.replicate(TrainState(np.int32(step), *found[1:]))
