"""Dev and test that are drawn from training."""

import pathlib
import random

import pytest

from toy import corpus
from transformer_jax.data import held_out
from transformer_jax.machine.errors import UserError

DRAWN = corpus.CORPUS._replace(
  files={'train': ('train',), 'dev': ('drawn:7',), 'test': ('drawn:5',)}
)


def raw(folder: pathlib.Path, shuffled: bool = False) -> pathlib.Path:
  """Every source stands there twice, with two translations; one line is no text."""
  folder.mkdir(parents=True)
  pairs = [(f'{a} {b}', f'{b} {a}') for a in corpus.WORDS for b in corpus.WORDS]
  pairs += [(source, target + ' x') for source, target in pairs]
  if shuffled:
    random.Random(1).shuffle(pairs)
  sides = ['\n'.join(side).encode() for side in zip(*pairs, strict=True)]
  corpus.write(folder, 'train', *(side + b'\n\xff\xff\n' for side in sides))
  return folder


def texts(folder: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
  sides = [corpus.decoded(folder, f'train.{side}') for side in ('source', 'target')]
  held = {split: held_out.text(folder, split) for split in ('dev', 'test')}
  return {'train': sides} | held


def test_drawn(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture):
  """So many of each, and no source is in two splits; it is said, and on the card."""
  card = corpus.prepare(raw(tmp_path / 'raw'), DRAWN)
  found = texts(tmp_path / 'data' / 'toy')
  sources = {split: sides[0] for split, sides in found.items()}
  assert [len(sources[split]) for split in ('train', 'dev', 'test')] == [176, 7, 5]
  assert len({*sources['train'], *sources['dev'], *sources['test']}) == 88 + 7 + 5
  assert not {*sources['train']} & {*sources['dev'], *sources['test']}
  for source, target in zip(*found['dev'], strict=True):
    assert target.split() == source.split()[::-1]
  said = capsys.readouterr().err
  assert 'drawing 7 for dev and 5 for test from training, seed 1' in said
  assert '24 pairs are left out of training' in said
  assert card['splits']['train']['from'][0]['drawn_for_dev_and_test'] == 24
  assert card['splits']['dev']['from'][0]['name'].startswith('7 pairs drawn from train')


def test_whatever_the_order(tmp_path: pathlib.Path):
  """The same text gives the same dev and test; another seed gives others."""
  found = []
  for name, shuffled, seed in (('a', False, 1), ('b', True, 1), ('c', False, 2)):
    corpus.prepare(raw(tmp_path / name / 'raw', shuffled), DRAWN._replace(seed=seed))
    found.append(texts(tmp_path / name / 'data' / 'toy'))
  assert found[0]['dev'] == found[1]['dev'] and found[0]['test'] == found[1]['test']
  assert found[0]['dev'] != found[2]['dev']


@pytest.mark.parametrize(
  ('stem', 'message'),
  [
    ('drawn:many', "files.dev='drawn:many': drawn: and a number"),
    ('drawn:0', 'drawn: and a number'),
    (
      'drawn:99',
      r'100 good pairs of different sources \(left out: 1 not UTF-8\), and 99 for dev',
    ),
  ],
)
def test_what_cannot_be_drawn(stem: str, message: str, tmp_path: pathlib.Path):
  files = DRAWN.files | {'dev': (stem,)}
  with pytest.raises(UserError, match=message):
    corpus.prepare(raw(tmp_path / 'raw'), DRAWN._replace(files=files))
