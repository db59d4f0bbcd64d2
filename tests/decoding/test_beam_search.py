"""The search equals brute force and a plain search that never stops early."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy import table_models as tables
from toy.independent import plain_search
from toy.table_models import BOS, EOS, LENGTH, PAD
from transformer_jax.decoding.beam_search import Search


@pytest.mark.parametrize('beam', [1, 4, pytest.param(21, marks=pytest.mark.slow)])
def test_equals_plain_search_without_early_stop(beam: int):
  models, hypotheses = tables.all_models(), tables.searched(beam)
  log_probs = tables.log_softmax(models.logits).tolist()
  alphas = np.repeat(tables.ALPHAS, tables.PER_ALPHA)
  context = lambda tokens: functools.reduce(tables.next_context, tokens, 0)
  clear = 0
  for i, (rows, limit) in enumerate(zip(log_probs, models.limits, strict=True)):
    after = lambda texts, rows=rows: [rows[len(y)][context(y)] for y in texts]
    expected, margin = plain_search(after, limit, beam, alphas[i])
    if margin > 1e-5:  # a narrower decision may fall either way in float32
      clear += 1
      assert tables.same(tables.listed(hypotheses, i), expected)
  assert clear > 0.99 * len(alphas)


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
  search = Search(tables.table_step, (LENGTH,), 4, nbest, 0.6, BOS, EOS, PAD)

  def steps(logits: jax.Array) -> jax.Array:
    cache = tables.BeamCache(jnp.zeros((1, 4), jnp.int32))
    start = search.start(cache, logits[None], jnp.array([LENGTH]))
    return search.run(start, LENGTH, 0).position

  logits = tables.random_models(200, seed=4).logits
  return int(jax.jit(lambda logits: jax.lax.map(steps, logits))(logits).sum())


def test_early_stop_saves_steps():
  """More of them for fewer hypotheses; the plain search has the same results."""
  best, all_four = map(steps_alone, (1, 4))
  assert 200 < best < all_four < 0.85 * LENGTH * 200


def test_a_search_for_fewer_returns_the_first_of_all():
  fewer, every = tables.searched(4, nbest=2), tables.searched(4)
  assert fewer.tokens.shape == (len(every.tokens), 2, LENGTH)
  for i in range(len(every.tokens)):
    assert tables.same(tables.listed(fewer, i), tables.listed(every, i)[:2])
