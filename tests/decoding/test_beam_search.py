"""The search equals brute force and a plain search that never stops early."""

import functools
import itertools
import math

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
  Models,
  all_models,
  as_it_is,
  compiled,
  differing,
  listed,
  log_softmax,
  next_context,
  random_models,
  same,
  search_all,
  searched,
  table_step,
)
from transformer_jax.decoding import beam_search as module
from transformer_jax.decoding.beam_search import (
  Hypotheses,
  beam_search,
  finish_few,
  length_penalty,
)


@pytest.mark.parametrize('beam', [1, 2, 4, 21])
def test_equals_plain_search_without_early_stop(beam):
  assert differing(searched(beam), beam) == 0


def first_finish(state, limits, alpha):
  return (state.position >= limits) | (state.finished.scores[:, 0] > -jnp.inf)


def best_finished(state, limits, alpha):  # exact for the best, not for the K best
  best = jnp.max(state.live_log_probs, axis=1) / length_penalty(limits, alpha)
  return (state.position >= limits) | (state.finished.scores[:, 0] >= best)


def no_penalty(length, alpha):
  return jnp.ones(jnp.shape(length))


@pytest.mark.parametrize('mutant', [no_penalty, first_finish, best_finished])
def test_mutant_differs_from_plain_search(monkeypatch, mutant):
  name = 'length_penalty' if mutant is no_penalty else 'is_done'
  monkeypatch.setattr(module, name, mutant)
  assert differing(search_all(beam=4), beam=4) > 10


def test_one_limit_for_the_batch_differs_from_plain_search():
  assert differing(search_all(beam=4, one_limit=True), beam=4) > 10


@pytest.mark.parametrize('alpha', [0.0, 0.6, 1.0])
def test_widest_beam_equals_brute_force(alpha):
  beam, longest = 31, 4  # two words: 15 finished strings and 16 cut ones
  models = random_models(40, seed=1, smallest=5, largest=5)
  models = models._replace(limits=1 + models.limits % longest)
  found = jax.device_get(compiled(beam, longest)(*models, alpha))
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


@functools.partial(jax.jit, static_argnames='max_length')
def recurrent_search(memory, limits, max_length=12) -> Hypotheses:
  """A small recurrent net: memory [B, D] is constant, the cache [B, 4, D] is not."""
  width = memory.shape[1]
  weights = jax.random.normal(jax.random.key(0), (WORDS + width + WORDS, width))
  embedding, recurrence, output = jnp.split(weights, [WORDS, WORDS + width])

  def step(tokens, position, hidden, memory):
    hidden = hidden @ recurrence / math.sqrt(width) + memory[:, None]
    hidden = jnp.tanh(hidden + embedding[tokens] + jnp.sin(position))
    logits = 2 * hidden @ output.T
    return logits.at[..., EOS].add(3 * position - 12), hidden

  hidden = jnp.zeros((len(memory), 4, width))
  options = dict(beam=4, nbest=4, alpha=0.6, bos=BOS, eos=EOS, lengths=(max_length,))
  options |= dict(reorder=module.gather, grow=as_it_is)
  return beam_search(step, hidden, memory, limits, **options)


def test_batch_size_and_padding_change_nothing():
  rng = np.random.default_rng(2)
  count, width = 24, 16
  memory = rng.normal(size=(count, width)).astype(np.float32)
  limits = rng.integers(1, 13, size=count)
  together = jax.device_get(recurrent_search(memory, limits))
  expected = [listed(together, i) for i in range(count)]
  assert len({len(e[0][1]) for e in expected}) > 4

  for size, padding, max_length in (1, 0, 12), (3, 4, 19):
    for i in range(0, count, size):
      batch = np.concatenate([np.ones((padding, width)), memory[i : i + size]])
      most = np.concatenate([np.zeros(padding, int), limits[i : i + size]])
      found = recurrent_search(batch.astype(np.float32), most, max_length)
      found = jax.device_get(found)
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
  logits, steps = random_models(200, seed=4).logits, []

  def step(tokens, position, contexts, logits):
    jax.debug.callback(steps.append, position)
    return table_step(tokens, position, contexts, logits)

  def alone(logits: jax.Array) -> Hypotheses:
    contexts, limits = jnp.zeros((1, 4), jnp.int32), jnp.array([LENGTH])
    options = dict(beam=4, nbest=nbest, alpha=0.6, bos=BOS, eos=EOS, lengths=(LENGTH,))
    options |= dict(reorder=module.gather, grow=as_it_is)
    return beam_search(step, contexts, logits[None], limits, **options)

  jax.block_until_ready(jax.lax.map(alone, logits))
  jax.effects_barrier()
  return len(steps)


def test_early_stop_saves_steps():
  """The fewer are wanted, the more so. That nothing changes, the plain search shows."""
  best, both, all_four = map(steps_alone, (1, 2, 4))
  assert 200 < best < both < all_four < 0.85 * LENGTH * 200


@pytest.mark.parametrize('nbest', [1, 2, 3])
def test_the_fewer_that_are_wanted_are_the_first_of_all(nbest: int):
  wanted, every = search_all(4, nbest=nbest), searched(4)
  assert wanted.tokens.shape == (len(every.tokens), nbest, LENGTH)
  for i in range(len(every.tokens)):
    assert same(listed(wanted, i), listed(every, i)[:nbest])


def rows_and_result(models: Models) -> tuple[list[int], Hypotheses]:
  """The number of sentences in each step of a search, and what it finds."""
  rows = []

  def step(tokens, position, contexts, logits):
    jax.debug.callback(lambda _: rows.append(len(tokens)), position)
    return table_step(tokens, position, contexts, logits)

  contexts = jnp.zeros((len(models.limits), 4), jnp.int32)
  options = dict(beam=4, nbest=1, alpha=0.6, bos=BOS, eos=EOS, lengths=(2, LENGTH))
  options |= dict(reorder=module.gather, grow=as_it_is)
  given = jnp.asarray(models.logits), jnp.asarray(models.limits)
  found = jax.device_get(beam_search(step, contexts, *given, **options))
  jax.effects_barrier()
  return rows, found


def test_the_last_quarter_goes_on_alone(monkeypatch: pytest.MonkeyPatch):
  """In fewer rows, with the same result; too few sentences stay together."""
  models = random_models(64, seed=6)
  rows, found = rows_and_result(models)
  monkeypatch.setattr(module, 'FEWEST', 17)
  all_rows, expected = rows_and_result(models)
  assert all_rows == [64] * len(rows)
  assert {*rows} == {64, 16}
  for ours, theirs in zip(found, expected, strict=True):
    np.testing.assert_array_equal(ours, theirs)


def only_some(rest, state, shared, limits, left):
  """A mutant of finish_few(): the first sentences go on, done or not."""
  none_done = state._replace(done=jnp.zeros_like(state.done))
  return finish_few(rest, none_done, shared, limits, left)


def none_at_all(rest, state, shared, limits, left):
  return state


@pytest.mark.parametrize('mutant', [only_some, none_at_all])
def test_mutants_of_apart_differ_from_plain_search(monkeypatch, mutant):
  monkeypatch.setattr(module, 'finish_few', mutant)
  assert differing(search_all(beam=4), beam=4) > 10


@pytest.mark.parametrize('beam', [1, 4, 21])
def test_hypotheses_are_well_formed(beam):
  """Nothing after EOS, no BOS, no PAD inside, within limits, in order."""
  found, limits = searched(beam), all_models().limits
  lengths = (found.tokens != PAD).sum(-1)
  places = np.arange(LENGTH)
  assert ((found.tokens != PAD) == (places < lengths[..., None])).all()
  assert (lengths <= limits[:, None]).all()
  assert not (found.tokens == BOS).any()
  ends = (found.tokens == EOS) & (places == lengths[..., None] - 1)
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


@functools.partial(jax.jit, static_argnames=('beam', 'max_length'))
def chain_run(logits, limits, alpha, beam, bos, eos, pad, max_length=5) -> Hypotheses:
  def step(tokens, position, cache, shared):
    return logits[tokens], cache

  ids = dict(bos=bos, eos=eos, pad=pad)
  options = dict(beam=beam, nbest=beam, alpha=alpha, lengths=(max_length,))
  options |= dict(reorder=module.gather, grow=as_it_is)
  return beam_search(step, {}, {}, limits, **options, **ids)


def chain_search(
  rows: list, beam: int, limits: list, alpha: float = 0.0, ids: tuple = (BOS, EOS, PAD)
) -> Hypotheses:
  """Searches a Markov chain; rows[previous] are the probabilities of the next word."""
  with np.errstate(divide='ignore'):
    logits = np.log(np.asarray(rows, np.float32))
  return jax.device_get(chain_run(logits, np.asarray(limits), alpha, beam, *ids))


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
  assert same(
    listed(found, 0), [(quarter, (3, EOS), True), (quarter, (4, 5, EOS), True)]
  )
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


def test_pad_and_bos_keep_their_share_of_the_softmax():
  rows = [[0.5, 0.125, 0.25, 0.0625, 0.0625]] * 5
  found = chain_search(rows, beam=1, limits=[3])
  assert same(listed(found, 0), [(math.log(0.125), (EOS,), True)])


def test_one_token_may_be_bos_and_eos_and_another_may_pad():
  rows = [[0.25, 0.5, 0.125, 0.125]] * 4
  found = chain_search(rows, beam=1, limits=[3], ids=(1, 1, 3))
  assert found.tokens.tolist() == [[[1, 3, 3, 3, 3]]]


def test_limits_of_nothing_and_beyond_max_length():
  rows = [[0, 0.25, 0, 0.75, 0]] * 5
  found = chain_search(rows, beam=2, limits=[0, 9], alpha=0.6)
  assert listed(found, 0) == [(0.0, (), False)]
  assert listed(found, 1)[0][1:] == ((EOS,), True)
  found = chain_search(rows, beam=1, limits=[9])
  assert same(listed(found, 0), [(5 * math.log(0.75), (3,) * 5, False)])


def test_length_penalty_by_hand():
  assert length_penalty(1, 0.6) == 1
  assert length_penalty(19, 0.5) == 2
  assert length_penalty(50, 0.0) == 1
  assert length_penalty(7, 1.0) == 2


def test_the_cache_grows_and_nothing_changes():
  """A cache that holds the tokens so far, and must not be written beyond its end."""
  models = random_models(100, seed=5)
  grown = []

  def step(tokens, position, cache, logits):
    contexts, fed = cache
    logits, contexts = table_step(tokens, position, contexts, logits)
    return logits, (contexts, fed.at[:, :, position].set(tokens, mode='drop'))

  def grow(cache, length):
    grown.append(length)
    more = [(0, 0), (0, 0), (0, length - cache[1].shape[2])]
    return cache[0], jnp.pad(cache[1], more)

  def run(*lengths):
    cache = jnp.zeros((100, 4), jnp.int32), jnp.zeros((100, 4, lengths[0]), jnp.int32)
    options = dict(beam=4, nbest=4, alpha=0.6, bos=BOS, eos=EOS, lengths=lengths)
    options |= dict(reorder=module.gather, grow=grow)
    given = jnp.asarray(models.logits), jnp.asarray(models.limits)
    return beam_search(step, cache, *given, **options)

  expected, found = run(LENGTH), run(3, 4, LENGTH)
  assert grown == [4, LENGTH]
  assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
