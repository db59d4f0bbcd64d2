"""The PCFG's best trees, its tags of unknown words, and its flat trees."""

import pathlib

import pytest

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import pcfg, trees
from transformer_jax.parsing.trees import Tree

LOW = '(S (NP (N they)) (VP (V saw) (NP (NP (N it)) (PP (P with) (NP (N it))))))'
HIGH = '(S (NP (N they)) (VP (V saw) (NP (N it)) (PP (P with) (NP (N it)))))'
BARE = '(S (NP (N it)) (VP (V slept)))'


def read(*lines: str) -> list[Tree]:
  return [*trees.parse(lines, 'made')]


def tree(line: str) -> Tree:
  return read(line)[0]


@pytest.mark.parametrize(
  ('treebank', 'expected'),
  [([LOW, LOW, HIGH, BARE], LOW), ([LOW, HIGH, HIGH, BARE], HIGH)],
)
def test_the_tree_is_the_one_seen_more_often(treebank: list[str], expected: str):
  grammar = pcfg.Grammar(read(*treebank))
  for line in (expected, BARE):
    assert grammar.parse(tree(line).words) == tree(line)


def test_constituents_of_any_width_and_chains_come_back():
  for line in (
    '(S (A a) (B b) (C c) (D d) (E e))',
    '(A a) (B b)',
    '(S (S (S (A a) (B b)) (C c)) (S (S (D d))))',
  ):
    (one,) = read(f'(TOP {line})')
    assert pcfg.Grammar([one]).parse(one.words) == one


def test_unknown_words_get_tags_by_their_shape():
  first, second = '(S (N dogs) (V walked) (J daily))', '(S (N cats) (V swam) (J early))'
  parsed = pcfg.Grammar(read(first, second)).parse('rats talked weekly'.split())
  assert parsed.tokens == '(S N V J )S'.split()


def test_rare_words_alone_say_what_unknown_ones_are():
  often = ['(S (N dogs) (N ran))'] * 4
  for count, tag in ((1, 'V'), (2, 'N')):
    grammar = pcfg.Grammar(read(*often, *['(S (N dogs) (V sped))'] * count))
    assert grammar.parse(['dogs', 'shed']).tokens == ['(S', 'N', tag, ')S']


def test_the_score_of_a_word_is_its_probability_given_the_symbol():
  """A has x once in ten times, B always; P(symbol | word) would be equal."""
  rest = ['(S (A x) (C y))', '(S (B x) (C y))']
  lexicon = pcfg.Grammar(read(*['(S (A z) (C y))'] * 9, *rest))._lexicon
  scores = {symbol.labels[-1]: p for symbol, p in lexicon.scores('x', True).items()}
  assert scores['B'] > scores['A'] + 1


def test_a_rare_root_needs_more_evidence():
  often, other = '(S (A a) (B b))', '(S (C c) (D d))'
  grammar = pcfg.Grammar(read(often, often, other, other, '(FRAG (A a) (B b))'))
  assert grammar.parse(['a', 'b']) == tree(often)


def test_what_the_grammar_cannot_read_has_no_tree():
  grammar = pcfg.Grammar(read('(S (A a) (B b))'))
  assert grammar.parse(['a', 'b', 'a']) is None
  assert grammar.parse([]) is None
  # XX may be a tag of the treebank, too.
  assert pcfg.Grammar(read('(XX a)')).parse(['b']).tokens == ['XX']


def test_files_are_parsed_and_scored(tmp_path: pathlib.Path):
  train, test, output = (tmp_path / f'{name}.mrg' for name in ('train', 'test', 'out'))
  train.write_text(f'{LOW}\n{BARE}\n')
  test.write_text(f'{BARE}\n(S (V slept))\n')
  printed = [*pcfg.score_file([train, train], test, output)]
  assert output.read_text() == f'(TOP {BARE})\n(TOP (XX slept))\n'
  assert printed[0].startswith('F1 85.71  evalb:COLLINS.prm')
  assert '1 of 2 sentences got a flat tree' in printed
  kept = pcfg.read_baseline(output.with_suffix('.json'))
  assert f'F1 {kept.parsing.f1.score:.2f} ' in printed[0]
  test.write_text('')
  with pytest.raises(UserError, match='--train and --test take files with trees'):
    [*pcfg.score_file([train], test, output)]
  assert output.read_text(), 'an earlier output is still there'
