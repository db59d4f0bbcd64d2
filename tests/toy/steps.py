"""train_step of a tiny model on any number of devices, and the course it takes."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree
from ml_collections import ConfigDict

from toy import forms
from toy.config import tiny
from toy.corpus import write_tokens
from transformer_jax.data.corpus import Split, read_split
from transformer_jax.data.vocabulary import EOS, PAD
from transformer_jax.machine.devices import AXIS, Devices
from transformer_jax.model import build
from transformer_jax.training.step import StepInput, Sums, TrainState, train_step

SLICES, ROWS, LENGTH, VOCABULARY = 8, 2, 6, 17


def tiny_config(**changes: Any) -> ConfigDict:
  return tiny(**{'model.vocab_size': VOCABULARY} | changes)


@functools.cache
def model(P_drop: float) -> tuple[nnx.GraphDef, PyTree]:
  """Returns a tiny model with random parameters."""
  graph, shapes = build.architecture(tiny_config(**{'model.P_drop': P_drop}))
  return graph, forms.random_like(shapes, 0.3)


def example(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Returns [SLICES, ROWS, LENGTH] source and target; token counts differ."""
  rng = np.random.default_rng(seed)
  sides = rng.integers(3, VOCABULARY, (2, SLICES, ROWS, LENGTH)).astype(np.int32)
  for index, length in enumerate(rng.integers(1, LENGTH + 1, (SLICES, ROWS)).flat):
    i, row = divmod(index, ROWS)
    sides[:, i, row, length:] = PAD
    sides[:, i, row, length - 1] = EOS
  sides[:, -1] = PAD  # a last slice without sentences
  return sides[0], sides[1]


class ShardMapDevices(Devices):
  """Devices for the day that JAX takes pmap away: its body replaces Devices.pmap."""

  def pmap(self, step: Callable) -> jax.stages.Wrapped:
    # As from pmap, the step gets its part of the inputs without the axis of devices.
    own = lambda inputs: jax.tree.map(lambda x: x[0], inputs)
    everywhere = PartitionSpec()
    mapped = jax.shard_map(
      lambda state, inputs, seed: step(state, own(inputs), seed),
      mesh=Mesh(np.array(self._devices), (AXIS,)),
      in_specs=(everywhere, PartitionSpec(AXIS), everywhere),
      out_specs=everywhere,
      check_vma=False,  # else the gradient would be a sum over the devices already
    )
    return jax.jit(mapped, donate_argnums=0)


class Steps:
  """train_step on the first devices, at a constant rate; a program compiled once.

  With several hosts, each passes its slices of the batch. `of` is another model than
  the tiny one, `slices_per_pass` how many slices a device computes at once. `kind` maps
  the step over the devices.
  """

  def __init__(
    self,
    count: int | None,
    of: tuple[nnx.GraphDef, PyTree] | None = None,
    slices_per_pass: int = 1,
    kind: type[Devices] = Devices,
  ):
    graph, self.params = of or model(0.3)
    self._transform = optax.adam(1e-3, 0.9, 0.98, 1e-9)
    self.devices = kind(SLICES, jax.devices()[:count])
    step = functools.partial(
      train_step,
      graph=graph,
      transform=self._transform,
      epsilon_ls=0.1,
      slices_per_pass=slices_per_pass,
    )
    self._step = self.devices.pmap(step)
    self.programs = {}

  def initialize(self, step: int = 0) -> TrainState:
    optimizer = self._transform.init(self.params)
    return self.devices.replicate(TrainState(np.int32(step), self.params, optimizer))

  def __call__(
    self, state: TrainState, source: np.ndarray, target: np.ndarray, seed: int = 1
  ) -> tuple[TrainState, Sums]:
    all_of_it = StepInput(source, target, np.zeros((SLICES, 2), np.int32))
    ours = jax.tree.map(lambda x: x[self.devices.host_slices], all_of_it)
    inputs, seed = self.devices.split(ours), self.devices.replicate(np.int32(seed))
    arguments, shape = (state, inputs, seed), inputs.source.shape
    if shape not in self.programs:
      self.programs[shape] = self._step.lower(*arguments).compile()
    state, sums = self.programs[shape](*arguments)
    return state, jax.device_get(sums)


steps_on = functools.cache(Steps)


class Course(NamedTuple):
  """Ten updates at a constant rate, with dropout and unequal slices."""

  losses: list[float]
  norms: list[float]  # of the gradients
  moved: PyTree  # parameters at the end, less those at the start


def course(steps: Steps) -> Course:
  losses, norms, state = [], [], steps.initialize()
  for number in range(10):
    state, sums = steps(state, *example(number))
    losses.append(float(sums.loss / sums.tokens))
    norms.append(float(sums.gradient_norm))
  assert int(state.step) == 10
  here = jax.device_get(steps.devices.on_this_host(state.params))
  return Course(losses, norms, jax.tree.map(np.subtract, here, steps.params))


def assert_same_course(one: Course, other: Course) -> None:
  """Losses to 1e-6, norms to 1e-4, parameters to 1e-3 of the largest movement."""
  np.testing.assert_allclose(one.losses, other.losses, rtol=1e-6)
  np.testing.assert_allclose(one.norms, other.norms, rtol=1e-4)
  largest = max(np.abs(x).max() for x in jax.tree.leaves(one.moved))
  assert largest > 5e-3  # under Equation 3's warm-up nothing would have moved
  for a, b in zip(*map(jax.tree.leaves, (one.moved, other.moved)), strict=True):
    assert np.abs(a - b).max() < 1e-3 * largest


@functools.cache
def course_on_one() -> Course:
  return course(steps_on(1))


def corpus(folder: pathlib.Path) -> Split:
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, 12, 60)
  for side in ('source', 'target'):
    ids = [rng.integers(4, VOCABULARY - 1, length) for length in lengths]
    write_tokens(folder / f'train.{side}', ids)
  return read_split(folder, 'train')
