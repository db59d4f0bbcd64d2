"""The mask permits all trees of one root that fit, and nothing else."""

import functools
import itertools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toy.table_models import BeamCache
from transformer_jax.data.vocabulary import BOS, EOS, PAD
from transformer_jax.decoding.beam_search import Search
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.task import TreeMask

SPECIALS = ['<pad>', '</s>', '<s>', '<unk>']


def pieces_of(tokens: Sequence[str]) -> list[str]:
  return [*SPECIALS, *(f'\u2581{token}' for token in tokens), '<unused0>']


PLAIN = pieces_of('(A )A (B )B x'.split())
NUMBERED = pieces_of('(A )A (B )B x #1 #2'.split())
PARTLY = pieces_of('(A )A (B )B x #1'.split())  # word 2 has no number


def reachable(mask: TreeMask, words: int, limit: int) -> set[tuple[int, ...]]:
  """Returns all outputs, without EOS, that a search under the mask can end with."""
  allows = lambda tokens, *state: mask(tokens[:, None], *state)[:, 0] == 0
  function, ended = jax.jit(allows), set()
  live = np.zeros((1, limit), np.int32)
  for position in range(limit):
    rows = len(live)
    padded = np.resize(live, (4 ** (rows.bit_length() // 2 + 1), limit))  # few shapes
    sides = (np.full(len(padded), side) for side in (words, limit))
    allowed = np.asarray(function(padded, position, *sides))[:rows]
    assert allowed.any(-1).all(), 'a prefix that nothing can follow'
    ended |= {tuple(row[:position].tolist()) for row in live[allowed[:, EOS]]}
    parents, following = np.nonzero(allowed)
    live = live[parents]
    live[:, position] = following
    live = live[following != EOS]
    if not len(live):
      return ended
  raise AssertionError('a hypothesis is at its limit without an end')


# A vocabulary, how many words, and the limit of the output with its EOS.
CASES = (PLAIN, 1, 8), (PLAIN, 2, 7), (PLAIN, 3, 8), (NUMBERED, 2, 9), (PARTLY, 2, 9)


@functools.cache
def all_trees(case: int) -> set[tuple[int, ...]]:
  """Returns every sequence of one root that repair() leaves as it is."""
  pieces, words, limit = CASES[case]
  names = [piece.removeprefix('\u2581') for piece in pieces]
  per_word = TreeMask.of(pieces).per_word
  usable = [name for name in names[len(SPECIALS) :] if name[0] not in '#<']
  outputs = set()
  for count in range(words, limit - words * (per_word - 1)):
    for tokens in itertools.product(usable, repeat=count):
      tree = trees.repair(tokens, ['w'] * words)
      if tree.tokens == [*tokens] and len(trees.nest(tree).children) == 1:
        written = trees.number_words(tokens) if per_word == 2 else tokens
        outputs.add(tuple(names.index(token) for token in written if token in names))
  return {output for output in outputs if len(output) < limit}


@pytest.mark.parametrize('case', range(len(CASES)))
def test_a_search_can_end_with_every_tree_that_fits_and_nothing_else(case: int):
  pieces, words, limit = CASES[case]
  outputs = reachable(TreeMask.of(pieces), words, limit)
  assert len(outputs) > 5 and outputs == all_trees(case)


def test_a_search_under_the_mask_finds_the_best_trees():
  """The model is a random table; the beam is wide enough for all trees."""
  case, rows, beam = 1, 8, 64
  _, words, limit = CASES[case]
  mask, size = TreeMask.of(PLAIN), len(PLAIN)
  logits = np.random.default_rng(0).normal(0, 3, (rows, size, size))
  look_up = jax.vmap(operator.getitem)
  step = lambda tokens, _, cache, tables: (look_up(tables, tokens), cache)
  lengths = jnp.full(rows, words)
  of_trees = lambda state: mask(state.live, state.position, lengths, state.limits)
  search = Search(step, [limit], beam, beam, 1.0, BOS, EOS, PAD, of_trees)
  cache = BeamCache(jnp.zeros((rows, beam)))
  tables = jnp.asarray(logits, jnp.float32)
  run = jax.jit(lambda *state: search(*state))
  result = run(cache, tables, jnp.full(rows, limit))
  log_probs = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
  for row in range(rows):
    scores = {}
    for output in all_trees(case):
      pairs = zip((BOS, *output), (*output, EOS), strict=True)
      total = sum(log_probs[row, a, b] for a, b in pairs)
      scores[*output, EOS] = total / ((5 + len(output) + 1) / 6)
    best = sorted(scores, key=scores.get, reverse=True)
    ours = [tuple(one[one != PAD].tolist()) for one in np.asarray(result.tokens[row])]
    assert ours[: len(best)] == best and not result.finished[row, len(best) :].any()
    np.testing.assert_allclose(result.scores[row, 0], scores[best[0]], rtol=1e-5)


def test_a_tree_that_the_limit_is_too_short_for_is_of_the_first_words():
  names = {token: PLAIN.index(f'\u2581{token}') for token in '(A )A (B )B x'.split()}
  mask, ids = TreeMask.of(PLAIN), lambda line: tuple(names[t] for t in line.split())
  assert reachable(mask, 5, 3) == {ids('x')}
  assert reachable(mask, 5, 5) == {ids('(A x x )A'), ids('(B x x )B')}


def test_a_vocabulary_of_something_else_is_refused():
  with pytest.raises(UserError, match='needs a vocabulary of the target alone'):
    TreeMask.of(SPECIALS + ['a', 'b'])
