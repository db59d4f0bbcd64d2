"""What training has of dev and test is counted and said, and nothing is dropped."""

import pathlib

import pytest

from toy.corpus import CORPUS, prepare, write
from transformer_jax.data import encoding
from transformer_jax.data.overlap import Overlap


def test_counts():
  """Of the lines of dev and test, however often; each split has its own."""
  dev = [('a', 'A'), ('a', 'A'), ('b', 'B'), ('c', 'C'), ('d', 'D'), ('', '')]
  test = [('a', 'X'), ('y', 'B')]
  found = Overlap({'dev': dev, 'test': test})
  assert found.counts()['dev'] == {'pairs': 0, 'sources': 0, 'targets': 0}
  found.look([b'a\n', b'b\n'], [b'A\n', b'x\n'])
  found.look([b'x\n', b'a\n', b' d\n', b'c'], [b'C\n', b'A\n', b'D\n', b'C'])
  assert found.counts() == {
    'dev': {'pairs': 2, 'sources': 3, 'targets': 4},
    'test': {'pairs': 0, 'sources': 1, 'targets': 0},
  }


@pytest.mark.parametrize('block', [1, 7, 5000])
def test_it_is_on_the_card_and_said(block: int, raw: pathlib.Path, monkeypatch, capsys):
  """Pairs that are dropped from training are not in it."""
  monkeypatch.setattr(encoding, 'BLOCK', block)
  ours = [b'one one one', b'two two two', b'ten ' * 60, b'six \xc3\xa9']
  theirs = [b'eins eins', b'zwei zwei zwei', b'zehn ' * 60, b'sechs \xc3\xa9']
  write(raw, 'leak', *(b'\n'.join(side) + b'\n' for side in (ours, theirs)))
  other = [b'fremd', *theirs[1:]]
  write(raw, 'test', *(b'\n'.join(side) + b'\n' for side in (ours, other)))
  write(raw, 'dev', b'nowhere\n', b'nirgends\n')
  files = CORPUS.files | {'train': ('train', 'leak')}
  corpus = CORPUS._replace(files=files, max_length=50, vocab_size=70)
  splits = prepare(raw, corpus)['splits']
  assert splits['train']['kept'] == 203 and splits['test']['kept'] == 4
  assert splits['test']['in_train'] == {'pairs': 2, 'sources': 3, 'targets': 2}
  assert splits['dev']['in_train'] == {'pairs': 0, 'sources': 0, 'targets': 0}
  said = capsys.readouterr().err
  assert (
    'test (4 pairs): training has 2 of the pairs, 3 of the sources, 2 of the targets '
    'too\n'
  ) in said
  assert 'dev (1 pairs): training has 0 of the pairs, ' in said
