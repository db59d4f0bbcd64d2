"""A run whose parameters are random, which tests of decoding share."""

import pathlib
from collections.abc import Callable

import jax
import numpy as np
import pytest
from flax import nnx

import transformer_jax
from toy import untrained
from transformer_jax.data.vocabulary import PAD
from transformer_jax.decoding.loaded_run import LoadedRun

LogProbs = Callable[[list[int], list[int]], np.ndarray]


@pytest.fixture(scope='session')
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('trained')
  return untrained.write(folder, **{'model.N': 1, 'bleu_sentences': 9})


@pytest.fixture(scope='session')
def model(workdir: pathlib.Path) -> LoadedRun:
  return transformer_jax.load(str(workdir))


@pytest.fixture(scope='session')
def log_probs(model: LoadedRun) -> LogProbs:
  """Computes log P of each target id of one pair alone, by teacher forcing."""
  forward = lambda params, *ids: nnx.merge(model.graph, params)(*ids).logits[0]
  logits_of = jax.jit(forward)

  def of_pair(*pair: list[int]) -> np.ndarray:
    padded = [np.array([ids + [PAD] * (40 - len(ids))]) for ids in pair]
    logits = np.asarray(logits_of(model.params, *padded), np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p[np.arange(len(pair[1])), pair[1]]

  return of_pair
