"""F1 of trees with the treebank's tags, its interval, and two parsers compared."""

import re

import numpy as np
import pytest

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb, parses

GOLD = [
  '(TOP (S (NP (PRP We)) (VP (VBD slept)) (. .)))',
  '(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (DT a) (NN cat)))))',
  '(TOP (S (S (NP (PRP I)) (VP (VBD left))) (, ,) (S (NP (PRP we)) (VP (VBD ran)))))',
  '(TOP (FRAG (. !)))',
]


def flat(tree: str) -> str:
  leaves = re.findall(r'\([^ ()]+ [^ ()]+\)', tree)
  return f'(TOP (S {" ".join(leaves)}))'


def test_the_same_trees_are_perfect():
  found = parses.score(GOLD, GOLD)
  assert found.f1.score == found.recall == found.precision == 100
  assert found.tagging == 100 and found.f1.interval == [100, 100]
  assert found.labels == {'NP': [5, 5, 5], 'S': [5, 5, 5], 'VP': [4, 4, 4]}
  assert found.lengths['1-10'] == [4, 100] and found.lengths['41 or more'] == [0, 0]


def test_trees_without_tags_are_scored_on_the_treebanks():
  """EVALB itself would refuse them: without tags it keeps the punctuation."""
  plain = [re.sub(r'[^ ()]+( [^ ()]+\))', r'XX\1', tree) for tree in GOLD]
  assert evalb.compare(GOLD[:1], plain[:1])[0].status == 'error'
  found = parses.score(GOLD, plain)
  assert found.f1.score == 100 and found.tagging == 0


def test_wrong_tags_are_told_apart():
  wrong = [GOLD[0].replace('VBD', ',').replace('(. ', '(NN '), *GOLD[1:]]
  found = parses.score(GOLD, wrong)
  assert found.f1.score == 100
  assert found.tagging == pytest.approx(100 * 9 / 10)  # of words but punctuation


def test_figures_and_lines():
  outputs = [*GOLD[:1], *map(flat, GOLD[1:])]
  found = parses.score(GOLD, outputs)
  assert found.recall == pytest.approx(100 * 5 / 14)
  assert found.precision == 100
  assert found.f1.score == pytest.approx(100 * 2 * 5 / (14 + 5))
  assert found.f1.interval[0] < found.f1.score < found.f1.interval[1]
  assert found.labels['S'] == [3, 5, 3]
  said = '\n'.join(parses.score_lines(found))
  assert 'F1 52.63  evalb:COLLINS.prm' in said
  assert '1-10 words: F1 52.63 of 4 sentences' in said
  assert 'tagging accuracy 100.00' in said


def test_the_interval_is_the_spread_of_f1():
  """Of 400 trees of which half are flat, by the delta method."""
  gold = GOLD[1:2] * 400
  outputs = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  found = parses.score(gold, outputs)
  matched, both = np.array([[1, 5], [4, 8]]).repeat(200, 0).T
  ratio = 2 * matched.sum() / both.sum()
  spread = np.std(2 * matched - ratio * both) / both.mean() / 400**0.5
  low, high = found.f1.interval
  assert found.f1.score == pytest.approx(100 * ratio)
  assert high - low == pytest.approx(100 * 2 * 1.96 * spread, rel=0.1)


def test_a_tree_that_evalb_leaves_out_is_in_no_sample():
  gold = GOLD[:3] * 20
  broken = [tree[:-1] if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  found = parses.score(gold, broken).f1
  assert found.interval[0] <= found.score <= found.interval[1]


def test_comparison_tells_better_from_equal():
  gold = GOLD[:3] * 20
  flats = [*map(flat, gold)]
  (line,) = parses.comparison_lines(gold, gold, flats)
  assert line.startswith('F1 100.00 against 35.29: +64.71, p = 0.0010')
  (line,) = parses.comparison_lines(gold, flats, flats)
  assert line.endswith('+0.00, p = 1.0000')
  gold = GOLD[1:2] * 100  # twelve trees better, the others the same
  base = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  ours = [tree if n % 2 or n < 12 else flat(tree) for n, tree in enumerate(gold)]
  (line,) = parses.comparison_lines(gold, ours, base)
  assert line == 'F1 80.24 against 76.92: +3.32, p = 0.0140', 'paired, and seeded'


def test_where_lengths_end():
  gold = [f'(S {" ".join(["(A a)"] * words)})' for words in (10, 11, 40, 41)]
  found = parses.score(gold, gold).lengths
  assert [count for count, _ in found.values()] == [1, 1, 0, 1, 1, 3]


def test_trees_of_other_words_are_refused():
  with pytest.raises(UserError, match=r'treebank: nothing where that has \S+$'):
    parses.score(['(S (NN a) (NN b))'], ['(S (NN a))'])
  with pytest.raises(UserError, match='tree 2 has not the words'):
    parses.score(GOLD[:2], [GOLD[0]] * 2)
  with pytest.raises(UserError, match='0 trees for 0'):
    parses.score([], [])
