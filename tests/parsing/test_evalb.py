"""Bracketing scores against figures that EVALB printed, and its rules one by one."""

import json
import pathlib

import pytest

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb
from transformer_jax.parsing.evalb import Sentence

GOLDEN = json.loads(
  (pathlib.Path(__file__).parents[1] / 'fixtures/evalb.json').read_text('utf-8')
)
GOLD, TEST = ([pair[side] for pair in GOLDEN['pairs']] for side in ('gold', 'test'))


def compare(gold: str, test: str) -> Sentence:
  return evalb.compare([gold], [test])[0]


@pytest.fixture
def printed(tmp_path: pathlib.Path) -> list[str]:
  """What is printed of the trees that EVALB has scored."""
  files = tmp_path / 'gold', tmp_path / 'test'
  for file, lines in zip(files, (GOLD, TEST), strict=True):
    file.write_bytes(''.join(line + '\n' for line in lines).encode())
  return [*evalb.score_files(*files)]


def test_each_sentence_has_evalbs_figures(printed: list[str]):
  for line, pair in zip(printed[1:], GOLDEN['pairs'], strict=False):
    assert line.split()[1:] == pair['figures'], pair


def test_the_totals_are_evalbs(printed: list[str]):
  figures = [line.split(' = ')[1].strip() for line in printed if ' = ' in line]
  assert figures == GOLDEN['all'] + GOLDEN['len<=40']


def test_the_figures_have_every_status_and_crossing_brackets():
  found = evalb.compare(GOLD, TEST)
  assert {one.status for one in found} == {'valid', 'error', 'skipped'}
  assert any(one.status == 'error' and one.gold for one in found)
  assert sum(one.crossing for one in found)


def test_a_summary_counts_valid_sentences_alone():
  tree, other = '(S (NP (DT a) (NN cat)) (VP (VB is)))', '(S (NP (DT a)))'
  found = evalb.summarize(evalb.compare([tree] * 3, [tree, other, '']))
  assert (found.sentences, found.errors, found.skipped, found.valid) == (3, 1, 1, 1)
  assert (found.matched, found.gold, found.test, found.words) == (3, 3, 3, 3)
  assert found.recall == found.precision == found.f1 == found.complete_match == 100


def test_nothing_to_score_is_zero():
  found = evalb.summarize(evalb.compare(['(S (A a))'], ['(X (A a))']))
  assert found.f1 == found.recall == found.precision == 0
  assert evalb.summarize([]).tagging == evalb.summarize([]).average_crossing == 0


@pytest.mark.parametrize(
  ('gold', 'test', 'matched', 'brackets'),
  [
    ('(NP-SBJ=2 (A a))', '(NP-1 (A a))', 1, 1),  # functions and indices
    ('(NP=2 (A a))', '(NP (A a))', 1, 1),
    ('(ADVP (A a))', '(PRT (A a))', 1, 1),
    ('(NP (A a))', '(NP|X (A a))', 0, 1),
    ('(TOP (S (A a)))', '(S (A a))', 1, 1),
    ('( (S (A a)))', '(S (A a))', 1, 2),  # a nameless root is a bracket
    ('(ROOT (S (A a)))', '(S (A a))', 1, 2),
    ('(S (NP (-NONE- *)) (A a))', '(S (A a))', 1, 1),  # nothing but a trace
    ('(S (NP (. .)) (A a))', '(S (A a) (. .))', 1, 1),  # nothing but a full stop
    ('(S (A a) (. .))', '(S (A a) (, b))', 1, 1),  # a deleted word is not compared
    ('(NP (NP (NP (A a))))', '(NP (NP (A a)))', 2, 3),  # each matches once
    ('(S (A a)) (S (A b))', '(S (A a)) (S (A b))', 2, 2),
  ],
)
def test_brackets(gold: str, test: str, matched: int, brackets: int):
  found = compare(gold, test)
  assert (found.status, found.matched, found.gold) == ('valid', matched, brackets)


def test_brackets_that_cross_are_those_of_the_test_tree():
  gold = '(S (X (A a) (A b)) (Y (A c) (A d)))'
  test = '(S (A a) (Z (Z (A b) (A c))) (A d))'
  assert compare(gold, test).crossing == 2
  assert compare(test, gold).crossing == 2
  assert compare(gold, '(S (A a) (Z (A b) (A c)) (A d))').crossing == 1
  three = evalb.compare([gold], ['(S (A a) (Z (Z (Z (A b) (A c)))) (A d))'])
  assert three[0].crossing == 3 and evalb.summarize(three).two_or_less_crossing == 0


def test_tags_of_deleted_words_do_not_count():
  found = compare('(S (PRT a) (B b) (. .))', '(S (ADVP a) (C b) (. .))')
  assert (found.length, found.words, found.tags) == (3, 2, 1)


def test_length_is_of_the_gold_tree_with_punctuation_and_without_traces():
  assert compare('(S (A a) (, ,) (-NONE- *))', '(S (A a))').length == 2


@pytest.mark.parametrize(
  ('gold', 'test', 'status'),
  [
    ('(S (A a))', '(S (A b))', 'error'),
    ('(S (A a))', '(S (A a) (B b))', 'error'),
    ('(S (. .))', '(S (A .))', 'error'),  # deleted on one side alone
    ('(S (A a))', '', 'skipped'),
    ('', '(S (A a))', 'error'),
    ('(S (A a))', '(S (. a))', 'skipped'),  # no word is left
    ('(S (A a))', '(S (A a)', 'error'),
    ('(S (A a))', '(S (A a)))', 'error'),
    ('(S (A a)', '(S (A a))', 'error'),
  ],
)
def test_sentences_that_are_not_scored(gold: str, test: str, status: str):
  assert compare(gold, test).status == status


def test_brackets_that_do_not_balance_are_read_as_evalb_reads_them():
  assert compare('(S (A a))', '(S (A a)')[1:5] == ('error', 0, 1, 1)
  # A bracket too many, but one too few later: EVALB finds no error.
  found = compare('(S (A a) (B b))', '(S (A a))) (X (Y (B b)')
  assert found[1:5] == ('error', 0, 1, 3)
  found = compare('(S (A a) (B b))', '(S (A a))) (X (B b)')
  assert found[1:5] == ('valid', 0, 1, 2)


def test_a_line_that_ends_after_a_label_goes_on_where_the_line_before_it_ended():
  """As in EVALB, which reads all lines into the same place."""
  assert compare('(S (A a) (, --))', '(S (A a) (, ').status == 'valid'
  assert compare('(S (A a) (B bbb))', '(S (A a) (B ').status == 'error'


def test_long_words_and_trees_are_read():
  """EVALB itself has room for 200 words and brackets, and for 100 bytes a word."""
  tree = '(X ' * 300 + ' '.join(f'(A {n:0500})' for n in range(300)) + ')' * 300
  found = compare(tree, tree)
  assert (found.words, found.matched) == (300, 300)


@pytest.mark.parametrize('line', ['a', '(S a b)', '(S (A a) b)', '(S b (A a))'])
def test_words_without_brackets_of_their_own_are_refused(line: str):
  with pytest.raises(UserError, match='pair 2 of the trees: .* one word'):
    evalb.compare(['(A a)', '(A a)'], ['(A a)', line])


def test_unequal_numbers_of_trees_are_refused():
  with pytest.raises(UserError, match='1 trees for 2 gold trees'):
    evalb.compare(['(A a)', '(A a)'], ['(A a)'])


def test_files_of_unequal_length_are_scored_as_far_as_they_go(tmp_path: pathlib.Path):
  files = tmp_path / 'gold', tmp_path / 'test'
  for file, count in zip(files, (2, 3), strict=True):
    file.write_text('(S (A a))\n' * count)
  found = []
  with pytest.raises(UserError, match='gold has 2 lines and .*test 3: .* first 2'):
    for line in evalb.score_files(*files):
      found.append(line)
  assert 'Number of Valid sentence  =      2' in found


def test_spaces_of_unicode_are_part_of_a_word(tmp_path: pathlib.Path):
  tree = '(S (A a\xa0b\u2028c))\r\n'
  for name in ('gold', 'test'):
    (tmp_path / name).write_text(tree, 'utf-8', newline='')
  printed = [*evalb.score_files(tmp_path / 'gold', tmp_path / 'test')]
  assert printed[1].split() == '1 1 0 100.00 100.00 1 1 1 0 1 1 100.00'.split()
