"""Beam search for any model that is a function step(tokens, position, cache).

Section 6.1, after Wu et al. 2016 (GNMT).

Axes: B sentences, K beams, W words of the vocabulary, L longest output, C candidates.

A hypothesis Y is finished when it ends in EOS. Its score is log P(Y) / lp(|Y|), where
lp is GNMT's length penalty and |Y| counts EOS. Each step takes the C = 2K best
continuations of a sentence's live hypotheses, so that K live on even if K of them end.
Those that end compete for the sentence's K finished places. With K = 1 only the best
continuation is taken. That is greedy search, where alpha changes scores but no words.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.model import ops

Cache = Any  # what a model remembers of the tokens so far
Step = Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]


class Hypotheses(NamedTuple):
  """K hypotheses of each sentence: first those that are finished, then those cut.

  A hypothesis is cut if it reached its limit without EOS. Both kinds stand best first.
  Where a sentence has fewer than K hypotheses, the remaining places hold PAD alone with
  scores and log_probs of -inf.
  """

  tokens: jax.Array  # [B, K, L] int32: without BOS, with EOS if finished, then PAD
  scores: jax.Array  # [B, K] float32: log_probs / length_penalty
  log_probs: jax.Array  # [B, K] float32: log P(Y) under the softmax over all W words
  finished: jax.Array  # [B, K] bool: ends in EOS


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
  limits: jax.Array,
  *,
  reorder: Callable[[Cache, jax.Array], Cache],
  grow: Callable[[Cache, int], Cache],
  lengths: Sequence[int],
  beam: int,
  alpha: float,
  bos: int,
  eos: int,
  pad: int = 0,
) -> Hypotheses:
  """Returns each sentence's `beam` best hypotheses; L is the last of `lengths`.

  A sentence is done at its limit, or when none of its live hypotheses can enter its K
  finished ones any more. Stopping there is exact, and no sentence's result depends on
  the others. Of equal scores the shorter hypothesis comes first, then the one from the
  better beam, then the one with the lower token. PAD and BOS are never generated; they
  keep their share of the softmax, so that log P is the model's own.

  Args:
    step: takes tokens [B, K], their position [] and the cache; returns the logits
      [B, K, W] of the next token and the new cache. The first tokens are BOS, at
      position 0. What all beams of a sentence share belongs in step's closure.
    cache: of lengths[0] positions.
    limits: [B], the most tokens a sentence may generate, EOS included, L at most; 0 for
      rows that pad a batch.
    reorder: takes the cache and parents [B, K]; returns the cache in which beam k is
      what beam parents[k] was, as `gather` does for leaves [B, K, ...].
    grow: takes the cache and one of `lengths`; returns a cache of so many positions.
    lengths: rising; the cache grows to the next one when it is full.
  """
  limits = jnp.clip(limits, 0, lengths[-1])
  state = start(cache, limits, beam, lengths[-1], pad)
  for length in lengths:
    if length > lengths[0]:
      state = state._replace(cache=grow(state.cache, length))
    state = search(step, reorder, state, limits, length, alpha, bos, eos, pad)
  return rank(state, limits, alpha, pad)


def start(
  cache: Cache, limits: jax.Array, beam: int, max_length: int, pad: int
) -> SearchState:
  """The first state: each sentence's first beam is the empty hypothesis, live."""
  batch = limits.shape[0]
  none = jnp.full((batch, beam), -jnp.inf, jnp.float32)
  empty = jnp.full((batch, beam, max_length), pad, jnp.int32)
  return SearchState(
    position=jnp.int32(0),
    live=empty,
    live_log_probs=none.at[:, 0].set(0.0),
    finished=Hypotheses(empty, none, none, jnp.zeros((batch, beam), bool)),
    done=limits == 0,
    cache=cache,
  )


def search(
  step: Step,
  reorder: Callable[[Cache, jax.Array], Cache],
  state: SearchState,
  limits: jax.Array,
  length: int,
  alpha: float,
  bos: int,
  eos: int,
  pad: int,
) -> SearchState:
  """Runs `step` until every sentence is done or has `length` tokens."""

  def advance(state: SearchState) -> SearchState:
    last = lax.dynamic_index_in_dim(
      state.live, jnp.maximum(state.position - 1, 0), axis=2, keepdims=False
    )
    tokens = jnp.where(state.position == 0, bos, last)
    logits, cache = step(tokens, state.position, state.cache)
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

  going = lambda state: ~jnp.all(state.done) & (state.position < length)
  return lax.while_loop(going, advance, state)


def expand(
  state: SearchState, logits: jax.Array, bos: int, eos: int, pad: int
) -> Candidates:
  """The C best of K * W continuations; logits [B, K, W]."""
  batch, beam, vocabulary = logits.shape
  count = 2 * beam if beam > 1 else 1
  # C words of a beam are enough; PAD and BOS may be two more.
  per_beam = min(count + 2, vocabulary)
  best, words, normalizer = ops.best_words(logits.astype(jnp.float32), per_beam)
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
  """The K best by score of the finished so far and the candidates that ended."""
  log_probs = jnp.where(candidates.ended, candidates.log_probs, -jnp.inf)
  scores = log_probs / length_penalty(state.position + 1, alpha)
  ended = Hypotheses(candidates.tokens, scores, log_probs, log_probs > -jnp.inf)
  # The old come first: top_k prefers the lower index, so an equal score is no gain.
  both = _concatenate(state.finished, ended)
  _, kept = lax.top_k(both.scores, state.live.shape[1])
  return gather(both, kept)


def is_done(state: SearchState, limits: jax.Array, alpha: float) -> jax.Array:
  """[B] bool: at its limit, or no live hypothesis can enter the K finished ones.

  As a hypothesis grows, log P only falls and lp is monotone. So the best score that a
  live hypothesis can reach is its present log P over the largest lp ahead of it.
  """
  ahead = jnp.maximum(
    length_penalty(state.position + 1, alpha), length_penalty(limits, alpha)
  )
  reachable = jnp.max(state.live_log_probs, axis=1) / ahead
  return (state.position >= limits) | (state.finished.scores[:, -1] >= reachable)


def rank(state: SearchState, limits: jax.Array, alpha: float, pad: int) -> Hypotheses:
  """K hypotheses: the finished ones, then the live ones as cut, then empty places."""
  beam = state.live.shape[1]
  cut = Hypotheses(
    tokens=state.live,
    scores=state.live_log_probs / length_penalty(limits, alpha)[:, None],
    log_probs=state.live_log_probs,
    finished=jnp.zeros(state.live_log_probs.shape, bool),
  )
  # A sentence that is done before its limit has K finished hypotheses or none live.
  both = _concatenate(state.finished, cut)
  there = both.log_probs > -jnp.inf
  kind = jnp.where(both.finished, 0, jnp.where(there, 1, 2))
  best = gather(both, jnp.argsort(kind, axis=1, stable=True)[:, :beam])
  # Empty places hold leftovers of the search if top_k breaks ties in another order.
  there = best.log_probs > -jnp.inf
  return best._replace(tokens=jnp.where(there[..., None], best.tokens, pad))


def gather(tree: Any, index: jax.Array) -> Any:
  """Takes the places `index` [B, M] of leaves [B, N, ...]; returns [B, M, ...]."""
  return jax.tree.map(lambda leaf: jax.vmap(lambda row, i: row[i])(leaf, index), tree)


def _concatenate(first: Hypotheses, second: Hypotheses) -> Hypotheses:
  return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
