"""The package computes what examples/one_file.py computes, from equal parameters."""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from toy import forms
from toy.names import renamed
from transformer_jax.machine.devices import Devices
from transformer_jax.model import build
from transformer_jax.reference import compute
from transformer_jax.training.step import StepInput, TrainState, adam
from transformer_jax.training.trainer import make_step

one_file = compute.load()
SIZES = {'d_model': 12, 'd_ff': 20, 'h': 3, 'd_k': 5, 'd_v': 4}
TOKENS, LENGTH, EPSILON_LS, WARMUP = 40, 8, 0.1, 300
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def rank_promotion():
  with jax.numpy_rank_promotion('allow'):  # which the package does without
    yield


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(seed)
  sentence = lambda: [*rng.integers(4, TOKENS, rng.integers(1, LENGTH)), one_file.EOS]
  sides = ([sentence() for _ in range(6)] for _ in range(2))
  return tuple(one_file.pad(side, LENGTH) for side in sides)


def test_ten_updates_are_equal():
  """So are the losses, and the gradients, of which Adam keeps the moments."""
  config = base.get_config()
  config.model.update(SIZES | {'N': 1, 'vocab_size': TOKENS, 'P_drop': 0.0})
  config.update({'dtype': 'float32', 'slices': 1, 'warmup_steps': WARMUP})
  graph, shapes = build.architecture(config)
  near_one = lambda path, x: x + (path[-1].key == 'scale')  # of the norms
  params = forms.random_like(shapes, 0.3)
  params = jax.tree_util.tree_map_with_path(near_one, params)
  devices = Devices(1, jax.devices()[:1])
  step = devices.pmap(make_step(config, graph, 1))
  state = TrainState(np.int32(0), params, adam(config).init(params))
  state = devices.replicate(state)
  theirs = one_file.adam(SIZES['d_model'], WARMUP)
  settings = {'optimizer': theirs, 'p_drop': 0.0, 'epsilon_ls': EPSILON_LS}
  simple = renamed(params)
  simple_state = theirs.init(simple)
  for number in range(10):
    source, target = batch(number)
    inputs = StepInput(source[None], target[None], np.zeros((1, 2), np.int32))
    state, sums = step(state, devices.split(inputs), np.int32(1))
    simple, simple_state, value = one_file.update(
      simple, simple_state, jax.random.key(0), source, target, **settings
    )
    close(sums.loss / sums.tokens, value)
  ours, (moments, *_) = jax.device_get((state.params, state.opt_state))
  jax.tree.map(close, renamed(ours), simple)
  for mine, other in (moments.mu, simple_state[0].mu), (moments.nu, simple_state[0].nu):
    jax.tree.map(functools.partial(close, atol=1e-7), renamed(mine), other)


def test_dropout_keeps_the_mean():
  """It sets a share of P_drop to 0, scales the others, and draws anew at each call."""
  drop = one_file.dropout(0.2, jax.random.key(0))
  first, second = drop(jnp.ones(10_000)), drop(jnp.ones(10_000))
  np.testing.assert_allclose(np.unique(first), [0, 1.25])
  assert abs((first == 0).mean() - 0.2) < 0.02
  assert ((first == 0) != (second == 0)).any()


@pytest.mark.parametrize('alpha', [0, 0.6, 2])
def test_search_finds_the_best_of_all_translations(alpha: float, monkeypatch):
  """A beam of all hypotheses; log P of a token is random given the earlier ones.

  PAD and BOS are likely: a search that did not exclude them would return them. With 4
  or 6 for the penalty's 5, another translation is the best at alpha 2.
  """
  W, limit = 6, 4

  def log_p(tokens: Sequence[int]) -> np.ndarray:
    logits = np.random.default_rng([*tokens, 207]).normal(size=W) * 2
    logits[[one_file.PAD, one_file.BOS]] += 2
    return logits - np.log(np.exp(logits).sum())

  def next_log_p(params, memory, hypotheses, length, beam):
    return np.array([log_p(row[:length]) for row in hypotheses])[None]

  def score(tokens: Sequence[int]) -> float:
    total = sum(log_p(tokens[:n])[token] for n, token in enumerate(tokens))
    return total / ((5 + len(tokens)) / 6) ** alpha

  monkeypatch.setattr(one_file, 'next_log_p', next_log_p)
  monkeypatch.setattr(one_file, 'encode', lambda params, source: source)
  translations = [
    [*words, one_file.EOS]
    for length in range(limit)
    for words in itertools.product(range(3, W), repeat=length)
  ]
  found = one_file.beam_search(None, np.array([[3, 4, 5, one_file.EOS]]), 64, alpha, 0)
  assert found == [max(translations, key=score)]
