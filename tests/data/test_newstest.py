"""Any copy of newstest gets its official order back, or it is said why not."""

import pathlib
import random

import pytest
import sacrebleu.dataset

from transformer_jax.data import newstest
from transformer_jax.machine.errors import UserError

SETS = [(name, other) for name in newstest.SETS for other in ('de', 'fr')]


def text(shared_data: pathlib.Path, name: str, other: str) -> list[tuple[str, str]]:
  """English and the other language."""
  folder = shared_data / 'newstest' / f'en-{other}'
  sides = [(folder / f'{name}.{side}').read_bytes().decode() for side in ('en', other)]
  return list(zip(*(side.split('\n')[:-1] for side in sides), strict=True))


def sgml(sentences: list[str]) -> list[str]:
  """As they could stand in a file of WMT: escaped, white space added."""
  escaped = [
    s.replace('&', '&amp;').replace('"', '&quot;').replace('<', '&lt;')
    for s in sentences
  ]
  return [s.replace(' ', '  ', 1) + ' \r' for s in escaped]


@pytest.fixture
def orders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
  """An empty folder of lists."""
  monkeypatch.setattr(newstest, 'ORDERS', tmp_path)
  return tmp_path


PAIRS = [
  ('One & two', 'Eins & zwei'),
  ('Yes', 'Ja'),
  ('Two < "three"', 'Zwei < „drei“'),
  ('Yes', 'Ja'),
  ('Three', 'Drei'),
]


def test_order_of_a_small_set(orders: pathlib.Path):
  """In either direction; equal pairs are all there."""
  newstest.write_order('newstest2013', PAIRS, ('en', 'de'))
  for seed in range(20):
    mixed = random.Random(seed).sample(PAIRS, len(PAIRS))
    assert newstest.restore_order('newstest2013', mixed, ('en', 'de')) == PAIRS
    turned = [pair[::-1] for pair in mixed]
    assert newstest.restore_order('newstest2013', turned, ('de', 'en')) == [
      pair[::-1] for pair in PAIRS
    ]


def test_pairs_are_given_back_as_they_are(orders: pathlib.Path):
  """What the fingerprint makes equal is not made equal in the text."""
  newstest.write_order('newstest2013', PAIRS, ('en', 'de'))
  marked_up = list(zip(*(sgml(list(s)) for s in zip(*PAIRS, strict=True)), strict=True))
  marked_up[1] = 'Yes ', 'Ja'
  back = newstest.restore_order('newstest2013', marked_up[::-1], ('en', 'de'))
  assert sorted(back) == sorted(marked_up)
  assert back[::2] == marked_up[::2]


@pytest.mark.parametrize(
  ('given', 'complaint'),
  [
    (PAIRS[:-1], '1 of its 5 pairs are missing and 0 pairs are not of it, .* line 5'),
    (PAIRS + PAIRS[1:2], "0 of its 5 .* missing and 1 pairs are not of it, .*'Yes'"),
    (PAIRS[:-1] + [('Four', 'Vier')], "1 of its 5 .* 1 pairs are not of it.*'Four'"),
    (PAIRS[:1] + PAIRS[2:], '1 of its 5 pairs are missing and 0 .* line 2'),
    ([], '5 of its 5 pairs are missing'),
    ([pair[::-1] for pair in PAIRS], "5 of its 5 .* 5 pairs are not .*'Eins & zwei'"),
  ],
)
def test_another_set_is_refused(given, complaint: str, orders: pathlib.Path):
  newstest.write_order('newstest2013', PAIRS, ('en', 'de'))
  with pytest.raises(UserError, match=f'^not newstest2013 in en and de.*{complaint}'):
    newstest.restore_order('newstest2013', given, ('en', 'de'))


@pytest.mark.parametrize('languages', [('en', 'cs'), ('de', 'fr'), ('en', 'en')])
def test_languages_without_a_list(languages: tuple[str, str]):
  with pytest.raises(UserError, match='no order is known of newstest2013'):
    newstest.restore_order('newstest2013', PAIRS, languages)
  assert newstest.recognise(PAIRS, languages) is None


def test_another_sentence_has_another_fingerprint():
  sources = 'a b', 'a', 'c', 'ab', 'A b', 'a b.', 'a bé', 'a be\u0301'
  targets = 'c', 'b c', 'a b', 'c', 'c', 'c', 'c', 'c'
  pairs = zip(sources, targets, strict=True)
  assert len({newstest.fingerprint(pair, ('en', 'de')) for pair in pairs}) == 8


def test_the_lists_have_every_line():
  """3,000 and 3,003 pairs; newstest2013 says four things twice in three languages."""
  for name, other in SETS:
    marks = newstest.order(name, (other, 'en'))
    of = (3000, 2996) if name == 'newstest2013' else (3003, 3003)
    assert (len(marks), len(set(marks))) == of


@pytest.mark.parametrize(('name', 'other'), SETS)
def test_the_lists_can_be_made_again(name: str, other: str, shared_data, orders):
  committed = pathlib.Path(newstest.__file__).with_name('newstest_order')
  pairs = text(shared_data, name, other)
  newstest.write_order(name, pairs, ('en', other))
  (made,) = orders.iterdir()
  assert made.read_bytes() == (committed / made.name).read_bytes()
  # As many fingerprints as there are different pairs: none stands for two.
  assert len(set(newstest.order(name, ('en', other)))) == len(set(pairs))


@pytest.mark.parametrize(('name', 'other'), SETS)
def test_newstest_comes_back_byte_for_byte(name: str, other: str, shared_data):
  pairs = text(shared_data, name, other)
  mixed = random.Random(1).sample(pairs, len(pairs))
  assert newstest.restore_order(name, mixed, ('en', other)) == pairs
  marked_up = zip(*(sgml(list(side)) for side in zip(*mixed, strict=True)), strict=True)
  plain = [(newstest.plain(a), newstest.plain(b)) for a, b in marked_up]
  assert newstest.restore_order(name, plain, ('en', other)) == pairs


@pytest.mark.parametrize(('name', 'other'), SETS)
def test_newstest_is_recognised(name: str, other: str, shared_data):
  pairs = text(shared_data, name, other)
  whole = {
    'set': name,
    'of': len(pairs),
    'known': len(pairs),
    'unknown': 0,
    'in_order': True,
    'swapped': False,
  }
  look = newstest.recognise
  assert look(pairs, ('en', other)) == whole
  turned = [pair[::-1] for pair in pairs]
  assert look(turned, (other, 'en')) == whole
  assert look(turned, ('en', other)) == whole | {'swapped': True}
  # As the filtered newstest2014 en-de is: fewer, in order.
  kept = sorted(random.Random(2).sample(range(len(pairs)), 2737))
  fewer = [pairs[i] for i in kept]
  assert look(fewer, ('en', other)) == whole | {'known': 2737}
  mixed = random.Random(3).sample(pairs, len(pairs))
  assert look(mixed, ('en', other)) == whole | {'in_order': False}
  more = [*pairs[:10], ('Something', 'else'), *pairs[10:]]
  assert look(more, ('en', other)) == whole | {'unknown': 1}
  other_text = [(a + ' x', b) for a, b in pairs]
  assert look(other_text, ('en', other)) is None
  assert look(other_text + pairs[:100], ('en', other)) is None


def test_a_set_twice_over(orders: pathlib.Path):
  newstest.write_order('newstest2013', PAIRS, ('en', 'de'))
  found = newstest.recognise(PAIRS * 2, ('en', 'de'))
  assert (found['of'], found['known'], found['unknown']) == (5, 5, 5)
  assert newstest.recognise(PAIRS * 3, ('en', 'de')) is None
  assert newstest.recognise([], ('en', 'de')) is None


@pytest.mark.parametrize('direction', ['en-de', 'de-en', 'en-fr', 'fr-en'])
def test_sacrebleu_has_the_same_set(
  direction: str, shared_data, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """Its own reading of WMT's SGML files, for want of the network made from our text.

  It takes no-break spaces for spaces; the fingerprints are the same.
  """
  full = sacrebleu.dataset.DATASETS['wmt14/full']
  monkeypatch.setattr(full, '_outdir', str(tmp_path))
  monkeypatch.setattr(full, '_rawdir', str(tmp_path / 'raw'))
  monkeypatch.setattr(full, 'maybe_download', lambda: None)
  other = direction.replace('en', '').strip('-')
  english, foreign = map(
    list, zip(*text(shared_data, 'newstest2014', other), strict=True)
  )
  source, target = (english, foreign) if direction[:2] == 'en' else (foreign, english)
  for file, lines in zip(full.langpairs[direction], (source, target), strict=True):
    path = tmp_path / 'raw' / file
    path.parent.mkdir(parents=True, exist_ok=True)
    segments = [f'<seg id="{n}">{line} </seg>' for n, line in enumerate(lines, 1)]
    path.write_text('\n'.join(['<doc>', *segments, '</doc>\n']), encoding='utf-8')
  full.process_to_text(direction)
  sides = [
    pathlib.Path(full._get_txt_file_path(direction, field))
    .read_text(encoding='utf-8')
    .split('\n')[:-1]
    for field in ('src', 'ref')
  ]
  languages = tuple(direction.split('-'))
  marks = [newstest.fingerprint(pair, languages) for pair in zip(*sides, strict=True)]
  assert marks == newstest.order('newstest2014', languages)
  if other == 'fr':
    assert sides != [source, target]
