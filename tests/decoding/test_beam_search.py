"""The search equals brute force and a plain search that never stops early."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy import table_models as tables
from toy.table_models import BOS, EOS, LENGTH, PAD
from transformer_jax.decoding.beam_search import Hypotheses, Search


@pytest.mark.parametrize('beam', [1, 4, pytest.param(21, marks=pytest.mark.slow)])
def test_equals_plain_search_without_early_stop(beam: int):
  assert tables.differing(tables.searched(beam), beam) == 0


@pytest.mark.parametrize('alpha', [0.0, 0.6, 1.0])
def test_widest_beam_equals_brute_force(alpha: float):
  beam, longest = 31, 4  # two words: 15 finished strings and 16 cut ones
  models = tables.random_models(40, seed=1, smallest=5, largest=5)
  models = models._replace(limits=1 + models.limits % longest)
  hypotheses = jax.device_get(tables.program(beam, length=longest)(models, alpha))
  for i, (table, limit) in enumerate(zip(*models, strict=True)):
    strings = [
      words if length == limit else (*words, EOS)
      for length in range(limit + 1)
      for words in itertools.product((3, 4), repeat=length)
    ]
    entries, log_probs = [], tables.log_softmax(table)
    for string in strings:
      contexts = itertools.accumulate(string, tables.next_context, initial=0)
      steps = zip(range(limit), contexts, string, strict=False)
      score = sum(log_probs[step] for step in steps) / ((5 + len(string)) / 6) ** alpha
      entries.append((score, string, string[-1] == EOS))
    entries.sort(key=lambda entry: (not entry[2], -entry[0]))
    assert tables.same(tables.listed(hypotheses, i), entries)


def steps_alone(nbest: int) -> int:
  """Returns how many steps 200 sentences take if each is searched alone."""
  steps = []

  def step(tokens, position, *state):
    jax.debug.callback(steps.append, position)
    return tables.table_step(tokens, position, *state)

  search = tables.table_search(4, nbest=nbest, step=step)
  alone = lambda logits: search(tables.Models(logits[None], np.array([LENGTH])))
  each = jax.jit(lambda logits: jax.lax.map(alone, logits))
  jax.block_until_ready(each(tables.random_models(200, seed=4).logits))
  jax.effects_barrier()
  return len(steps)


def test_early_stop_saves_steps():
  """More of them for fewer hypotheses; the plain search has the same results."""
  best, all_four = map(steps_alone, (1, 4))
  assert 200 < best < all_four < 0.85 * LENGTH * 200


def test_a_search_for_fewer_returns_the_first_of_all():
  fewer, every = tables.searched(4, nbest=2), tables.searched(4)
  assert fewer.tokens.shape == (len(every.tokens), 2, LENGTH)
  for i in range(len(every.tokens)):
    assert tables.same(tables.listed(fewer, i), tables.listed(every, i)[:2])


def test_log_probabilities_are_scores_without_the_penalty():
  hypotheses = tables.searched(4)
  lengths = (hypotheses.tokens != PAD).sum(-1)
  penalty = ((5 + lengths) / 6) ** np.repeat(tables.ALPHAS, tables.PER_ALPHA)[:, None]
  expected = np.where(lengths == 0, -np.inf, hypotheses.scores * penalty)
  np.testing.assert_allclose(hypotheses.log_probs, expected, rtol=1e-5)


def chain_search(rows: list, beam: int, limits: list, alpha: float = 0.0) -> Hypotheses:
  """Searches a Markov chain; rows[previous] are the probabilities of the next token."""
  with np.errstate(divide='ignore'):
    logits = jnp.asarray(np.log(np.asarray(rows, np.float32)))
  step = lambda tokens, position, cache, memory: (logits[tokens], cache)
  search = Search(step, (5,), beam, beam, alpha, BOS, EOS, PAD)
  cache = tables.BeamCache(jnp.zeros((len(limits), beam)))
  return jax.device_get(jax.jit(search)(cache, (), jnp.asarray(limits)))


def test_exact_ties_go_to_the_shorter_then_the_lower_token():
  word = [0, 0.5, 0, 0.25, 0.25]
  rows = [[0.2] * 5, [0.2] * 5, [0, 0, 0, 0.5, 0.5], word, word]
  strings = [(3, EOS), (4, EOS), (3, 3, EOS), (3, 4, EOS), (4, 3, EOS), (4, 4, EOS)]
  logs = [math.log(p) for p in (1 / 4, 1 / 4, 1 / 16, 1 / 16, 1 / 16, 1 / 16)]
  entries = [(p, s, True) for p, s in zip(logs, strings, strict=True)]
  for beam in 2, 6:
    hypotheses = chain_search(rows, beam, limits=[3, 3])
    for sentence in 0, 1:
      assert tables.same(tables.listed(hypotheses, sentence), entries[:beam])
    assert hypotheses.scores[0, 0] == hypotheses.scores[0, 1]


def test_limits_of_nothing_and_beyond_the_longest_output():
  rows = [[0, 0.25, 0, 0.75, 0]] * 5
  hypotheses = chain_search(rows, beam=2, limits=[0, 9], alpha=0.6)
  assert tables.listed(hypotheses, 0) == [(0.0, (), False)]
  assert tables.listed(hypotheses, 1)[0][1:] == ((EOS,), True)
  hypotheses = chain_search(rows, beam=1, limits=[9])
  assert tables.same(
    tables.listed(hypotheses, 0), [(5 * math.log(0.75), (3,) * 5, False)]
  )
