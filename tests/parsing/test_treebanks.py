"""Files of trees, and the Wall Street Journal with its sections and their counts."""

import gzip
import os
import pathlib
import re

import pytest

from transformer_jax.data import origin
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import treebanks

TREE = '( (S (NP-SBJ (PRP We)) (VP (VBD slept)) (. .)))\n'
PAIR = 'We slept .', '(S (NP PRP )NP (VP VBD )VP . )S'
SECTIONS = {'train': ('wsj.02-21',), 'dev': ('wsj.22',), 'test': ('wsj.23',)}


@pytest.fixture
def journal(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
  """WSJ with one file a section, which has two trees."""
  for name, sections in treebanks.WSJ.items():
    trees = 2 * (sections.last - sections.first + 1)
    monkeypatch.setitem(treebanks.WSJ, name, sections._replace(trees=trees))
  for number in range(25):
    folder = tmp_path / f'WSJ/{number:02}'
    folder.mkdir(parents=True)
    (folder / f'wsj_{number:02}00.mrg').write_text(TREE * 2)
    (folder / 'readme').write_text('no tree')
  return tmp_path


def test_the_sections_and_their_counts_are_those_of_all_parsers():
  assert treebanks.WSJ == {
    'wsj.02-21': (2, 21, 39_832),
    'wsj.22': (22, 22, 1_700),
    'wsj.23': (23, 23, 2_416),
  }


def test_the_journal_is_read_by_sections(journal: pathlib.Path):
  splits = treebanks.bitexts(journal, SECTIONS, 1)
  assert {split: len([*one[0].pairs()]) for split, one in splits.items()} == {
    'train': 40,
    'dev': 2,
    'test': 2,
  }
  assert next(splits['dev'][0].pairs()) == PAIR
  assert splits['train'][0].name == 'WSJ 02 to 21'
  about = splits['train'][0].origin()['source']
  assert (about['files'], about['lines']) == (20, 40)
  (again,) = treebanks.bitexts(journal / 'WSJ', SECTIONS, 1)['dev']
  assert [*again.pairs()] == [*splits['dev'][0].pairs()]


def test_a_journal_that_lacks_trees_is_refused(journal: pathlib.Path):
  stamp = treebanks.bitexts(journal, SECTIONS, 1)['train'][0].stamp()
  (journal / 'WSJ/21/wsj_2100.mrg').write_text(TREE)
  (bitext,) = treebanks.bitexts(journal, SECTIONS, 1)['train']
  assert bitext.stamp() != stamp
  with pytest.raises(UserError, match='02 to 21 has 39 trees, .* has 40: '):
    [*bitext.pairs()]
  (journal / 'WSJ/05/wsj_0500.mrg').unlink()
  with pytest.raises(UserError, match=r'WSJ/05: no files \*.mrg'):
    [*bitext.pairs()]


def test_a_corpus_is_of_one_journal(journal: pathlib.Path):
  """Sections that were changed are another corpus; those touched alone are not."""
  splits = treebanks.bitexts(journal, SECTIONS, 1)
  made = {}
  for split, (bitext,) in splits.items():
    assert len([*bitext.pairs()])
    made[split] = {'from': [{'name': bitext.name, **bitext.origin()}]}
  card = {'splits': made, 'stamps': origin.stamps(splits)}
  origin.check_same(card, splits)
  path = journal / 'WSJ/07/wsj_0700.mrg'
  os.utime(path, ns=(0, 1))
  origin.check_same(card, splits)
  path.write_text(TREE.replace('We', 'He') * 2)
  with pytest.raises(UserError, match='WSJ 02 to 21 is not what it was'):
    origin.check_same(card, splits)


def test_no_journal_is_said_to_be_the_ldcs(tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='WSJ/23/wsj_2300.mrg; the LDC has them'):
    treebanks.bitexts(tmp_path, SECTIONS, 1)


def test_silver_trees_stand_beside_the_sections(journal: pathlib.Path):
  (journal / 'silver.mrg').write_text(TREE * 5)
  files = {'train': ('wsj.02-21', 'silver')}
  found = treebanks.bitexts(journal, files, 1)['train']
  assert [len([*one.pairs()]) for one in found] == [40, 5]


def test_files_may_be_compressed_and_have_several_trees_a_line(tmp_path: pathlib.Path):
  (tmp_path / 'a.mrg').write_text(TREE)
  with gzip.open(tmp_path / 'b.mrg.gz', 'wt') as file:
    file.write(TREE.strip() * 2 + '\n\n' + TREE.replace(' ', '\n  '))
  files = {'train': ('a', 'b'), 'dev': ('a',), 'test': ('b:2-3',)}
  splits = treebanks.bitexts(tmp_path, files, 1)
  pairs = {split: [[*b.pairs()] for b in found] for split, found in splits.items()}
  assert pairs == {'train': [[PAIR], [PAIR] * 3], 'dev': [[PAIR]], 'test': [[PAIR] * 2]}
  about = splits['test'][0].origin()['target']
  assert (about['file'], about['lines']) == ('b.mrg.gz', 2)
  assert splits['test'][0].stamp() != splits['train'][1].stamp()


FLAWED = TREE + '(S (NN two words))\n' + TREE * 2 + '(S (NN))\n' + TREE


def test_flawed_trees_are_left_out_of_training_and_told(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
  path = tmp_path / 'a.mrg'
  path.write_text(FLAWED)
  files = {'train': ('a', 'a+subtrees'), 'dev': ('a:3-4',), 'test': ('a:3-5',)}
  splits = treebanks.bitexts(tmp_path, files, 1)
  plain, parts = splits['train']
  assert [*plain.pairs()] == [PAIR] * 4 and [*parts.pairs()] == []
  flaw = "line 2: two words, 'two' and 'words', in one bracket"
  assert capsys.readouterr().err == f'2 of 6 trees left out; {path}, {flaw}\n'
  about = plain.origin()['source']
  assert (about['lines'], about['flawed'], about['first_flawed']) == (6, 2, flaw)
  assert [*splits['dev'][0].pairs()] == [PAIR] * 2, 'none is in this part'
  with pytest.raises(UserError, match=re.escape(f'{path}, line 5: nothing in')):
    [*splits['test'][0].pairs()]


def test_a_part_reads_nothing_beyond_it(tmp_path: pathlib.Path):
  (tmp_path / 'a.mrg').write_text(TREE * 3 + 'no tree\n')
  (bitext,) = treebanks.bitexts(tmp_path, {'dev': ('a:1-3',)}, 1)['dev']
  assert [*bitext.pairs()] == [PAIR] * 3


def test_a_part_that_is_not_there_is_refused(tmp_path: pathlib.Path):
  (tmp_path / 'a.mrg').write_text(TREE * 3)
  (bitext,) = treebanks.bitexts(tmp_path, {'dev': ('a:3-4',)}, 1)['dev']
  said = 'has 1 trees from number 3 on, a.mrg, trees 3 to 4 are 2'
  with pytest.raises(UserError, match=said):
    [*bitext.pairs()]
  for part in ('0-3', '4-2', '5-4'):
    with pytest.raises(UserError, match=f'^a:{part}: trees are numbered from 1'):
      treebanks.bitexts(tmp_path, {'dev': (f'a:{part}',)}, 1)


@pytest.mark.parametrize(
  ('content', 'error'),
  [
    (TREE + '(S (A a)\n', 'line 2: the tree that begins here is not closed'),
    (TREE + '\n(S )\n', 'line 3: nothing in a bracket'),
    (TREE.encode() + b'(S (A \xff))\n', 'line 2: not UTF-8'),
  ],
)
def test_what_is_no_tree_is_named_with_file_and_line(
  content: str | bytes, error: str, tmp_path: pathlib.Path
):
  path = tmp_path / 'train.mrg'
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises(UserError, match=re.escape(f'{path}, {error}')):
    [*treebanks.read(path)]
