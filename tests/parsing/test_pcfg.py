"""The PCFG's best trees, its tags of unknown words, and its flat trees."""

import hashlib
import operator
import pathlib
import random

import pytest

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import pcfg, trees
from transformer_jax.parsing.trees import Tree

LOW = '(S (NP (N they)) (VP (V saw) (NP (NP (N it)) (PP (P with) (NP (N it))))))'
BARE = '(S (NP (N it)) (VP (V slept)))'


def read(*lines: str) -> list[Tree]:
  return [*trees.parse(lines, 'made')]


RULES = {
  'S': 'NP VP|NP VP .|S CC S',
  'NP': 'DT NN|NNP|NP PP|DT JJ NN|NN NN',
  'VP': 'VBD|VBD NP|VP PP|VBD S',
  'PP': 'IN NP',
}
WORDS = {'DT': 'the a', 'VBD': 'saw ran', 'IN': 'in of', 'CC': 'and but', '.': '. !'}
RARE = {'NN': 'dog cat-tail x9 walk', 'NNP': 'Ann NASA', 'JJ': 'old daily', 'VBD': 'ed'}


def random_tree(rng: random.Random, label: str = 'S', depth: int = 0) -> str:
  if label in RULES:
    rules = RULES[label].split('|')
    rule = rng.choice(rules if depth < 5 else rules[:2]).split()
    return f'({label} {" ".join(random_tree(rng, x, depth + 1) for x in rule)})'
  word = rng.choice((WORDS.get(label, '') + ' ' + RARE.get(label, '')).split())
  return f'({label} {word}{rng.randrange(9) if rng.random() < 0.2 else ""})'


def test_best_trees_are_for_ever():
  """Those in results/parsing must come again; and repair changes no tree."""
  rng = random.Random(1)
  treebank = read(*(random_tree(rng) for _ in range(300)))
  assert read(*map(str, treebank)) == treebank
  assert [trees.repair(one.tokens, one.words) for one in treebank] == treebank
  grammar = pcfg.Grammar(treebank[:250])
  short = [one for one in treebank[250:] if len(one.words) < 20]
  parsed = [grammar.parse(one.words) for one in short]
  assert (len(short), sum(map(operator.eq, short, parsed))) == (42, 29)
  text = '\n'.join(map(str, parsed))
  assert hashlib.sha256(text.encode()).hexdigest()[:16] == 'fed52f29665db43c'


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
  folder = tmp_path.name
  assert (kept.train, kept.test) == ([f'{folder}/train'] * 2, f'{folder}/test')
  assert pcfg.read_baseline(output) is pcfg.read_baseline(tmp_path / 'none') is None
  with pytest.raises(UserError, match='give a name in .mrg'):
    [*pcfg.score_file([train], test, tmp_path / 'out.txt')]
  assert f'F1 {kept.parsing.f1.score:.2f} ' in printed[0]
  test.write_text('')
  with pytest.raises(UserError, match='--train and --test take files with trees'):
    [*pcfg.score_file([train], test, output)]
