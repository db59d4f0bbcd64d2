"""Parsing as a task: its output and its scores."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import parsing
from toy.results import GOLD
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.task import PARSING
from transformer_jax.scoring.output import SystemOutput

TOKENS = '(S )S (NP )NP )VP DT NN ( ) (TOP \u2047 (S)'.split()


def test_what_is_a_tree_is_not_mended():
  written = '(S (NP PRP )NP (VP VBD )VP )S'
  tree = '(TOP (S (NP (PRP She)) (VP (VBD laughed))))'
  assert PARSING.finish('She laughed', written) == (tree, True)
  numbered = written.replace('PRP', '#1 PRP').replace('VBD', '#2 VBD')
  assert PARSING.finish('She laughed', numbered) == (tree, True)
  assert PARSING.finish('She laughed', written + ' )S') == (tree, False)


def test_a_target_is_tokens_or_a_tree():
  """Only spaces of ASCII divide tokens."""
  write = PARSING.target(parsing.get_config('craft'))
  written = '(S (N\u00a0P #1 PRP )N\u00a0P (VP #2 VBD )VP )S'
  assert write('(S (N\u00a0P PRP )N\u00a0P (VP VBD )VP )S') == written
  assert write('(TOP (S (N\u00a0P (PRP She)) (VP (VBD laughed))))') == written
  assert write('') == ''
  with pytest.raises(UserError, match='a target, line 1: .* is not one tag'):
    write('(TOP (S (NP (PRP She laughed))))')


@settings(max_examples=300)
@given(
  st.text('ab()\u00a0\u2028\x85 \t-', max_size=12),
  st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=12).map(' '.join),
)
def test_any_output_of_any_line_is_a_tree_of_its_words(line: str, output: str):
  """It has one line, which LF alone ends."""
  finished, _ = PARSING.finish(line, output)
  assert '\n' not in finished
  words = trees.words(line)
  assert [tree.words for tree in trees.parse([finished], 'x')] == [words][: len(words)]


def test_trees_are_scored_with_how_many_were_valid():
  scorer = PARSING.scorer
  targets = ['(S (NP PRP )NP (VP VBD )VP )S', '(FRAG UH )FRAG']
  assert scorer.references(['She laughed', 'Oh'], targets) == GOLD
  flat = '(TOP (XX She) (XX laughed))'
  outputs = SystemOutput([flat, GOLD[1]], GOLD, 'tree', False, [False, True])
  result = scorer.score(outputs)
  assert result['valid'] == 50
  assert result['parsing']['recall'] == 25 and result['parsing']['precision'] == 100
