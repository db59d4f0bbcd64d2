"""The mask permits all trees of a sentence's words that fit, and nothing else."""

import functools
import itertools
import pathlib
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.data.vocabulary import EOS, PAD
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import treebanks, trees
from transformer_jax.parsing.tree_mask import TreeMask
from transformer_jax.parsing.trees import Tree

SPECIALS = ['<pad>', '</s>', '<s>', '<unk>']


def pieces_of(tokens: Sequence[str]) -> list[str]:
  return [*SPECIALS, *(f'\u2581{token}' for token in tokens), '<unused0>']


TINY = pieces_of('(A )A (B )B x #1 #2'.split())
ROWS = 2048


def permits(mask: TreeMask, length: int) -> callable:
  """The mask of many prefixes of one length: [ROWS, L] tokens, [ROWS] words, limits."""

  @jax.jit
  def function(tokens, position, words, limits):
    return mask(tokens[:, None], position, words, limits)[:, 0] == 0

  def in_parts(tokens, position, words, limits):
    rows = len(tokens)
    sides = (
      np.resize(side, (-(-rows // ROWS) * ROWS, *np.shape(side)[1:]))
      for side in (tokens, words, limits)
    )
    parts = (np.split(side, len(side) // ROWS) for side in sides)
    return np.concatenate([
      function(t[:, :length], position, w, l) for t, w, l in zip(*parts, strict=True)
    ])[:rows]  # fmt: skip

  return in_parts


def reachable(mask: TreeMask, words: int, limit: int) -> set[tuple[int, ...]]:
  """All outputs, without EOS, that a search under the mask can end with."""
  permit, ended = permits(mask, limit), set()
  live = np.zeros((1, limit), np.int32)
  for position in range(limit):
    rows = len(live)
    allowed = permit(live, position, np.full(rows, words), np.full(rows, limit))
    assert allowed.any(-1).all(), 'a prefix that nothing can follow'
    ended |= {tuple(row[:position].tolist()) for row in live[allowed[:, EOS]]}
    parents, following = np.nonzero(allowed)
    live = live[parents]
    live[:, position] = following
    live = live[following != EOS]
    if not len(live):
      return ended
  raise AssertionError('a hypothesis is at its limit without an end')


def all_trees(pieces: list[str], words: int, limit: int) -> set[tuple[int, ...]]:
  """Every sequence that repair() leaves as it is, by trying all of them."""
  names = [piece.removeprefix('\u2581') for piece in pieces]
  numbers = any(name[0] == '#' for name in names)
  usable = [i for i in range(4, len(names)) if names[i][0] not in '#<']
  found = set()
  for count in range(words, limit):
    for sequence in itertools.product(usable, repeat=count):
      tokens = [names[i] for i in sequence]
      _, repairs = trees.repair(tokens, ['w'] * words)
      if not any(repairs):
        written = [*trees.numbered(tokens)] if numbers else tokens
        if len(written) < limit and all(token in names for token in written):
          found.add(tuple(names.index(token) for token in written))
  return found


CASES = [
  (TINY[:9], 1, 8),
  (TINY[:9], 2, 7),
  (TINY[:9], 3, 6),
  (TINY, 1, 7),
  (TINY, 2, 7),
]


@functools.cache
def expected(case: int) -> set[tuple[int, ...]]:
  pieces, words, limit = CASES[case]
  return all_trees(pieces, words, limit)


def agrees(mask: TreeMask, case: int) -> bool:
  try:
    return reachable(mask, *CASES[case][1:]) == expected(case)
  except AssertionError:
    return False


@pytest.mark.parametrize('case', range(len(CASES)))
def test_a_search_can_end_with_every_tree_that_fits_and_nothing_else(case: int):
  pieces, words, limit = CASES[case]
  found = reachable(TreeMask.of(pieces), words, limit)
  assert len(found) > 5 and found == expected(case)


def test_mutants_do_not():
  """One label for all; numbers without a cost; tags for brackets; no closing of B."""
  mask = TreeMask.of(TINY)
  kind, value = mask.kind, mask.value
  is_tag = TINY.index('\u2581x')
  for mutant in (
    mask._replace(value=np.where(kind == 3, value, 0)),
    mask._replace(per_word=1),
    mask._replace(kind=np.where(kind == 1, kind[is_tag], kind)),
    mask._replace(kind=np.where(kind == 2, kind[is_tag], kind)),
    mask._replace(kind=np.where(np.arange(len(kind)) == 7, 0, kind)),
    mask._replace(value=value + (kind == 3)),
  ):
    assert not agrees(mutant, 4)
  assert agrees(mask, 4)


@pytest.mark.parametrize('numbers', [False, True])
def test_random_walks_end_in_trees_of_the_words(numbers: bool):
  """Of 1 to 30 words, with limits from the least on; some numbers have no token."""
  names = 'S NP VP PRN'.split()
  brackets = [f'{bracket}{name}' for bracket in '()' for name in names]
  tokens = [*brackets, 'NN', 'DT', '.', '#']
  tokens += [f'#{n}' for n in range(1, 21)] if numbers else []
  pieces = pieces_of(tokens)
  mask = TreeMask.of(pieces)
  rng = np.random.default_rng(0)
  words = rng.integers(1, 31, ROWS)
  least = words * mask.per_word + 1
  limits = least + rng.integers(0, 60, ROWS) * rng.integers(0, 2, ROWS)
  longest = limits.max()
  permit, live = permits(mask, longest), np.zeros((ROWS, longest), np.int32)
  for position in range(longest):
    allowed = permit(live, position, words, limits)
    chance = np.where(allowed, rng.random(allowed.shape), 0)
    # Few walks would be long otherwise.
    chance[:, EOS] *= 0.01
    ended = (live == EOS).any(-1)
    live[:, position] = np.where(ended, PAD, chance.argmax(-1))
    assert (ended | allowed.any(-1)).all()
  depths = []
  for row, count in zip(live, words, strict=True):
    (end,) = np.flatnonzero(row == EOS)
    output = [pieces[i].removeprefix('\u2581') for i in row[:end]]
    if numbers:
      kept = trees.numbered(trees.without_numbers(output))
      assert output == [t for t in kept if t not in {f'#{n}' for n in range(21, 31)}]
    _, repairs = trees.repair(trees.without_numbers(output), ['w'] * count)
    assert not any(repairs)
    depths.append(sum(token[0] == '(' for token in output))
  assert max(depths) > 10 and min(depths) == 0


def refused(mask: TreeMask, pieces: list[str], given: Sequence[Tree]) -> Iterator[Tree]:
  """Trees of which a prefix may not be followed as the tree is, at the least limit."""
  ids = {piece.removeprefix('\u2581'): i for i, piece in enumerate(pieces)}

  @jax.jit
  def permitted(row, words, limit):
    one = lambda position: mask(row[None, None], position, words[None], limit[None])
    masks = jax.vmap(one)(jnp.arange(len(row)))[:, 0, 0]
    return jnp.take_along_axis(masks, row[:, None], 1)[:, 0] == 0

  for tree in given:
    tokens = tree.tokens
    if mask.per_word == 2:
      tokens = [token for token in trees.numbered(tokens) if token in ids]
    row = [ids[token] for token in tokens] + [EOS]
    # Numbers that the vocabulary lacks are counted as if they were written.
    limit = max(len(row), mask.shortest(len(tree.words)))
    padded = np.zeros(max(16, 1 << (len(row) - 1).bit_length()), np.int32)
    padded[: len(row)] = row
    found = permitted(padded, np.int32(len(tree.words)), np.int32(limit))
    if not found[: len(row)].all():
      yield tree


def check_trees(given: Sequence[Tree]) -> None:
  tokens = {token for tree in given for token in tree.tokens}
  longest = max(len(tree.words) for tree in given)
  for numbers in ([], [f'#{n}' for n in range(1, longest + 1)]):
    pieces = pieces_of([*sorted(tokens), *numbers])
    assert [*refused(TreeMask.of(pieces), pieces, given)] == []


def test_every_prefix_of_a_tree_is_permitted():
  text = '(S (NP (NP (DT a) (NN b)) (, ,)) (VP (VBD c) (S (VP (VB d)))) (. .))', '(. e)'
  given = [*trees.parse(text, 'here')]
  check_trees(given)
  ours = pieces_of('(S )S (NP )NP (VP )VP DT NN , VBD VB .'.split())
  mask = TreeMask.of(ours)
  mutant = mask._replace(kind=np.where(np.arange(len(ours)) == 8, 0, mask.kind))
  assert [*refused(mutant, ours, given)] == given[:1]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['gum/train', 'gum/dev', 'gum/test', 'craft/train'])
def test_every_prefix_of_every_tree_is_permitted(name: str, shared_data: pathlib.Path):
  path = shared_data / f'{name}.mrg'
  if not path.exists():
    pytest.skip(f'no {path}')
  found = treebanks.read_flawed(path)
  check_trees([tree for tree in found if isinstance(tree, Tree)])


def test_a_tree_that_the_limit_is_too_short_for_is_of_the_first_words():
  mask = TreeMask.of(TINY[:9])
  x = TINY.index('\u2581x')
  assert reachable(mask, 5, 3) == {(x, x)}
  assert mask.shortest(5) == 6 and TreeMask.of(TINY).shortest(5) == 11


def test_a_vocabulary_of_something_else_is_refused():
  with pytest.raises(UserError, match='has no tag: is it of trees'):
    TreeMask.of(SPECIALS + ['a', 'b'])
