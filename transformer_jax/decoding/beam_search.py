"""Beam search (section 6.1), with the length penalty of Wu et al. 2016 (GNMT).

The search works with any model. It calls the model as a function step(tokens, position,
cache, memory).

Axes: B sentences, K beams, F hypotheses to return for each sentence, W tokens of the
vocabulary, L tokens of the longest output, C candidates.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.model import ops

Memory = Any  # arrays [B, ...] that all hypotheses of a sentence share
# A model's state after the tokens so far: a pytree of arrays [B, ...]. After
# reorder(parents [B, K]) beam k continues beam parents[b, k]; grow(length) makes room
# for `length` positions.
Cache = Any

# When only a quarter of a batch's sentences are not done, the search continues with
# these alone. That needs a second loop, which takes time to compile. So it happens only
# if the quarter has at least this many sentences.
FEWEST_SENTENCES = 8


class Hypotheses(NamedTuple):
  """F hypotheses of each sentence: first the finished ones, then those that were cut.

  A hypothesis is finished if it ends in EOS. It is cut if it reached its sentence's
  limit without EOS. Each kind is sorted, best first. If a sentence has fewer than F
  hypotheses, the other rows are all PAD, with scores and log_probs of -inf.
  """

  tokens: jax.Array  # [B, F, L] int32: without BOS, with EOS if finished, then PAD
  scores: jax.Array  # [B, F] float32: log_probs / length_penalty
  log_probs: jax.Array  # [B, F] float32: log P(Y) under the softmax over all W tokens
  finished: jax.Array  # [B, F] bool


class State(NamedTuple):
  """The state of a search. A sentence that is done keeps its hypotheses unchanged."""

  position: jax.Array  # [] int32: the number of tokens generated so far
  live: jax.Array  # [B, K, L] int32: the live hypotheses, best first
  live_log_probs: jax.Array  # [B, K] float32: -inf for a beam without a hypothesis
  finished: Hypotheses  # the F best that have ended in EOS so far
  done: jax.Array  # [B] bool
  limits: jax.Array  # [B] int32: the most tokens of a sentence's output
  cache: Cache
  memory: Memory


class Candidates(NamedTuple):
  """The best continuations of each sentence's live hypotheses, best first."""

  tokens: jax.Array  # [B, C, L] int32
  log_probs: jax.Array  # [B, C] float32
  ended: jax.Array  # [B, C] bool: the last token is EOS
  parents: jax.Array  # [B, C] int32: the beams that they continue


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
  """Returns lp(|Y|) = ((5 + |Y|) / 6)^alpha, equation 14 of Wu et al. 2016.

  |Y| counts EOS.
  """
  return ((5 + length) / 6) ** alpha


@dataclasses.dataclass(frozen=True)
class Search:
  """A beam search; call it with a batch of sentences.

  The score of a finished hypothesis Y is log P(Y) / lp(|Y|). A live hypothesis is one
  without EOS so far. Each step takes the C = 2K best continuations of a sentence's K
  live hypotheses. So K of them stay live even if the other K end in EOS. The finished
  hypotheses with the F best scores are kept. With K = 1 each step takes only the best
  continuation. That is greedy search: alpha changes scores but no tokens.

  A sentence is done at its limit, or when none of its live hypotheses can become one of
  the F best. So stopping early never changes the result, and no sentence's result
  depends on the others. If scores are equal, the shorter hypothesis comes first, then
  the one from the better beam, then the one with the lower token. PAD and BOS are never
  generated, but the softmax includes them: log P is the model's.

  Attributes:
    step: takes tokens [B, K], their position [], a cache and a memory; returns the
      logits [B, K, W] of the next token, and the new cache. The first tokens are BOS,
      at position 0. It is also called with fewer sentences than a batch has.
    cache_lengths: sizes of the cache in positions, in rising order; the last is L. The
      cache grows to the next size when it is full. A step attends to the whole cache,
      so a small one saves time, and few outputs are as long as L.
    beam: K.
    nbest: F, K at most. A search with a smaller F ends sooner.
    alpha: the exponent of the length penalty.
    bos, eos, pad: the ids of the special tokens.
    mask: takes the state; returns 0 or -inf [B, K, W], which is added to the logits of
      the next token. Tokens with -inf are never generated. None: no mask.
  """

  step: Callable[..., tuple[jax.Array, Cache]]
  cache_lengths: Sequence[int]
  beam: int
  nbest: int
  alpha: float
  bos: int
  eos: int
  pad: int
  mask: Callable[[State], jax.Array] | None = None

  def __call__(self, cache: Cache, memory: Memory, limits: jax.Array) -> Hypotheses:
    """Returns the `nbest` best hypotheses of each sentence.

    Args:
      cache: empty, of cache_lengths[0] positions.
      limits: [B], the most tokens of each sentence's output, EOS included, L at most. 0
        for rows without a sentence, which fill up a batch.
    """
    state = self.start(cache, memory, limits)
    quarter = len(limits) // 4
    quarter = quarter if quarter >= FEWEST_SENTENCES else 0
    for length in self.cache_lengths:
      if length > self.cache_lengths[0]:
        state = state._replace(cache=state.cache.grow(length))
      state = self.run(state, length, quarter)
    if quarter:
      _, rows = lax.top_k((~state.done).astype(jnp.float32), quarter)
      last = self.run(_take(state, rows), self.cache_lengths[-1], 0)
      state = _put(state, rows, last)
    return self.rank(state)

  def start(self, cache: Cache, memory: Memory, limits: jax.Array) -> State:
    """Returns the first state: one live hypothesis, the empty one, in beam 0."""
    B, L = len(limits), self.cache_lengths[-1]
    limits = jnp.clip(limits, 0, L)
    empty = lambda count: jnp.full((B, count, L), self.pad, jnp.int32)
    none = lambda count: jnp.full((B, count), -jnp.inf, jnp.float32)
    F = self.nbest
    finished = Hypotheses(empty(F), none(F), none(F), jnp.zeros((B, F), bool))
    live_log_probs = none(self.beam).at[:, 0].set(0.0)
    return State(
      jnp.int32(0),
      empty(self.beam),
      live_log_probs,
      finished,
      limits == 0,
      limits,
      cache,
      memory,
    )

  def run(self, state: State, length: int, max_unfinished: int) -> State:
    """Advances to `length`, or until at most `max_unfinished` sentences go on."""

    def goes_on(state: State) -> jax.Array:
      return (jnp.sum(~state.done) > max_unfinished) & (state.position < length)

    return lax.while_loop(goes_on, self.advance, state)

  def advance(self, state: State) -> State:
    """Returns the state after one step.

    Each live hypothesis grows by a token, unless its sentence is done.
    """
    last = lax.dynamic_index_in_dim(state.live, state.position - 1, 2, keepdims=False)
    tokens = jnp.where(state.position == 0, self.bos, last)
    logits, cache = self.step(tokens, state.position, state.cache, state.memory)
    candidates = self.expand(state, *self.next_tokens(state, logits))
    live, live_log_probs, parents = self.keep_live(candidates)
    finished = self.keep_finished(state, candidates)
    live, live_log_probs, finished = jax.tree.map(
      lambda old, new: jax.vmap(jnp.where)(state.done, old, new),
      (state.live, state.live_log_probs, state.finished),
      (live, live_log_probs, finished),
    )
    state = state._replace(
      position=state.position + 1,
      live=live,
      live_log_probs=live_log_probs,
      finished=finished,
      cache=cache.reorder(parents),
    )
    return state._replace(done=state.done | self.is_done(state))

  def next_tokens(self, state: State, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the best next tokens of each beam, and their log probabilities.

    Both are [B, K, P] for logits [B, K, W]; P is large enough for C candidates. A token
    that is not permitted has -inf.
    """
    # C tokens of a beam suffice, and two more: PAD and BOS may be among the best.
    count = min(self.candidates + 2, logits.shape[2])
    logits = logits.astype(jnp.float32)
    best, tokens, normalizer = ops.top_tokens(logits, count=count)
    if self.mask is not None:
      best, tokens, _ = ops.top_tokens(logits + self.mask(state), count=count)
    never = (tokens == self.pad) | (tokens == self.bos)
    return tokens, jnp.where(never, -jnp.inf, best) - normalizer[..., None]

  @property
  def candidates(self) -> int:
    """Returns C, the number of continuations that a step takes."""
    return 2 * self.beam if self.beam > 1 else 1

  def expand(self, state: State, tokens: jax.Array, log_probs: jax.Array) -> Candidates:
    """Returns the C best continuations of all beams, from next_tokens()' results."""
    B, _, per_beam = tokens.shape
    log_probs = (state.live_log_probs[..., None] + log_probs).reshape(B, -1)
    log_probs, best = lax.top_k(log_probs, self.candidates)
    tokens, parents = gather(tokens.reshape(B, -1), best), best // per_beam
    grown = gather(state.live, parents).at[:, :, state.position].set(tokens)
    return Candidates(grown, log_probs, tokens == self.eos, parents)

  def keep_live(self, candidates: Candidates) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns tokens, log_probs and parents of the K best candidates without EOS."""
    log_probs = jnp.where(candidates.ended, -jnp.inf, candidates.log_probs)
    log_probs, best = lax.top_k(log_probs, self.beam)
    tokens, parents = gather((candidates.tokens, candidates.parents), best)
    return tokens, log_probs, parents

  def keep_finished(self, state: State, candidates: Candidates) -> Hypotheses:
    """Returns the F finished hypotheses with the best scores, old and new ones."""
    log_probs = jnp.where(candidates.ended, candidates.log_probs, -jnp.inf)
    scores = log_probs / length_penalty(state.position + 1, self.alpha)
    ended = Hypotheses(candidates.tokens, scores, log_probs, log_probs > -jnp.inf)
    # The old ones come first: top_k takes the lower index of equal scores, so an old
    # hypothesis stays.
    hypotheses = _concatenate(state.finished, ended)
    return gather(hypotheses, lax.top_k(hypotheses.scores, self.nbest)[1])

  def is_done(self, state: State) -> jax.Array:
    """Returns [B] bool: at its limit, or no live hypothesis can reach the F best.

    As a hypothesis grows, log P never rises. So the best score that it can reach is its
    present log P (at most 0), divided by the largest length penalty ahead of it. lp is
    monotone, so that is the penalty of the next length or of the limit.
    """
    ahead = jnp.maximum(
      length_penalty(state.position + 1, self.alpha),
      length_penalty(state.limits, self.alpha),
    )
    reachable = jnp.max(state.live_log_probs, axis=1) / ahead
    at_limit = state.position >= state.limits
    return at_limit | (state.finished.scores[:, -1] >= reachable)

  def rank(self, state: State) -> Hypotheses:
    """Returns F hypotheses: the finished, then the live ones as cut, then PAD rows."""
    penalty = length_penalty(state.limits, self.alpha)[:, None]
    cut = Hypotheses(
      tokens=state.live,
      scores=state.live_log_probs / penalty,
      log_probs=state.live_log_probs,
      finished=jnp.zeros(state.live_log_probs.shape, bool),
    )
    # A sentence that is done before its limit has F finished hypotheses or none live.
    hypotheses = _concatenate(state.finished, cut)
    kind = jnp.where(hypotheses.log_probs > -jnp.inf, 1, 2)
    kind = jnp.where(hypotheses.finished, 0, kind)
    best = gather(hypotheses, jnp.argsort(kind, axis=1, stable=True)[:, : self.nbest])
    # A row without a hypothesis has arbitrary tokens: top_k chose among equals of -inf.
    exists = (best.log_probs > -jnp.inf)[..., None]
    return best._replace(tokens=jnp.where(exists, best.tokens, self.pad))


def gather(tree: Any, index: jax.Array) -> Any:
  """Takes the elements `index` [B, M] of arrays [B, N, ...]; returns [B, M, ...]."""
  return jax.tree.map(lambda x: jax.vmap(lambda row, i: row[i])(x, index), tree)


def _take(state: State, rows: jax.Array) -> State:
  """Returns the state of some sentences."""
  return jax.tree.map(lambda x: x[rows] if x.ndim else x, state)


def _put(state: State, rows: jax.Array, other: State) -> State:
  """Returns `state` with `rows` from `other`, without cache and memory."""
  state, other = (x._replace(cache=None, memory=None) for x in (state, other))
  return jax.tree.map(
    lambda old, new: old.at[rows].set(new) if old.ndim else new, state, other
  )


def _concatenate(first: Hypotheses, second: Hypotheses) -> Hypotheses:
  return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
