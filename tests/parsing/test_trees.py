"""Trees to tokens and back; repair makes a tree of any tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.trees import Tree

# As the Penn Treebank has it, over several lines.
PENN = """
( (S-1
    (NP-SBJ-2 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (NP=3 (-NONE- *T*-2) )
      (ADVP|PRT-TMP (RB out) (SBAR (-NONE- 0) (S (-NONE- *) ))))
    (-LRB- -LRB-) (. .) ))
"""
TOKENS = '(S (NP NNP NNP )NP (VP VBZ (ADVP|PRT RB )ADVP|PRT )VP -LRB- . )S'.split()


def parse(*lines: str | None) -> list[Tree]:
  return [*trees.parse(lines, 'a.mrg')]


def test_a_tree_is_words_and_tokens():
  (tree,) = parse(*PENN.split('\n'))
  assert tree.words == 'Mr. Vinken is out -LRB- .'.split()
  assert tree.tokens == TOKENS
  assert str(tree) == (
    '(TOP (S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (ADVP|PRT (RB out))) '
    '(-LRB- -LRB-) (. .)))'
  )
  plain = ' '.join(trees.without_tags(tree.tokens))
  assert plain == '(S (NP XX XX )NP (VP XX (ADVP|PRT XX )ADVP|PRT )VP XX XX )S'
  numbered = [*trees.number_words(tree.tokens)]
  assert numbered[:6] == '(S (NP #1 NNP #2 NNP'.split() and '#7' not in numbered
  assert trees.without_numbers(numbered) == tree.tokens
  assert trees.without_numbers(['#', '$', '#1a']) == ['#', '$', '#1a'], 'tags'


def test_trees_share_lines_and_lines_share_trees():
  lines = '(S1 (S (A a))) (ROOT (B b)) (S', '', '(C', '\tc)', ') (D d)\r'
  read = [(' '.join(tree.words), ' '.join(tree.tokens)) for tree in parse(*lines)]
  assert read == [('a', '(S A )S'), ('b', 'B'), ('c', '(S C )S'), ('d', 'D')]


def test_words_may_have_spaces_that_are_not_ascii():
  (tree,) = parse('(S (CD 1\xa0000) (NN a\u2028b))')
  assert tree.words == ['1\xa0000', 'a\u2028b']
  assert trees.words(' 1\xa0000\ta\u2028b (x)') == [*tree.words, '-LRB-x-RRB-']


def test_damaged_trees_are_named_with_their_lines():
  for lines, error in (
    (['(S (A a))', '', '(S (A a)', '', ''], 'line 3: .* starts here is not closed'),
    (['(S (A a))', '(S (A a)))'], r"line 2: '\)' stands outside brackets"),
    (['( (S (A a))', '( (S (A a))))'], 'line 1: the tree that starts here lacks'),
    (['(S (A a))', '()'], r"line 2: '\( \)' is not one tag with one word"),
    (['(S (A a b))'], r"line 1: '\( A a b \)' is not one tag"),
    (['(S', None], 'line 2: not UTF-8'),
    (['(S (A a))', '(S (NP (-NONE- *)))'], 'line 2: a tree without words'),
  ):
    with pytest.raises(UserError, match=f'^a.mrg, {error}'):
      raise parse(*lines)[-1]


def test_repair():
  for tokens, expected in (
    ('(S (NP A B', '(S (NP A B )NP )S'),
    ('(S (NP A )S B', '(S (NP A )NP )S B'),
    ('(S (NP A )VP B )S', '(S (NP A )NP B )S'),
    (')NP (S A )S )S B', '(S A )S B'),
    ('(S A (VP (NP )NP )VP B )S', '(S A B )S'),
    ('(S A B C (NP D )NP )S', '(S A B )S'),
    ('(S (NP A )NP )S', '(S (NP A )NP XX )S'),
    ('(S )S A', 'A XX'),
    ('', 'XX XX'),
    ('(S A ( ) (B )B a(b B )S', '(S A B )S'),
    ('(TOP (S A -NONE- B )S )TOP', '(S A B )S'),
  ):
    tree = trees.repair(tokens.split(), ['a', 'b'])
    assert tree == (['a', 'b'], expected.split())


@given(st.integers(1, 5000), st.booleans())
def test_depth_has_no_limit(depth: int, closed: bool):
  tokens = ['(S'] * depth + ['A'] + [')S'] * (depth * closed)
  tree = trees.repair(tokens, ['a'])
  assert parse(str(tree)) == [tree]
  assert tree.tokens == ['(S'] * depth + ['A'] + [')S'] * depth
