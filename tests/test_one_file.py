"""The package computes what examples/one_file.py computes, from equal parameters."""

import functools
import importlib.util
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import base
from toy import forms
from transformer_jax.decoding.translate import search_of
from transformer_jax.machine.devices import Devices
from transformer_jax.model import build
from transformer_jax.model.transformer import search_weights
from transformer_jax.training.step import StepInput, TrainState, adam
from transformer_jax.training.trainer import step_of

PATH = pathlib.Path(__file__).parents[1] / 'examples/one_file.py'
SPECIFICATION = importlib.util.spec_from_file_location('one_file', PATH)
one_file = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(one_file)

SIZES = {'d_model': 12, 'd_ff': 20, 'h': 3, 'd_k': 5, 'd_v': 4}
TOKENS, LENGTH, EPSILON_LS, WARMUP = 40, 8, 0.1, 300
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def rank_promotion():
  with jax.numpy_rank_promotion('allow'):  # which the package does without
    yield


def config_of(N: int) -> Any:
  config = base.get_config()
  config.model.update(SIZES | {'N': N, 'vocab_size': TOKENS, 'P_drop': 0.0})
  config.update({'dtype': 'float32', 'slices': 1, 'warmup_steps': WARMUP})
  return config


def model(N: int) -> tuple[nnx.GraphDef, Any]:
  graph, shapes = build.architecture(config_of(N))
  params = forms.random_like(shapes, 0.3)
  near_one = lambda path, x: x + (path[-1].key == 'scale')  # of the norms
  params = jax.tree_util.tree_map_with_path(near_one, params)
  params['embedding'][one_file.EOS] *= 2  # so that some hypotheses end
  return graph, params


def renamed(params: Any) -> Any:
  """Returns the package's parameters, or gradients, under the names of one_file.py."""
  heads = {'W_Q': 'query', 'W_K': 'key', 'W_V': 'value', 'W_O': 'output'}

  def layer(p: Any) -> dict[str, Any]:
    inner, outer = p['feed_forward']['inner'], p['feed_forward']['outer']
    own = {
      'norm_1': p['attention_norm']['norm'],
      'norm_3': p['feed_forward_norm']['norm'],
    }
    own['feed_forward'] = {'W_1': inner['kernel'], 'b_1': inner['bias']}
    own['feed_forward'] |= {'W_2': outer['kernel'], 'b_2': outer['bias']}
    if 'cross' in p:
      own['norm_2'] = p['cross_norm']['norm']
    for name in {'attention', 'cross'} & p.keys():
      own[name] = {ours: p[name][theirs] for ours, theirs in heads.items()}
    return own

  stack = lambda layers: [layer(layers[n]) for n in range(len(layers))]
  encoder, decoder = stack(params['encoder']), stack(params['decoder'])
  return {'embedding': params['embedding'], 'encoder': encoder, 'decoder': decoder}


def batch(seed: int, rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(seed)
  sentence = lambda: [*rng.integers(4, TOKENS, rng.integers(1, LENGTH)), one_file.EOS]
  sides = ([sentence() for _ in range(rows)] for _ in range(2))
  return tuple(one_file.pad(side, LENGTH) for side in sides)


def test_ten_updates_are_equal():
  """So are the losses, and the gradients, of which Adam keeps the moments."""
  (graph, params), config = model(1), config_of(1)
  devices = Devices(1, jax.devices()[:1])
  step = devices.pmap(step_of(config, graph, 1))
  state = TrainState(np.int32(0), params, adam(config).init(params))
  state = devices.replicate(state)
  theirs = one_file.adam(SIZES['d_model'], WARMUP)
  settings = {'optimizer': theirs, 'p_drop': 0.0, 'epsilon_ls': EPSILON_LS}
  own = renamed(params)
  own_state = theirs.init(own)
  for number in range(10):
    source, target = batch(number)
    inputs = StepInput(source[None], target[None], np.zeros((1, 2), np.int32))
    state, sums = step(state, devices.split(inputs), np.int32(1))
    own, own_state, value = one_file.update(
      own, own_state, jax.random.key(0), source, target, **settings
    )
    close(sums.loss / sums.tokens, value)
  ours, (moments, *_) = jax.device_get((state.params, state.opt_state))
  jax.tree.map(close, renamed(ours), own)
  for mine, other in (moments.mu, own_state[0].mu), (moments.nu, own_state[0].nu):
    jax.tree.map(functools.partial(close, atol=1e-7), renamed(mine), other)


@pytest.mark.slow
@pytest.mark.parametrize('beam', [1, 4])
def test_translations_are_equal(beam: int):
  (graph, params), config = model(2), config_of(2)
  config.update({'beam': beam, 'extra_length': 0})
  source, _ = batch(1, rows=20)
  search = jax.jit(search_of(config, graph, LENGTH, 1))
  weights = search_weights(jax.tree.map(jnp.asarray, params), jnp.float32)
  tokens = np.array(search(weights, source, np.zeros(len(source), np.int32)).tokens)
  ours = [[int(token) for token in row if token] for row in tokens[:, 0]]  # no PAD
  expected = one_file.beam_search(renamed(params), source, beam, config.alpha, 0)
  assert ours == expected
  ends = [tokens[-1] == one_file.EOS for tokens in expected]
  assert any(ends) and not all(ends)
