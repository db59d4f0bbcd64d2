"""Models that are tables of logits, and searches over them.

Each sentence is a model of its own, a table of logits by position and prefix hash, so
a batch of sentences is a batch of models.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from toy.independent import BOS, EOS, PAD, Hypothesis
from transformer_jax.decoding.beam_search import Hypotheses, Search, gather

WORDS = 8
LENGTH = 10
CONTEXTS = 16
ALPHAS = (0.0, 0.25, 0.6, 0.8, 1.0, -0.5)  # below 0 is odd, but must be exact too
PER_ALPHA = 100


class Models(NamedTuple):
  logits: np.ndarray  # [B, LENGTH, CONTEXTS, WORDS] float32, -inf beyond a vocabulary
  limits: np.ndarray  # [B]


def random_models(count: int, seed: int, smallest: int = 5, largest: int = 8) -> Models:
  """Vocabularies of 5 to 8, flat and sharp, ending early or late; PAD, BOS likely."""
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(count, LENGTH, CONTEXTS, WORDS))
  logits *= rng.uniform(0.3, 3.0, size=(count, 1, 1, 1))
  logits[..., EOS] += rng.uniform(-3.0, 2.0, size=(count, 1, 1))
  vocabulary = rng.integers(smallest, largest + 1, size=(count, 1, 1, 1))
  logits = np.where(np.arange(WORDS) < vocabulary, logits, -np.inf)
  return Models(logits.astype(np.float32), rng.integers(1, LENGTH + 1, size=count))


@functools.cache
def all_models() -> Models:
  """Returns PER_ALPHA models for each of ALPHAS, in their order."""
  return random_models(PER_ALPHA * len(ALPHAS), seed=0)


def next_context(context, token):
  return (context * 5 + token * 3 + 1) % CONTEXTS


class BeamCache(NamedTuple):
  """A cache that is a state of each beam, and holds no positions."""

  state: jax.Array  # [B, K, ...]

  def reorder(self, parents: jax.Array) -> 'BeamCache':
    return gather(self, parents)

  def grow(self, length: int) -> 'BeamCache':
    return self


def table_step(tokens, position, cache, logits):
  """Is a step of a batch of models; the state is each beam's context."""
  contexts = jnp.where(position == 0, 0, next_context(cache.state, tokens))
  rows = logits[:, position]
  return jnp.take_along_axis(rows, contexts[..., None], axis=1), BeamCache(contexts)


@functools.cache
def program(
  beam: int, nbest: int | None = None, length: int = LENGTH
) -> Callable[[Models, float], Hypotheses]:
  """Returns a program that searches models with an alpha."""

  def run(models: Models, alpha: float) -> Hypotheses:
    logits, limits = map(jnp.asarray, models)
    search = Search(table_step, (length,), beam, nbest or beam, alpha, BOS, EOS, PAD)
    cache = BeamCache(jnp.zeros((len(limits), beam), jnp.int32))
    return search(cache, logits, limits)

  return jax.jit(run)


@functools.cache
def searched(beam: int, nbest: int | None = None) -> Hypotheses:
  """Searches all models, a batch for each alpha."""
  logits, limits = all_models()
  parts = [slice(i, i + PER_ALPHA) for i in range(0, len(limits), PER_ALPHA)]
  batches = [
    program(beam, nbest)(Models(logits[part], limits[part]), alpha)
    for part, alpha in zip(parts, ALPHAS, strict=True)
  ]
  return jax.tree.map(lambda *x: np.concatenate(x), *jax.device_get(batches))


def log_softmax(logits: np.ndarray) -> np.ndarray:
  logits = logits.astype(np.float64)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def listed(hypotheses: Hypotheses, sentence: int) -> list[Hypothesis]:
  """Returns a sentence's hypotheses without padding and missing ones."""
  entries = []
  for tokens, score, _, finished in zip(
    *(x[sentence] for x in hypotheses), strict=True
  ):
    if score > -math.inf:
      length = int((tokens != PAD).sum())
      entries.append((float(score), tuple(tokens[:length].tolist()), bool(finished)))
  return entries


def same(a: list[Hypothesis], b: list[Hypothesis]) -> bool:
  """Returns True for the same strings in the same order, scores within 1e-4."""
  return [x[1:] for x in a] == [x[1:] for x in b] and all(
    abs(x[0] - y[0]) < 1e-4 for x, y in zip(a, b, strict=True)
  )
