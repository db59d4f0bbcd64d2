"""Files of trees, the Wall Street Journal's sections, and augmented trees."""

import hashlib
import pathlib
import re

import pytest

from toy.config import tiny
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import treebanks, trees
from transformer_jax.parsing.trees import Tree
from transformer_jax.prepare import cleaning

TREE = '( (S (NP-SBJ (PRP We)) (VP (VBD slept)) (. .)))\n'
PAIR = 'We slept .', '(S (NP PRP )NP (VP VBD )VP . )S'
SECTIONS = {'train': ('wsj.02-21',), 'dev': ('wsj.22',), 'test': ('wsj.23',)}


def test_the_journal_is_read_by_sections(tmp_path: pathlib.Path, monkeypatch):
  """It has one file of two trees in each; none may be missing."""
  for name, sections in treebanks.WSJ.items():
    trees = 2 * (sections.last - sections.first + 1)
    monkeypatch.setitem(treebanks.WSJ, name, sections._replace(trees=trees))
  with pytest.raises(UserError, match='WSJ/23/wsj_2300.mrg; the LDC has them'):
    treebanks.read_splits(tmp_path, SECTIONS, 1)
  for number in range(25):
    folder = tmp_path / f'WSJ/{number:02}'
    folder.mkdir(parents=True)
    (folder / f'wsj_{number:02}00.mrg').write_text(TREE * 2)
    (folder / 'readme').write_text('no tree')
  for folder in (tmp_path, tmp_path / 'WSJ'):
    splits = treebanks.read_splits(folder, SECTIONS, 1)
    pairs = [[*one.pairs()] for (one,) in splits.values()]
    assert pairs == [[PAIR] * 40, [PAIR] * 2, [PAIR] * 2]
  (tmp_path / 'WSJ/21/wsj_2100.mrg').write_text(TREE)
  with pytest.raises(UserError, match='02 to 21 should be 40 trees, .* has 39'):
    [*treebanks.read_splits(tmp_path, SECTIONS, 1)['train'][0].pairs()]


FLAWED = TREE + '(S (NN two words))\n' + TREE * 2 + '(S (NN))\n' + TREE


def test_flawed_trees_are_counted_and_left_out_of_training(tmp_path: pathlib.Path):
  path = tmp_path / 'a.mrg'
  path.write_text(FLAWED)
  splits = treebanks.read_splits(tmp_path, {'train': ('a',), 'dev': ('a',)}, 1)
  texts = [tmp_path / 'words', tmp_path / 'tokens']
  config = tiny(**{'data.cleaning.off': True})
  (plain,) = cleaning.write_clean_text(config, splits['train'], texts, (str, str))
  assert texts[0].read_text() == f'{PAIR[0]}\n' * 4
  flaw = f"{path}, line 2: '( NN two words )' is not one tag with one word"
  assert (plain.read, plain.dropped) == (6, {f'flawed (the first: {flaw})': 2})
  with pytest.raises(UserError, match=re.escape(flaw)):
    [*splits['dev'][0].pairs()]


# Noun phrases of one to four words, below S and below NP.
GIVEN = """
(S (NP (PRP We)) (VP (VBD saw) (NP (DT the) (NN end))) (. .))
(S (NP (NP (DT a) (NN day)) (PP (IN in) (NP (NNP May)))) (VP (VBD came)) (. .))
(S (NP (NNS Dogs) (CC and) (NNS cats)) (VP (VBP eat) (NP (JJ raw) (NN meat))))
(NP (NP (NN end)) (PP (IN of) (NP (DT the) (JJ long) (NN day))))
"""
# Of 16 words three constituents are replaced; one of one word becomes five, never six.
GIVEN += f'(S {"(NP (N x)) " * 16}) (S (NP {"(N a)" * 5}) (V b)) (S (NP {"(N a)" * 6}))'


def trees_of(text: str, folder: pathlib.Path, kind: str, seed: int = 1) -> list[Tree]:
  (folder / 'a.mrg').write_text(text)
  (bitext,) = treebanks.read_splits(folder, {'train': (f'a+{kind}',)}, seed)['train']
  return [Tree(w.split(' '), t.split(' ')) for w, t in bitext.pairs()]


def test_subtrees_are_short_constituents_each_once(tmp_path: pathlib.Path):
  again = '(S (NP (DT the) (NN end)) (. .))\n'
  long = f'(S (NP {"(NN b) " * 13}) (NP (NP (DT the) (NN end)) (. .)))\n'
  parts = trees_of(again + again + long, tmp_path, 'subtrees')
  lines = '(NP (DT the) (NN end))', '(NP (NP (DT the) (NN end)) (. .))'
  assert parts == [*trees.parse(lines, 'made')]
  files = {'train': ('a', 'a+subtrees')}
  (_, parts) = treebanks.read_splits(tmp_path, files, 1)['train']
  assert parts.is_derived


def test_substituted_trees_have_constituents_of_the_treebank(tmp_path: pathlib.Path):
  """They are new and valid; each label keeps the label above it.

  A parser that is trained again has the same trees.
  """
  results = trees_of(GIVEN, tmp_path, 'substituted')
  digest = hashlib.sha256('\n'.join(map(str, results)).encode()).hexdigest()
  assert digest[:16] == 'c9da9cfb5ca1e311'
  originals = [*treebanks.read_whole(tmp_path / 'a.mrg')]
  assert len(results) > 5 and not any(tree in originals for tree in results)
  assert [*trees.parse(map(str, results), 'made')] == results
  rules = lambda some: {
    (node.label, parent)
    for tree in some
    for node, parent in trees.nest(tree).constituents()
  }
  assert rules(results) == rules(originals)
  assert results != trees_of(GIVEN, tmp_path, 'substituted', seed=2)
