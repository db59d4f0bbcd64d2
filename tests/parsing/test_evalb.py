"""Bracketing scores against figures that EVALB printed, its rules, a parser's F1."""

import hashlib
import json
import pathlib
import re

import numpy as np
import pytest

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb

GOLDEN = json.loads(
  (pathlib.Path(__file__).parents[1] / 'fixtures/evalb.json').read_text('utf-8')
)
GOLD, TEST = ([pair[side] for pair in GOLDEN['pairs']] for side in ('gold', 'test'))


def test_all_figures_are_evalbs(tmp_path: pathlib.Path):
  files = tmp_path / 'gold', tmp_path / 'test'
  for file, lines in zip(files, (GOLD, TEST), strict=True):
    file.write_bytes(''.join(line + '\n' for line in lines).encode())
  printed = [*evalb.score_files(*files)]
  for line, pair in zip(printed[1:], GOLDEN['pairs'], strict=False):
    assert line.split()[1:] == pair['figures'], pair
  figures = [line.split(' = ')[1].strip() for line in printed if ' = ' in line]
  assert figures == GOLDEN['all'] + GOLDEN['len<=40']


PAIRS = '(S (X (A a) (A b)) (Y (A c) (A d)))'


def test_rules_that_the_figures_lack():
  for gold, test, expected in (
    ('(NP=2 (A a))', '(NP (A a))', {'matched': 1}),  # an index
    (PAIRS, '(S (A a) (Z (A b) (A c)) (A d))', {'crossing': 1}),
    (PAIRS, '(S (A a) (Z (Z (A b) (A c))) (A d))', {'crossing': 2}),
    ('(S (A a\xa0b\u2028c))\r', '(S (A a\xa0b\u2028c))', {'words': 1, 'matched': 1}),
    ('(S (PRT a) (. .))', '(S (ADVP a) (. .))', {'words': 1, 'tags': 1}),
  ):
    actual = evalb.compare([gold], [test])[0]._asdict()
    assert actual | expected == actual


OURS = [
  '(TOP (S (NP (PRP We)) (VP (VBD slept)) (. .)))',
  '(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (DT a) (NN cat)))))',
  '(TOP (S (S (NP (PRP I)) (VP (VBD left))) (, ,) (S (NP (PRP we)) (VP (VBD ran)))))',
  '(TOP (FRAG (. !)))',
]


def flat(tree: str) -> str:
  leaves = re.findall(r'\([^ ()]+ [^ ()]+\)', tree)
  return f'(TOP (S {" ".join(leaves)}))'


def test_scores_of_a_parser():
  outputs = [*OURS[:1], *map(flat, OURS[1:])]
  result = evalb.score(OURS, outputs)
  assert result.f1.score == pytest.approx(100 * 2 * 5 / (14 + 5))
  assert result.precision == result.tagging == 100
  labels = {'NP': [1, 5, 1], 'S': [3, 5, 3], 'VP': [1, 4, 1]}
  assert [*result.labels.items()] == [*labels.items()], 'the commonest first'
  assert result.treebank == hashlib.sha256('\n'.join(OURS).encode()).hexdigest()
  printed = '\n'.join(evalb.score_lines(result))
  for part in (
    'F1 52.63  evalb:COLLINS.prm|tags:gold|lengths:all\n',
    'recall 35.71, precision 100.00, complete match 33.33, crossing 0.00 a sentence\n',
    '1-10 words: F1 52.63 of 4 sentences\n',
  ):
    assert part in printed
  gold = [f'(S {" ".join(["(A a)"] * words)})' for words in (10, 11, 40, 41)]
  counts = [count for count, _ in evalb.score(gold, gold).lengths.values()]
  assert counts == [1, 1, 0, 1, 1, 3]


def test_trees_are_scored_on_the_treebanks_tags():
  """EVALB itself would refuse them: without tags it keeps the punctuation."""
  plain = [re.sub(r'[^ ()]+( [^ ()]+\))', r'XX\1', tree) for tree in OURS]
  assert evalb.compare(OURS[:1], plain[:1])[0].status == 'error'
  result = evalb.score(OURS, plain)
  assert result.f1.score == 100 and result.tagging == 0
  wrong = [OURS[0].replace('VBD', ',').replace('(. ', '(NN '), *OURS[1:]]
  result = evalb.score(OURS, wrong)
  assert result.f1.score == 100
  assert result.tagging == pytest.approx(100 * 9 / 10)  # of words but punctuation


def test_the_interval_is_the_spread_of_f1():
  """Half of 400 trees are flat; the delta method gives their spread."""
  gold = OURS[1:2] * 400
  outputs = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  result = evalb.score(gold, outputs)
  matched, both = np.array([[1, 5], [4, 8]]).repeat(200, 0).T
  ratio = 2 * matched.sum() / both.sum()
  spread = np.std(2 * matched - ratio * both) / both.mean() / 400**0.5
  low, high = result.f1.interval
  assert result.f1.score == pytest.approx(100 * ratio)
  assert high - low == pytest.approx(100 * 2 * 1.96 * spread, rel=0.1)


def test_comparison_of_two_parsers():
  gold = OURS[1:2] * 100  # six trees better, the others the same
  base = [tree if n % 2 else flat(tree) for n, tree in enumerate(gold)]
  ours = [tree if n % 2 or n < 12 else flat(tree) for n, tree in enumerate(gold)]
  (line,) = evalb.comparison_lines(gold, ours, base)
  assert line == 'F1 80.24 against 76.92: +3.32, p = 0.0335', '2 in 64, but for chance'
  (line,) = evalb.comparison_lines(gold, base, base)
  assert line.endswith('+0.00, p = 1.0000')


def test_a_root_without_a_label_counts_and_is_named(tmp_path: pathlib.Path, capsys):
  gold, test = tmp_path / 'gold', tmp_path / 'test'
  gold.write_text('( (S (A a) (B b)))\n')
  test.write_text('(TOP (S (A a) (B b)))\n')
  assert [*evalb.score_files(gold, test)][1].split()[3:5] == ['50.00', '100.00']
  assert f'{gold}: EVALB counts a root without a label' in capsys.readouterr().err


def test_trees_that_cannot_be_scored():
  two = ['(A a)'] * 2
  for score, gold, test, message in (
    (evalb.compare, two, ['(A a)', '(S a b)'], 'pair 2 of the trees: .* one word'),
    (evalb.compare, two, two[:1], '1 trees for 2 gold trees'),
    (evalb.score, ['(S (NN a) (NN b))'], ['(S (NN a))'], 'tree 1 has other words'),
    (evalb.score, [], [], '0 trees for 0'),
  ):
    with pytest.raises(UserError, match=message):
      score(gold, test)
