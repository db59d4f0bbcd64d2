"""Beam search for any model that is a function step(tokens, position, cache, shared).

Section 6.1, after Wu et al. 2016 (GNMT).

Axes: B sentences, K beams, F hypotheses that are wanted of each sentence, W words of
the vocabulary, L longest output, C candidates.

A hypothesis Y is finished when it ends in EOS. Its score is log P(Y) / lp(|Y|), where
lp is GNMT's length penalty and |Y| counts EOS. Each step takes the C = 2K best
continuations of a sentence's live hypotheses, so that K live on even if K of them end.
Those that end compete for the sentence's F finished places. With K = 1 only the best
continuation is taken. That is greedy search, where alpha changes scores but no words.

The sentences of a batch are done after different numbers of steps. When no more than a
quarter of them is left, that quarter goes on without the others.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.model import ops

Cache = Any  # what a model remembers of the tokens so far: leaves [B, ...]
Shared = Any  # what all hypotheses of a sentence share: leaves [B, ...]
Step = Callable[[jax.Array, jax.Array, Cache, Shared], tuple[jax.Array, Cache]]

# The last quarter of a batch goes on alone only if it has so many sentences. It needs a
# loop of its own, and that takes time to compile.
FEWEST = 8


class Hypotheses(NamedTuple):
  """F hypotheses of each sentence: first those that are finished, then those cut.

  A hypothesis is cut if it reached its limit without EOS. Both kinds stand best first.
  Where a sentence has fewer than F hypotheses, the remaining places hold PAD alone with
  scores and log_probs of -inf.
  """

  tokens: jax.Array  # [B, F, L] int32: without BOS, with EOS if finished, then PAD
  scores: jax.Array  # [B, F] float32: log_probs / length_penalty
  log_probs: jax.Array  # [B, F] float32: log P(Y) under the softmax over all W words
  finished: jax.Array  # [B, F] bool: ends in EOS


class SearchState(NamedTuple):
  """The state of the loop; a sentence that is done keeps its hypotheses unchanged."""

  position: jax.Array  # [] int32: the number of tokens generated so far
  live: jax.Array  # [B, K, L] int32: the live hypotheses, best first
  live_log_probs: jax.Array  # [B, K] float32: -inf where there is none
  finished: Hypotheses  # the best finished so far
  done: jax.Array  # [B] bool
  cache: Cache


class Candidates(NamedTuple):
  """The best continuations of each sentence's live hypotheses, best first."""

  tokens: jax.Array  # [B, C, L] int32
  log_probs: jax.Array  # [B, C] float32
  ended: jax.Array  # [B, C] bool: the last token is EOS
  parents: jax.Array  # [B, C] int32: the beams they continue


def length_penalty(length: jax.Array | int, alpha: float) -> jax.Array | float:
  """Equation 14 of Wu et al. 2016 (GNMT); `length` counts EOS."""
  return ((5 + length) / 6) ** alpha


def beam_search(
  step: Step,
  cache: Cache,
  shared: Shared,
  limits: jax.Array,
  *,
  reorder: Callable[[Cache, jax.Array], Cache],
  grow: Callable[[Cache, int], Cache],
  lengths: Sequence[int],
  beam: int,
  nbest: int,
  alpha: float,
  bos: int,
  eos: int,
  pad: int = 0,
) -> Hypotheses:
  """Returns each sentence's `nbest` best hypotheses; L is the last of `lengths`.

  A sentence is done at its limit, or when none of its live hypotheses can enter its F
  finished ones any more. Stopping there is exact, and no sentence's result depends on
  the others. Of equal scores the shorter hypothesis comes first, then the one from the
  better beam, then the one with the lower token. PAD and BOS are never generated; they
  keep their share of the softmax, so that log P is the model's own.

  Args:
    step: takes tokens [B, K], their position [], the cache and `shared`; returns the
      logits [B, K, W] of the next token and the new cache. The first tokens are BOS, at
      position 0. It is also called with fewer sentences than B.
    cache: of lengths[0] positions.
    limits: [B], the most tokens a sentence may generate, EOS included, L at most; 0 for
      rows that pad a batch.
    reorder: takes the cache and parents [B, K]; returns the cache in which beam k is
      what beam parents[k] was, as `gather` does for leaves [B, K, ...].
    grow: takes the cache and one of `lengths`; returns a cache of so many positions.
    lengths: rising; the cache grows to the next one when it is full.
    nbest: F, `beam` at most. The fewer are wanted, the sooner a sentence is done.
  """
  limits = jnp.clip(limits, 0, lengths[-1])
  state = start(cache, limits, beam, nbest, lengths[-1], pad)
  go_on = functools.partial(advance, step, reorder, alpha, bos, eos, pad)
  quarter = limits.shape[0] // 4
  few = quarter if quarter >= FEWEST else 0
  state = search(go_on, grow, state, shared, limits, lengths, few)
  if few:
    finish = functools.partial(search, go_on, grow, lengths=lengths[-1:], few=0)
    state = finish_few(finish, state, shared, limits, few)
  return rank(state, limits, alpha, pad)


def start(
  cache: Cache, limits: jax.Array, beam: int, nbest: int, max_length: int, pad: int
) -> SearchState:
  """The first state: each sentence's first beam is the empty hypothesis, live."""
  batch = limits.shape[0]
  empty = lambda count: jnp.full((batch, count, max_length), pad, jnp.int32)
  none = lambda count: jnp.full((batch, count), -jnp.inf, jnp.float32)
  unfinished = jnp.zeros((batch, nbest), bool)
  return SearchState(
    position=jnp.int32(0),
    live=empty(beam),
    live_log_probs=none(beam).at[:, 0].set(0.0),
    finished=Hypotheses(empty(nbest), none(nbest), none(nbest), unfinished),
    done=limits == 0,
    cache=cache,
  )


def search(
  go_on: Callable[[SearchState, Shared, jax.Array], SearchState],
  grow: Callable[[Cache, int], Cache],
  state: SearchState,
  shared: Shared,
  limits: jax.Array,
  lengths: Sequence[int],
  few: int,
) -> SearchState:
  """Searches until at most `few` sentences are not done; the cache grows meanwhile.

  The state that is returned has a cache of lengths[-1] positions, even if the search
  is over before it is that long.
  """
  for length in lengths:
    if length > lengths[0]:
      state = state._replace(cache=grow(state.cache, length))
    state = lax.while_loop(
      functools.partial(_must_go_on, few, length),
      lambda state: go_on(state, shared, limits),
      state,
    )
  return state


def _must_go_on(few: int, length: int, state: SearchState) -> jax.Array:
  return (jnp.sum(~state.done) > few) & (state.position < length)


def finish_few(
  finish: Callable[[SearchState, Shared, jax.Array], SearchState],
  state: SearchState,
  shared: Shared,
  limits: jax.Array,
  few: int,
) -> SearchState:
  """Ends the search for `few` sentences, among them all that are not done.

  `finish` takes their part of the state, of `shared` and of `limits`. The state that is
  returned is of all sentences, and has no cache.
  """
  _, kept = lax.top_k((~state.done).astype(jnp.float32), few)
  of_all = state._replace(position=None)  # its other leaves are [B, ...]
  part, *given = jax.tree.map(lambda x: x[kept], (of_all, shared, limits))
  part = finish(part._replace(position=state.position), *given)
  return jax.tree.map(
    lambda whole, found: whole.at[kept].set(found),
    of_all._replace(cache=None),
    part._replace(position=None, cache=None),
  )._replace(position=part.position)


def advance(
  step: Step,
  reorder: Callable[[Cache, jax.Array], Cache],
  alpha: float,
  bos: int,
  eos: int,
  pad: int,
  state: SearchState,
  shared: Shared,
  limits: jax.Array,
) -> SearchState:
  """One step: each live hypothesis grows by a token, if its sentence is not done."""
  last = lax.dynamic_index_in_dim(
    state.live, jnp.maximum(state.position - 1, 0), axis=2, keepdims=False
  )
  tokens = jnp.where(state.position == 0, bos, last)
  logits, cache = step(tokens, state.position, state.cache, shared)
  candidates = expand(state, logits, bos, eos, pad)
  live, live_log_probs, parents = keep_live(candidates, logits.shape[1])
  finished = keep_finished(state, candidates, alpha)
  live, live_log_probs, finished = jax.tree.map(
    lambda old, new: jax.vmap(jnp.where)(state.done, old, new),
    (state.live, state.live_log_probs, state.finished),
    (live, live_log_probs, finished),
  )
  state = SearchState(
    position=state.position + 1,
    live=live,
    live_log_probs=live_log_probs,
    finished=finished,
    done=state.done,
    cache=reorder(cache, parents),
  )
  return state._replace(done=state.done | is_done(state, limits, alpha))


def expand(
  state: SearchState, logits: jax.Array, bos: int, eos: int, pad: int
) -> Candidates:
  """The C best of K * W continuations; logits [B, K, W]."""
  batch, beam, vocabulary = logits.shape
  count = 2 * beam if beam > 1 else 1
  # C words of a beam are enough; PAD and BOS may be two more.
  per_beam = min(count + 2, vocabulary)
  best, words, normalizer = ops.top_tokens(logits.astype(jnp.float32), per_beam)
  never = ((words == pad) | (words == bos)) & (words != eos)
  log_probs = jnp.where(never, -jnp.inf, best) - normalizer[..., None]
  log_probs = (state.live_log_probs[..., None] + log_probs).reshape(batch, -1)
  log_probs, chosen = lax.top_k(log_probs, count)
  words = gather(words.reshape(batch, -1), chosen)
  parents = chosen // per_beam
  tokens = gather(state.live, parents).at[:, :, state.position].set(words)
  return Candidates(tokens, log_probs, words == eos, parents)


def keep_live(
  candidates: Candidates, beam: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The K best that have not ended: tokens [B, K, L], log_probs, parents [B, K]."""
  log_probs = jnp.where(candidates.ended, -jnp.inf, candidates.log_probs)
  log_probs, kept = lax.top_k(log_probs, beam)
  tokens, parents = gather((candidates.tokens, candidates.parents), kept)
  return tokens, log_probs, parents


def keep_finished(
  state: SearchState, candidates: Candidates, alpha: float
) -> Hypotheses:
  """The F best by score of the finished so far and the candidates that ended."""
  log_probs = jnp.where(candidates.ended, candidates.log_probs, -jnp.inf)
  scores = log_probs / length_penalty(state.position + 1, alpha)
  ended = Hypotheses(candidates.tokens, scores, log_probs, log_probs > -jnp.inf)
  # The old come first: top_k prefers the lower index, so an equal score is no gain.
  both = _concatenate(state.finished, ended)
  _, kept = lax.top_k(both.scores, state.finished.scores.shape[1])
  return gather(both, kept)


def is_done(state: SearchState, limits: jax.Array, alpha: float) -> jax.Array:
  """[B] bool: at its limit, or no live hypothesis can enter the F finished ones.

  As a hypothesis grows, log P only falls and lp is monotone. So the best score that a
  live hypothesis can reach is its present log P over the largest lp ahead of it.
  """
  ahead = jnp.maximum(
    length_penalty(state.position + 1, alpha), length_penalty(limits, alpha)
  )
  reachable = jnp.max(state.live_log_probs, axis=1) / ahead
  return (state.position >= limits) | (state.finished.scores[:, -1] >= reachable)


def rank(state: SearchState, limits: jax.Array, alpha: float, pad: int) -> Hypotheses:
  """F hypotheses: the finished ones, then the live ones as cut, then empty places."""
  nbest = state.finished.scores.shape[1]
  cut = Hypotheses(
    tokens=state.live,
    scores=state.live_log_probs / length_penalty(limits, alpha)[:, None],
    log_probs=state.live_log_probs,
    finished=jnp.zeros(state.live_log_probs.shape, bool),
  )
  # A sentence that is done before its limit has F finished hypotheses or none live.
  both = _concatenate(state.finished, cut)
  there = both.log_probs > -jnp.inf
  kind = jnp.where(both.finished, 0, jnp.where(there, 1, 2))
  best = gather(both, jnp.argsort(kind, axis=1, stable=True)[:, :nbest])
  # Empty places hold leftovers of the search if top_k breaks ties in another order.
  there = best.log_probs > -jnp.inf
  return best._replace(tokens=jnp.where(there[..., None], best.tokens, pad))


def gather(tree: Any, index: jax.Array) -> Any:
  """Takes the places `index` [B, M] of leaves [B, N, ...]; returns [B, M, ...]."""
  return jax.tree.map(lambda leaf: jax.vmap(lambda row, i: row[i])(leaf, index), tree)


def _concatenate(first: Hypotheses, second: Hypotheses) -> Hypotheses:
  return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
