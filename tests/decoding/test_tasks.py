"""What each task makes of a line, and of what a model wrote of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.decoding.scorers import SCORERS
from transformer_jax.decoding.tasks import TASKS
from transformer_jax.parsing import trees
from transformer_jax.runs import config_checks
from transformer_jax.runs.result import OF_TASK
from transformer_jax.scoring.text import Text

PARSING = TASKS['parsing']
TOKENS = '(S )S (NP )NP )VP DT NN ( ) (TOP \u2047 (S)'.split()


def test_every_task_is_known_everywhere():
  assert TASKS.keys() == SCORERS.keys() == OF_TASK.keys()
  (values,) = (right for _, right, keys in config_checks.VALUES if keys == ('task',))
  assert all(map(values, TASKS)) and not values('summarisation')


def test_a_translation_is_one_line_as_it_was_written():
  task = TASKS['translation']
  assert task.read(' a (b') == ' a (b'
  assert task.finish('a', 'b\nc\u2028d') == ('b c d', {})


def test_a_sentence_is_read_as_treebanks_spell_it():
  assert PARSING.read('  She (\tlaughed ) ') == 'She -LRB- laughed -RRB-'


def test_what_is_a_tree_is_not_mended():
  written = '(S (NP PRP )NP (VP VBD )VP )S'
  tree = '(TOP (S (NP (PRP She)) (VP (VBD laughed))))'
  assert PARSING.finish('She laughed', written) == (tree, {})
  numbered = '(S (NP #1 PRP )NP (VP #2 VBD )VP )S'
  assert PARSING.finish('She laughed', numbered) == (tree, {})
  assert PARSING.finish('She laughed', written + ' )S') == (tree, {'unopened': 1})


@settings(max_examples=300)
@given(
  st.text('ab()\u00a0\u2028\x85 \t-', max_size=12),
  st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=12).map(' '.join),
)
def test_any_output_of_any_line_is_a_tree_of_its_words(line: str, output: str):
  """One line by LF, which is what ends lines where trees are read."""
  finished, _ = PARSING.finish(line, output)
  assert '\n' not in finished
  words = trees.words(line)
  assert [tree.words for tree in trees.parse([finished], 'x')] == [words][: len(words)]


GOLD = ['(TOP (S (NP (PRP She)) (VP (VBD laughed))))', '(TOP (FRAG (UH Oh)))']


def test_trees_are_scored_with_how_many_were_mended():
  scorer = SCORERS['parsing']
  sources, targets = (
    ['She laughed', 'Oh'],
    ['(S (NP PRP )NP (VP VBD )VP )S', '(FRAG UH )FRAG'],
  )
  assert scorer.references(sources, targets) == GOLD
  flat = '(TOP (XX She) (XX laughed))'
  text = Text([flat, GOLD[1]], GOLD, 'tree', False)
  found = scorer.score(text, [{'lacking': 2}, {}], False)
  assert (found['valid'], found['repairs']['lacking']) == (50, 2)
  assert found['parsing'].recall == 25 and found['parsing'].precision == 100
  lines = [*scorer.comparison_lines(text, GOLD, False)]
  assert lines[0].startswith('F1 40.00 against 100.00: -60.00')


def test_a_tree_of_other_words_is_no_output():
  with pytest.raises(ValueError, match='tree 2 has not the words'):
    SCORERS['parsing'].score(
      Text([GOLD[0], '(TOP (UH Ah))'], GOLD, 'tree', False), [{}, {}], False
    )
