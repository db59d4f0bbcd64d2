"""Beam search over step(tokens, position, cache); it knows no model (section 6.1).

Axes: B sentences, K beams, W words of the vocabulary, L longest output, C candidates.

A hypothesis Y is finished when it ends in EOS. Its score is log P(Y) / lp(|Y|), where
lp is GNMT's length penalty and |Y| counts EOS. Each step takes the C = 2K best
continuations of a sentence's live hypotheses, so that K live on even if K of them end;
those that end compete for the sentence's K finished places. With K = 1 only the best
continuation is taken: greedy search, on which alpha has no effect but in the scores.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.decoding.top_words import best_words

Cache = Any  # what a model keeps of the tokens so far
Step = Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]


class Hypotheses(NamedTuple):
  """K hypotheses per sentence: the finished, best first, then the cut, then none.

  A hypothesis is cut if it reached its limit without EOS. Where a sentence has fewer
  than K hypotheses, the rest are PAD alone with scores and log_probs of -inf.
  """

  tokens: jax.Array  # [B, K, L] int32: without BOS, with EOS if finished, then PAD
  scores: jax.Array  # [B, K] float32: log_probs / length_penalty
  log_probs: jax.Array  # [B, K] float32: log P(Y) under the softmax over all W words
  finished: jax.Array  # [B, K] bool: ends in EOS


class State(NamedTuple):
  """What the loop carries; a sentence that is done keeps its hypotheses unchanged."""

  position: jax.Array  # [] int32: tokens generated so far
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
  """Wu et al. 2016 (GNMT), Eq. 14; `length` counts EOS."""
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

  step(tokens [B, K], position [], cache) returns the logits [B, K, W] of the token at
  `position` (0 for the first, whose input is BOS) and the new cache. After each step
  reorder(cache, parents [B, K]) is the cache in which beam k is what beam parents[k]
  was; `gather` does that to leaves [B, K, ...]. What all beams of a sentence share
  belongs in the closure of `step`. The cache given holds lengths[0] positions; where
  they are not enough, grow(cache, lengths[1]) holds more, and so on.

  limits [B] is the most tokens each sentence may generate, EOS included, and at most L;
  0 suits rows that pad a batch. A hypothesis cut there ranks behind every finished one.
  PAD and BOS are never generated, yet keep their share of the softmax, so that log P is
  the model's own.

  A sentence is done at its limit or when none of its live hypotheses can enter its K
  finished ones any more. Stopping there is exact, and no sentence's result depends on
  the others. Equal scores: the shorter first, then the better beam and lower token.
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
) -> State:
  """One live hypothesis per sentence, the empty one, in the first of K beams."""
  batch = limits.shape[0]
  none = jnp.full((batch, beam), -jnp.inf, jnp.float32)
  empty = jnp.full((batch, beam, max_length), pad, jnp.int32)
  return State(
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
  state: State,
  limits: jax.Array,
  length: int,
  alpha: float,
  bos: int,
  eos: int,
  pad: int,
) -> State:
  """Runs `step` until every sentence is done or has `length` tokens."""

  def advance(state: State) -> State:
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
    state = State(
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


def expand(state: State, logits: jax.Array, bos: int, eos: int, pad: int) -> Candidates:
  """The C best of K * W continuations; logits [B, K, W]."""
  batch, beam, vocabulary = logits.shape
  count = 2 * beam if beam > 1 else 1
  # C of a beam are enough, and two more to pass over PAD and BOS.
  per_beam = min(count + 2, vocabulary)
  best, words, normalizer = best_words(logits.astype(jnp.float32), per_beam)
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


def keep_finished(state: State, candidates: Candidates, alpha: float) -> Hypotheses:
  """The K best by score of the finished so far and the candidates that ended."""
  log_probs = jnp.where(candidates.ended, candidates.log_probs, -jnp.inf)
  scores = log_probs / length_penalty(state.position + 1, alpha)
  ended = Hypotheses(candidates.tokens, scores, log_probs, log_probs > -jnp.inf)
  # The old come first: top_k prefers the lower index, so an equal score is no gain.
  both = _concatenate(state.finished, ended)
  _, kept = lax.top_k(both.scores, state.live.shape[1])
  return gather(both, kept)


def is_done(state: State, limits: jax.Array, alpha: float) -> jax.Array:
  """[B] bool: at its limit, or no live hypothesis can enter the K finished.

  log P only falls as a hypothesis grows and lp is monotone in the length, so a live
  hypothesis can reach at best its present log P over the largest lp ahead of it.
  """
  ahead = jnp.maximum(
    length_penalty(state.position + 1, alpha), length_penalty(limits, alpha)
  )
  reachable = jnp.max(state.live_log_probs, axis=1) / ahead
  return (state.position >= limits) | (state.finished.scores[:, -1] >= reachable)


def rank(state: State, limits: jax.Array, alpha: float, pad: int) -> Hypotheses:
  """The finished, then the live that were cut, then none: K in all."""
  beam = state.live.shape[1]
  cut = Hypotheses(
    tokens=state.live,
    scores=state.live_log_probs / length_penalty(limits, alpha)[:, None],
    log_probs=state.live_log_probs,
    finished=jnp.zeros(state.live_log_probs.shape, bool),
  )
  # Nothing is cut short: done before its limit means K finished or none live.
  both = _concatenate(state.finished, cut)
  there = both.log_probs > -jnp.inf
  kind = jnp.where(both.finished, 0, jnp.where(there, 1, 2))
  best = gather(both, jnp.argsort(kind, axis=1, stable=True)[:, :beam])
  # PAD already where top_k keeps the first of equals, as documented; made certain here.
  there = best.log_probs > -jnp.inf
  return best._replace(tokens=jnp.where(there[..., None], best.tokens, pad))


def gather(tree: Any, index: jax.Array) -> Any:
  """Leaves [B, N, ...] and index [B, M] to leaves [B, M, ...]."""
  return jax.tree.map(lambda leaf: jax.vmap(lambda row, i: row[i])(leaf, index), tree)


def _concatenate(first: Hypotheses, second: Hypotheses) -> Hypotheses:
  return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
