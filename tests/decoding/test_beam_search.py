"""The search equals brute force and a plain search that never stops early."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy.table_models import (
  ALPHAS,
  BOS,
  EOS,
  LENGTH,
  PAD,
  PER_ALPHA,
  WORDS,
  BeamCache,
  Models,
  all_models,
  compiled,
  differing,
  listed,
  log_softmax,
  next_context,
  random_models,
  same,
  search_all,
  searched,
  table_search,
  table_step,
)
from transformer_jax.decoding import beam_search
from transformer_jax.decoding.beam_search import (
  Hypotheses,
  Search,
  State,
  gather,
  length_penalty,
)


@pytest.mark.parametrize('beam', [1, 2, 4, 21])
def test_equals_plain_search_without_early_stop(beam: int):
  assert differing(searched(beam), beam) == 0


def first_finish(search: Search, state: State) -> jax.Array:
  ended = state.finished.scores[:, 0] > -jnp.inf
  return (state.position >= state.limits) | ended


def best_finished(search: Search, state: State) -> jax.Array:
  """Exact for the best, not for the K best."""
  penalty = length_penalty(state.limits, search.alpha)
  best = jnp.max(state.live_log_probs, axis=1) / penalty
  return (state.position >= state.limits) | (state.finished.scores[:, 0] >= best)


MUTANTS = [
  (Search, 'is_done', first_finish),
  (Search, 'is_done', best_finished),
  (beam_search, 'length_penalty', lambda length, alpha: jnp.ones(jnp.shape(length))),
  (beam_search, '_take', lambda state, rows: jax.tree.map(  # the first, done or not
    lambda x: x[: len(rows)] if x.ndim else x, state)),
  (beam_search, '_put', lambda state, rows, other: state),
]  # fmt: skip


@pytest.mark.parametrize(('owner', 'name', 'mutant'), MUTANTS)
def test_mutant_differs_from_plain_search(owner, name, mutant, monkeypatch):
  monkeypatch.setattr(owner, name, mutant)
  assert differing(search_all(beam=4), beam=4) > 10


def test_one_limit_for_the_batch_differs_from_plain_search():
  assert differing(search_all(beam=4, one_limit=True), beam=4) > 10


@pytest.mark.parametrize('alpha', [0.0, 0.6, 1.0])
def test_widest_beam_equals_brute_force(alpha: float):
  beam, longest = 31, 4  # two words: 15 finished strings and 16 cut ones
  models = random_models(40, seed=1, smallest=5, largest=5)
  models = models._replace(limits=1 + models.limits % longest)
  found = jax.device_get(compiled(beam, longest)(models, alpha))
  for i, (table, limit) in enumerate(zip(*models, strict=True)):
    strings = [
      words if length == limit else (*words, EOS)
      for length in range(limit + 1)
      for words in itertools.product((3, 4), repeat=length)
    ]
    entries = []
    for string in strings:
      score = string_log_prob(table, string) / ((5 + len(string)) / 6) ** alpha
      entries.append((score, string, string[-1] == EOS))
    entries.sort(key=lambda entry: (not entry[2], -entry[0]))
    assert same(listed(found, i), entries)


def string_log_prob(logits: np.ndarray, tokens: tuple[int, ...]) -> float:
  log_probs, total, context = log_softmax(logits), 0.0, 0
  for position, token in enumerate(tokens):
    total += log_probs[position, context, token]
    context = next_context(context, token)
  return total


def recurrent_search(memory: np.ndarray, limits: np.ndarray, length: int) -> Hypotheses:
  """A small recurrent net: memory [B, D] is constant, the hidden [B, 4, D] is not."""
  width = memory.shape[1]
  weights = jax.random.normal(jax.random.key(0), (WORDS + width + WORDS, width))
  embedding, recurrence, output = jnp.split(weights, [WORDS, WORDS + width])

  def step(tokens, position, cache, memory):
    hidden = cache.state @ recurrence / math.sqrt(width) + memory[:, None]
    hidden = jnp.tanh(hidden + embedding[tokens] + jnp.sin(position))
    logits = 2 * hidden @ output.T
    return logits.at[..., EOS].add(3 * position - 12), BeamCache(hidden)

  search = Search(step, (length,), 4, 4, 0.6, bos=BOS, eos=EOS, pad=PAD)
  hidden = jnp.zeros((len(memory), 4, width))
  run = jax.jit(lambda memory, limits: search(BeamCache(hidden), memory, limits))
  return jax.device_get(run(memory, limits))


def test_batch_size_and_padding_change_nothing():
  rng = np.random.default_rng(2)
  count, width = 24, 16
  memory = rng.normal(size=(count, width)).astype(np.float32)
  limits = rng.integers(1, 13, size=count)
  together = recurrent_search(memory, limits, 12)
  expected = [listed(together, i) for i in range(count)]
  assert len({len(e[0][1]) for e in expected}) > 4
  for size, padding, length in (1, 0, 12), (8, 4, 19):
    for i in range(0, count, size):
      rows = memory[i : i + size], limits[i : i + size]
      padded = np.pad(rows[0], ((padding, 0), (0, 0)), constant_values=1)
      found = recurrent_search(padded, np.pad(rows[1], (padding, 0)), length)
      for j in range(size):
        assert same(listed(found, padding + j), expected[i + j])


def test_beam_one_is_greedy():
  models = all_models()
  found = searched(beam=1)
  allowed = np.where(np.isin(np.arange(WORDS), (PAD, BOS)), -np.inf, models.logits)
  for i, limit in enumerate(models.limits):
    tokens, context = [], 0
    while len(tokens) < limit and tokens[-1:] != [EOS]:
      tokens.append(int(allowed[i, len(tokens), context].argmax()))
      context = next_context(context, tokens[-1])
    assert found.tokens[i, 0].tolist() == tokens + [PAD] * (LENGTH - len(tokens))
    assert found.finished[i, 0] == (tokens[-1] == EOS)


def steps_alone(nbest: int) -> int:
  """How many steps 200 sentences take, each alone, so that none waits for another."""
  steps = []

  def step(tokens, position, *state):
    jax.debug.callback(steps.append, position)
    return table_step(tokens, position, *state)

  search = table_search(4, nbest=nbest, step=step)
  alone = lambda logits: search(Models(logits[None], np.array([LENGTH])))
  jax.block_until_ready(jax.lax.map(alone, random_models(200, seed=4).logits))
  jax.effects_barrier()
  return len(steps)


def test_early_stop_saves_steps():
  """The fewer are asked for, the more. The plain search shows that nothing changes."""
  best, both, all_four = map(steps_alone, (1, 2, 4))
  assert 200 < best < both < all_four < 0.85 * LENGTH * 200


@pytest.mark.parametrize('nbest', [1, 2, 3])
def test_a_search_for_fewer_returns_the_first_of_all(nbest: int):
  fewer, every = search_all(4, nbest=nbest), searched(4)
  assert fewer.tokens.shape == (len(every.tokens), nbest, LENGTH)
  for i in range(len(every.tokens)):
    assert same(listed(fewer, i), listed(every, i)[:nbest])


def rows_and_result(models: Models) -> tuple[list[int], Hypotheses]:
  """The number of sentences in each step of a search, and what it returns."""
  rows = []

  def step(tokens, position, *state):
    jax.debug.callback(lambda _: rows.append(len(tokens)), position)
    return table_step(tokens, position, *state)

  result = jax.device_get(table_search(4, 2, LENGTH, nbest=1, step=step)(models))
  jax.effects_barrier()
  return rows, result


def test_the_last_quarter_goes_on_alone(monkeypatch: pytest.MonkeyPatch):
  """In fewer rows, with the same result; too few sentences stay together."""
  models = random_models(64, seed=6)
  rows, result = rows_and_result(models)
  monkeypatch.setattr(beam_search, 'FEWEST_ROWS', 17)
  all_rows, expected = rows_and_result(models)
  assert all_rows == [64] * len(rows) and {*rows} == {64, 16}
  jax.tree.map(np.testing.assert_array_equal, result, expected)


@pytest.mark.parametrize('beam', [1, 4, 21])
def test_hypotheses_are_well_formed(beam: int):
  """Nothing after EOS, no BOS, no PAD inside, within limits, in order."""
  found, limits = searched(beam), all_models().limits
  lengths = (found.tokens != PAD).sum(-1)
  positions = np.arange(LENGTH)
  assert ((found.tokens != PAD) == (positions < lengths[..., None])).all()
  assert (lengths <= limits[:, None]).all()
  assert not (found.tokens == BOS).any()
  ends = (found.tokens == EOS) & (positions == lengths[..., None] - 1)
  assert ((found.tokens == EOS) == ends).all()
  assert (ends.any(-1) == found.finished).all()
  missing = found.scores == -np.inf
  assert (missing == (lengths == 0)).all()
  assert (missing == (found.log_probs == -np.inf)).all()
  cut = ~missing & ~found.finished
  assert (lengths == limits[:, None])[cut].all()
  kind = np.where(found.finished, 0, np.where(missing, 2, 1))
  assert (np.diff(kind, axis=1) >= 0).all()
  earlier, later = found.scores[:, :-1], found.scores[:, 1:]
  assert (earlier >= later)[kind[:, :-1] == kind[:, 1:]].all()
  penalty = ((5 + lengths) / 6) ** np.repeat(ALPHAS, PER_ALPHA)[:, None]
  np.testing.assert_allclose(
    (found.scores * penalty)[~missing], found.log_probs[~missing], rtol=1e-5
  )


def chain_search(
  rows: list, beam: int, limits: list, alpha: float = 0.0, ids: tuple = (BOS, EOS, PAD)
) -> Hypotheses:
  """Searches a Markov chain; rows[previous] are the probabilities of the next token."""
  with np.errstate(divide='ignore'):
    logits = jnp.asarray(np.log(np.asarray(rows, np.float32)))
  step = lambda tokens, position, cache, memory: (logits[tokens], cache)
  search = Search(step, (5,), beam, beam, alpha, *ids)
  cache = BeamCache(jnp.zeros((len(limits), beam)))
  return jax.device_get(jax.jit(search)(cache, (), jnp.asarray(limits)))


def test_exact_ties_go_to_the_shorter_then_the_lower_token():
  word = [0, 0.5, 0, 0.25, 0.25]
  rows = [[0.2] * 5, [0.2] * 5, [0, 0, 0, 0.5, 0.5], word, word]
  strings = [(3, EOS), (4, EOS), (3, 3, EOS), (3, 4, EOS), (4, 3, EOS), (4, 4, EOS)]
  logs = [math.log(p) for p in (1 / 4, 1 / 4, 1 / 16, 1 / 16, 1 / 16, 1 / 16)]
  entries = [(p, s, True) for p, s in zip(logs, strings, strict=True)]
  for beam in 2, 6:
    found = chain_search(rows, beam, limits=[3, 3])
    assert same(listed(found, 0), entries[:beam])
    assert same(listed(found, 1), entries[:beam])
    assert found.scores[0, 0] == found.scores[0, 1]


def test_exact_tie_of_different_lengths():
  word = [0, 0.5, 0, 0, 0, 0.5]
  rows = [[0] * 6, [0] * 6, [0, 0, 0, 0.5, 0.5, 0], word, [0, 0, 0, 0, 0, 1], word]
  found = chain_search(rows, beam=2, limits=[3])  # 4 always goes on to 5
  quarter = math.log(1 / 4)
  expected = [(quarter, (3, EOS), True), (quarter, (4, 5, EOS), True)]
  assert same(listed(found, 0), expected)
  assert found.scores[0, 0] == found.scores[0, 1]


def test_a_hypothesis_may_still_win_by_growing():
  """Two have finished and lead the live one, whose penalty is yet to grow."""
  chain = np.zeros((8, 8))
  chain[BOS, [EOS, 3, 4]] = 0.38, 0.4, 0.22
  chain[[3, 4, 5, 6, 7], [EOS, 5, 6, 7, EOS]] = 1
  found = chain_search(chain.tolist(), beam=2, limits=[5], alpha=1.0)
  assert math.log(0.38) > math.log(0.22) * 6 / 8  # its score at the length of 3
  expected = [
    (math.log(0.4) * 6 / 7, (3, EOS), True),
    (math.log(0.22) * 6 / 10, (4, 5, 6, 7, EOS), True),
  ]
  assert same(listed(found, 0), expected)


def test_more_beams_than_continuations():
  rows = [[0.2, 0.2, 0.2, 0.3, 0.1]] * 5
  found = chain_search(rows, beam=21, limits=[1, 2])
  log = math.log
  first = [(log(0.2), (EOS,), True), (log(0.3), (3,), False), (log(0.1), (4,), False)]
  assert same(listed(found, 0), first)
  assert [len(listed(found, i)) for i in (0, 1)] == [3, 1 + 2 + 4]
  assert (found.tokens[0, 3:] == PAD).all()
  assert (found.log_probs[0, 3:] == -np.inf).all()


def test_pad_and_bos_count_in_the_softmax():
  rows = [[0.5, 0.125, 0.25, 0.0625, 0.0625]] * 5
  found = chain_search(rows, beam=1, limits=[3])
  assert same(listed(found, 0), [(math.log(0.125), (EOS,), True)])


def test_one_token_may_be_bos_and_eos_and_another_may_pad():
  rows = [[0.25, 0.5, 0.125, 0.125]] * 4
  found = chain_search(rows, beam=1, limits=[3], ids=(1, 1, 3))
  assert found.tokens.tolist() == [[[1, 3, 3, 3, 3]]]


def test_limits_of_nothing_and_beyond_the_longest_output():
  rows = [[0, 0.25, 0, 0.75, 0]] * 5
  found = chain_search(rows, beam=2, limits=[0, 9], alpha=0.6)
  assert listed(found, 0) == [(0.0, (), False)]
  assert listed(found, 1)[0][1:] == ((EOS,), True)
  found = chain_search(rows, beam=1, limits=[9])
  assert same(listed(found, 0), [(5 * math.log(0.75), (3,) * 5, False)])


def test_length_penalty_by_hand():
  assert length_penalty(1, 0.6) == length_penalty(50, 0.0) == 1
  assert length_penalty(19, 0.5) == length_penalty(7, 1.0) == 2


def test_the_cache_grows_and_nothing_changes():
  """A cache that holds the tokens so far, and must not be written beyond its end."""
  grown = []

  class TokenCache(NamedTuple):
    contexts: jax.Array
    tokens: jax.Array

    def reorder(self, parents: jax.Array) -> 'TokenCache':
      return gather(self, parents)

    def grow(self, length: int) -> 'TokenCache':
      grown.append(length)
      more = [(0, 0), (0, 0), (0, length - self.tokens.shape[2])]
      return self._replace(tokens=jnp.pad(self.tokens, more))

  def step(tokens: jax.Array, position: jax.Array, cache: TokenCache, logits: Any):
    logits, (contexts,) = table_step(
      tokens, position, BeamCache(cache.contexts), logits
    )
    written = cache.tokens.at[:, :, position].set(tokens, mode='drop')
    return logits, TokenCache(contexts, written)

  def run(*lengths: int) -> Hypotheses:
    logits, limits = map(jnp.asarray, random_models(100, seed=5))
    zeros = lambda *shape: jnp.zeros((100, 4, *shape), jnp.int32)
    search = Search(step, lengths, 4, 4, 0.6, bos=BOS, eos=EOS, pad=PAD)
    return search(TokenCache(zeros(), zeros(lengths[0])), logits, limits)

  jax.tree.map(np.testing.assert_array_equal, run(3, 4, LENGTH), run(LENGTH))
  assert grown == [4, LENGTH]
