"""Flax's examples/wmt: its model and train_step, imported from a checkout.

Packing of examples and dropout of attention weights are off. It still differs from ours
in that its norms come before the sub-layers and after the last one, and that its
feed-forward networks have one dropout more.
"""

import functools
import importlib
import importlib.util
import pathlib
import sys
import types
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from transformer_jax.machine import platform
from transformer_jax.machine.devices import AXIS, Devices

Tree = Any

LONGEST = 256  # positions of its table, as in its config
OWN = ('bleu', 'decode', 'models', 'train')  # its modules
# Its input pipeline and its logging, which a step does not need.
UNUSED = ('input_pipeline', 'tensorflow', 'clu')


def train_module(checkout: pathlib.Path) -> types.ModuleType:
  """The checkout's train.py, imported with mocks for what is UNUSED.

  Raises:
    ModuleNotFoundError: the checkout has none.
  """
  importlib.import_module('flax.training.checkpoints')  # without the mocks
  missing = {name: mock.MagicMock() for name in UNUSED if name not in sys.modules}
  sys.path.insert(0, str(checkout / 'examples' / 'wmt'))
  sys.modules |= missing
  try:
    return importlib.import_module('train')
  finally:
    sys.path.pop(0)
    for name in (*missing, *OWN):
      sys.modules.pop(name, None)


class Training:
  """Updates by Adam on its label-smoothed loss, on all devices."""

  def __init__(self, config: ml_collections.ConfigDict, checkout: pathlib.Path):
    train, model = train_module(checkout), config.model
    sizes = train.models.TransformerConfig(
      vocab_size=model.vocab_size,
      output_vocab_size=model.vocab_size,
      share_embeddings=True,
      logits_via_embedding=True,
      dtype=platform.training_dtype(config.dtype),
      emb_dim=model.d_model,
      num_heads=model.h,
      num_layers=model.N,
      qkv_dim=model.h * model.d_k,
      mlp_dim=model.d_ff,
      max_len=LONGEST,
      dropout_rate=model.P_drop,
      attention_dropout_rate=0.0,
    )
    count = jax.local_device_count()
    self._devices = Devices(count, jax.local_devices())
    self._seeds = np.arange(count, dtype=np.uint32)
    rate = train.create_learning_rate_schedule(0.002, config.warmup_steps)
    initial = _initial_state(train, sizes, config, rate)
    self._state = self._devices.replicate(initial)
    step = functools.partial(
      train.train_step,
      config=sizes,
      learning_rate_fn=rate,
      label_smoothing=config.epsilon_ls,
    )
    self._step = self._devices.pmap(functools.partial(_on_one_device, step))
    self._metrics: Tree = None

  def step(self, source: np.ndarray, target: np.ndarray) -> None:
    split = lambda x: x.reshape(len(self._seeds), -1, x.shape[-1])
    inputs = self._devices.split((split(source), split(target), self._seeds))
    self._state, self._metrics = self._step(self._state, inputs)

  def wait(self) -> float:
    jax.block_until_ready(self._state)
    return float(self._metrics['loss'] / self._metrics['denominator'])


def _initial_state(
  train: types.ModuleType, sizes: Any, config: ml_collections.ConfigDict, rate: Any
) -> Tree:
  model = train.models.Transformer(sizes.replace(deterministic=True))
  ids = jnp.ones((1, LONGEST), jnp.int32)
  params = jax.jit(model.init)(jax.random.key(config.seed), ids, ids)['params']
  adam = optax.adamw(
    rate,
    b1=config.adam_b1,
    b2=config.adam_b2,
    eps=config.adam_epsilon,
    weight_decay=0.0,
  )
  return train.TrainState.create(
    apply_fn=model.apply,
    params=params,
    tx=optax.chain(_mean_over_devices(), adam),
    dynamic_scale=None,
  )


def _on_one_device(step: Any, state: Tree, inputs: Tree) -> tuple[Tree, Tree]:
  """Runs train_step, which reduces over an axis named 'batch', here of size one."""

  def one(state: Tree, inputs: Tree) -> tuple[Tree, Tree]:
    source, target, seed = inputs
    batch = {'inputs': source, 'targets': target}
    return step(state, batch, dropout_rng=jax.random.key(seed))

  mapped = jax.vmap(one, in_axes=(None, 0), out_axes=(None, None), axis_name='batch')
  return mapped(state, inputs)


def _mean_over_devices() -> optax.GradientTransformation:
  """The mean over all devices, which train_step takes over its own axis only."""
  return optax.GradientTransformation(
    lambda params: optax.EmptyState(),
    lambda updates, state, params=None: (
      jax.lax.pmean(updates, AXIS),
      state,
    ),
  )
