"""Bracketing scores against figures that EVALB printed, its rules, a parser's F1."""

import json
import pathlib
import re

import numpy as np
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


def test_spaces_of_unicode_are_part_of_a_word(tmp_path: pathlib.Path):
  tree = '(S (A a\xa0b\u2028c))\r\n'
  for name in ('gold', 'test'):
    (tmp_path / name).write_text(tree, 'utf-8', newline='')
  printed = [*evalb.score_files(tmp_path / 'gold', tmp_path / 'test')]
  assert printed[1].split() == '1 1 0 100.00 100.00 1 1 1 0 1 1 100.00'.split()


# Scores on the treebank's tags, their interval, and two parsers compared

OURS = [
  '(TOP (S (NP (PRP We)) (VP (VBD slept)) (. .)))',
  '(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (DT a) (NN cat)))))',
  '(TOP (S (S (NP (PRP I)) (VP (VBD left))) (, ,) (S (NP (PRP we)) (VP (VBD ran)))))',
  '(TOP (FRAG (. !)))',
]


def flat(tree: str) -> str:
  leaves = re.findall(r'\([^ ()]+ [^ ()]+\)', tree)
  return f'(TOP (S {" ".join(leaves)}))'


def test_the_same_trees_are_perfect():
  found = evalb.score(OURS, OURS)
  assert found.f1.score == found.recall == found.precision == 100
  assert found.tagging == 100 and found.f1.interval == [100, 100]
  assert found.labels == {'NP': [5, 5, 5], 'S': [5, 5, 5], 'VP': [4, 4, 4]}
  assert found.lengths['1-10'] == [4, 100] and found.lengths['41 or more'] == [0, 0]


def test_trees_without_tags_are_scored_on_the_treebanks():
  """EVALB itself would refuse them: without tags it keeps the punctuation."""
  plain = [re.sub(r'[^ ()]+( [^ ()]+\))', r'XX\1', tree) for tree in OURS]
  assert evalb.compare(OURS[:1], plain[:1])[0].status == 'error'
  found = evalb.score(OURS, plain)
  assert found.f1.score == 100 and found.tagging == 0


def test_wrong_tags_are_told_apart():
  wrong = [OURS[0].replace('VBD', ',').replace('(. ', '(NN '), *OURS[1:]]
  found = evalb.score(OURS, wrong)
  assert found.f1.score == 100
  assert found.tagging == pytest.approx(100 * 9 / 10)  # of words but punctuation


def test_figures_and_lines():
  outputs = [*OURS[:1], *map(flat, OURS[1:])]
  found = evalb.score(OURS, outputs)
  assert found.recall == pytest.approx(100 * 5 / 14)
  assert found.precision == 100
  assert found.f1.score == pytest.approx(100 * 2 * 5 / (14 + 5))
  assert found.f1.interval[0] < found.f1.score < found.f1.interval[1]
  assert found.labels['S'] == [3, 5, 3]
  said = '\n'.join(evalb.score_lines(found))
  assert 'F1 52.63  evalb:COLLINS.prm' in said
  assert '1-10 words: F1 52.63 of 4 sentences' in said
  assert 'tagging accuracy 100.00' in said


def test_the_interval_is_the_spread_of_f1():
  """Of 400 trees of which half are flat, by the delta method."""
  gold = OURS[1:2] * 400
  outputs = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  found = evalb.score(gold, outputs)
  matched, both = np.array([[1, 5], [4, 8]]).repeat(200, 0).T
  ratio = 2 * matched.sum() / both.sum()
  spread = np.std(2 * matched - ratio * both) / both.mean() / 400**0.5
  low, high = found.f1.interval
  assert found.f1.score == pytest.approx(100 * ratio)
  assert high - low == pytest.approx(100 * 2 * 1.96 * spread, rel=0.1)


def test_a_tree_that_evalb_leaves_out_is_in_no_sample():
  gold = OURS[:3] * 20
  broken = [tree[:-1] if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  found = evalb.score(gold, broken).f1
  assert found.interval[0] <= found.score <= found.interval[1]


def test_comparison_tells_better_from_equal():
  gold = OURS[:3] * 20
  flats = [*map(flat, gold)]
  (line,) = evalb.comparison_lines(gold, gold, flats)
  assert line.startswith('F1 100.00 against 35.29: +64.71, p = 0.0010')
  (line,) = evalb.comparison_lines(gold, flats, flats)
  assert line.endswith('+0.00, p = 1.0000')
  gold = OURS[1:2] * 100  # twelve trees better, the others the same
  base = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  ours = [tree if n % 2 or n < 12 else flat(tree) for n, tree in enumerate(gold)]
  (line,) = evalb.comparison_lines(gold, ours, base)
  assert line == 'F1 80.24 against 76.92: +3.32, p = 0.0140', 'paired, and seeded'


def test_where_lengths_end():
  gold = [f'(S {" ".join(["(A a)"] * words)})' for words in (10, 11, 40, 41)]
  found = evalb.score(gold, gold).lengths
  assert [count for count, _ in found.values()] == [1, 1, 0, 1, 1, 3]


def test_trees_of_other_words_are_refused():
  with pytest.raises(UserError, match='tree 1 has not the words'):
    evalb.score(['(S (NN a) (NN b))'], ['(S (NN a))'])
  with pytest.raises(UserError, match='tree 2 has not the words'):
    evalb.score(OURS[:2], [OURS[0]] * 2)
  with pytest.raises(UserError, match='0 trees for 0'):
    evalb.score([], [])
