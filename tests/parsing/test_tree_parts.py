"""Trees that are made of a treebank's constituents."""

import pathlib

import pytest

from transformer_jax.parsing import treebanks, trees
from transformer_jax.parsing.tree_parts import Substituted
from transformer_jax.parsing.trees import Tree

# Noun phrases of one to four words, below S and below NP.
GIVEN = """
(S (NP (PRP We)) (VP (VBD saw) (NP (DT the) (NN end))) (. .))
(S (NP (NP (DT a) (NN day)) (PP (IN in) (NP (NNP May)))) (VP (VBD came)) (. .))
(S (NP (NNS Dogs) (CC and) (NNS cats)) (VP (VBP eat) (NP (JJ raw) (NN meat))))
(NP (NP (NN end)) (PP (IN of) (NP (DT the) (JJ long) (NN day))))
"""


def made(text: str, folder: pathlib.Path, kind: str, seed: int = 1) -> list[Tree]:
  (folder / 'a.mrg').write_text(text)
  (bitext,) = treebanks.bitexts(folder, {'train': (f'a+{kind}',)}, seed)['train']
  return [Tree(w.split(' '), t.split(' ')) for w, t in bitext.pairs()]


def test_subtrees_are_short_constituents_each_once(tmp_path: pathlib.Path):
  again = '(S (NP (DT the) (NN end)) (. .))\n'
  long = f'(S (NP {"(NN b) " * 13}) (NP (NP (DT the) (NN end)) (. .)))\n'
  (tmp_path / 'a.mrg').write_text(again + again + long)
  files = {'train': ('a', 'a+subtrees', 'a:1-2+subtrees')}
  whole, parts, fewer = treebanks.bitexts(tmp_path, files, 1)['train']
  the_end = 'the end', '(NP DT NN )NP'
  longer = 'the end .', '(NP (NP DT NN )NP . )NP'
  assert [*parts.pairs()] == [the_end, longer]
  assert [*fewer.pairs()] == [the_end]
  assert parts.name == 'subtrees of a.mrg' and parts.stamp() != whole.stamp()
  assert len([*whole.pairs()]) == 3 and parts.origin() == whole.origin()


def edges(tree: Tree) -> set[tuple[str, str, tuple, tuple]]:
  """Each constituent with its parent's label."""
  spans = trees.constituents(tree)
  lists = ((s.label, s.parent, *s.of(tree)) for s in spans)
  return {(label, parent, (*w,), (*t,)) for label, parent, w, t in lists}


def test_substituted_trees_have_constituents_of_the_treebank(tmp_path: pathlib.Path):
  """New ones, each once, valid; what is below a label had the same label above it."""
  found = made(GIVEN, tmp_path, 'substituted')
  given = [*treebanks.read(tmp_path / 'a.mrg')]
  assert len(found) > 5 and not any(tree in given for tree in found)
  assert len({str(tree) for tree in found}) == len(found)
  assert [*trees.parse(map(str, found), 'found')] == found
  rules = lambda some: {
    (span.label, span.parent) for tree in some for span in trees.constituents(tree)
  }
  assert rules(found) == rules(given)
  assert {word for tree in found for word in tree.words} <= {
    word for tree in given for word in tree.words
  }


def test_a_short_tree_gets_one(tmp_path: pathlib.Path):
  found = made(GIVEN, tmp_path, 'substituted')
  given = [*treebanks.read(tmp_path / 'a.mrg')]
  known = set().union(*map(edges, given))
  for tree in found:
    if len(tree.words) < 8:
      # What is new lies around the constituent that was replaced.
      new = [words for *_, words, _ in edges(tree) - known]
      assert all(set(a) <= set(b) or set(b) <= set(a) for a in new for b in new)


def test_a_long_tree_gets_several(tmp_path: pathlib.Path):
  """1 + 17 // 8 of 17 words: almost all noun phrases to choose from are the other's."""
  others = ' '.join(f'(NP (X x{i}))' for i in range(99))
  text = f'(S {"(NP (A a)) " * 17})\n(S {others} (V v))\n'
  found = [tree.words for tree in made(text, tmp_path, 'substituted')]
  new = [17 - words.count('a') for words in found if len(words) == 17]
  assert len(new) > 3 and max(new) == 3


def test_a_replacement_is_at_most_twice_as_long_and_three_words(tmp_path: pathlib.Path):
  nouns = ' '.join(f'(N n{i})' for i in range(6))
  text = f'(S (NP (D d)) (V v))\n(S (NP {nouns}) (V w))\n'
  words = lambda text: {' '.join(t.words) for t in made(text, tmp_path, 'substituted')}
  assert words(text) == {'d w'}
  assert words(text.replace('(N n5)', '')) == {'d w', 'n0 n1 n2 n3 n4 v'}


@pytest.mark.parametrize('text', ['(S (A a))\n', '(A a)\n'])
def test_trees_without_parts_make_no_others(text: str, tmp_path: pathlib.Path):
  assert made(text, tmp_path, 'substituted') == []


def test_a_seed_makes_the_same_trees(tmp_path: pathlib.Path):
  first, again, other = (made(GIVEN, tmp_path, 'substituted', s) for s in (1, 1, 2))
  assert first == again != other
  read = treebanks.TreeFile(tmp_path / 'a.mrg', None, False)
  one, two = Substituted(read, 1), Substituted(read, 2)
  assert one.stamp() != two.stamp() != read.stamp()
  assert one.origin() == read.origin() and one.name == 'substituted trees of a.mrg'
