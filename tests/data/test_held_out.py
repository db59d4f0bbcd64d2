"""Dev and test come through byte for byte; what is not quite newstest is said."""

import pathlib
import random

import pytest

import toy.corpus
from transformer_jax.data import held_out, newstest, token_files, vocabulary
from transformer_jax.data.lines import Pair
from transformer_jax.machine.errors import UserError
from transformer_jax.quickstart_corpus.embedded import InMemoryBitext

EN_DE = 'en', 'de'
SETS = [
  ('en-de', 'newstest2013', 3000),
  ('en-de', 'newstest2014', 3003),
  ('en-fr', 'newstest2013', 3000),
  ('en-fr', 'newstest2014', 3003),
]
ODD = ' a  b \n\n\u2028x\u2029\x85y\x0b\x0c\x1c\rz\n\ufeff\u200be\u0301\n\x00\n'


def bitexts(*pairs: list[Pair]) -> list[InMemoryBitext]:
  return [
    InMemoryBitext(f'FILE{n}', some, {'lines': len(some)})
    for n, some in enumerate(pairs)
  ]


def read(
  pairs: list[Pair], languages=EN_DE, reorder: bool = False
) -> tuple[list, dict]:
  return held_out.read('dev', bitexts(pairs), languages, reorder)


def published(shared_data: pathlib.Path, languages: str, name: str) -> list[Pair]:
  folder = shared_data / 'newstest' / languages
  sides = [
    (folder / f'{name}.{language}').read_bytes().decode().split('\n')[:-1]
    for language in languages.split('-')
  ]
  return list(zip(*sides, strict=True))


# Any text


def test_text_comes_through(tmp_path: pathlib.Path):
  """Whatever is in a line; nothing is dropped, empty pairs neither."""
  toy.corpus.write_raw(tmp_path / 'raw')
  toy.corpus.prepare(tmp_path / 'raw')
  words = vocabulary.read(tmp_path / 'data' / 'toy', apart=False)
  sources = ODD.split('\n')[:-1] + ['one'] * 5
  pairs = list(zip(sources, reversed(sources), strict=True))
  found, about = held_out.read('dev', bitexts(pairs[:4], pairs[4:]), EN_DE, True)
  assert found == pairs
  assert about == {
    'from': [{'name': 'FILE0', 'lines': 4}, {'name': 'FILE1', 'lines': 6}]
  }
  written = held_out.write(tmp_path, 'dev', found, words, lambda line: line)
  assert (tmp_path / 'dev.source.txt').read_bytes() == (ODD + 'one\n' * 5).encode()
  assert held_out.text(tmp_path, 'dev') == (sources, sources[::-1])
  for side in ('source', 'target'):
    tokens = token_files.Side(tmp_path / f'dev.{side}')
    assert len(tokens) == 10 == written['read'] == written['kept']
    assert len(tokens.tokens) == written['tokens'][side]
  words_of = lambda side: words.source.decode(
    [side.tokens[side.offsets[-6] :].tolist()]
  )
  assert words_of(token_files.Side(tmp_path / 'dev.source')) == [' '.join(['one'] * 5)]


@pytest.mark.parametrize(('side', 'name'), [(0, 'source'), (1, 'target')])
@pytest.mark.parametrize(
  ('bad', 'fault'), [(None, 'not UTF-8'), ('a\nb', 'a line feed inside')]
)
def test_a_line_that_is_no_line(side: int, name: str, bad: str | None, fault: str):
  pair = ['x', 'x']
  pair[side] = bad
  given = bitexts([('a', 'b')], [('a', 'b'), ('', ''), tuple(pair)])
  message = f'FILE1, line 3 of the {name}: {fault}; mend the test file'
  with pytest.raises(UserError, match=message):
    held_out.read('test', given, EN_DE, False)


def test_an_empty_split():
  for given, names in (
    (bitexts([]), 'FILE0'),
    (bitexts([], []), 'FILE0, FILE1'),
    ([], 'no files'),
  ):
    with pytest.raises(UserError, match=f'^{names}: the dev split is empty'):
      held_out.read('dev', given, EN_DE, False)


def test_swapped_sides_of_any_text():
  pairs = [('Das ist nicht der Tag', 'This is not the day of it')] * 3
  assert read(pairs, ('de', 'en'))[0] == pairs
  with pytest.raises(UserError, match='FILE0: the source looks like de and the target'):
    read(pairs)


# newstest


@pytest.mark.parametrize(('languages', 'name', 'count'), SETS)
@pytest.mark.parametrize('reorder', [False, True])
def test_newstest_as_published(languages, name, count, reorder, shared_data, capsys):
  """In either direction: as it is, with a word on the card."""
  pairs = published(shared_data, languages, name)
  pair = tuple(languages.split('-'))
  for given, direction in ((pairs, pair), ([p[::-1] for p in pairs], pair[::-1])):
    found, about = read(given, direction, reorder)
    assert found == given
    official = {'set': name, 'of': count, 'known': count, 'unknown': 0}
    assert about['official'] == official | {'in_order': True, 'swapped': False}
  assert capsys.readouterr().err == ''


def test_newstest_with_entities(shared_data):
  """As Parquet files may have it: where the corpus is WMT14, it is made plain."""
  pairs = published(shared_data, 'en-de', 'newstest2014')
  entities = lambda line: line.replace('&', '&amp;').replace('"', '&quot;')
  given = [(entities(a), entities(b)) for a, b in pairs]
  assert read(given, EN_DE, True)[0] == pairs != given
  assert read(given, EN_DE, False)[0] == given


@pytest.mark.parametrize(('languages', 'name', 'count'), SETS)
def test_newstest_shuffled(languages, name, count, shared_data, capsys):
  """Noted; where the corpus is WMT14, put back into its order."""
  pairs, pair = published(shared_data, languages, name), tuple(languages.split('-'))
  mixed = random.Random(1).sample(pairs, count)
  found, about = read(mixed, pair, True)
  assert found == pairs
  assert (
    about['official']['in_order'] is True and about['official']['reordered'] is True
  )
  assert capsys.readouterr().err == ''
  found, about = read(mixed, pair, False)
  assert found == mixed and about['official']['in_order'] is False
  said = capsys.readouterr().err
  assert said == (
    f'dev: {count:,} of the {count:,} pairs of {name}, 0 others, in another order: its '
    f"scores compare with nobody's\n"
  )


@pytest.mark.parametrize('reorder', [False, True])
def test_newstest_filtered(reorder: bool, shared_data, capsys):
  """As newstest2014 with 2,737 pairs goes round: left as it is, but said."""
  pairs = published(shared_data, 'en-de', 'newstest2014')
  some = sorted(random.Random(1).sample(range(3003), 2737))
  given = [pairs[n] for n in some] + [('one', 'eins')]
  found, about = read(given, EN_DE, reorder)
  assert found == given
  assert about['official'] == {
    **{'set': 'newstest2014', 'of': 3003, 'known': 2737, 'unknown': 1},
    **{'in_order': True, 'swapped': False},
  }
  said = 'dev: 2,737 of the 3,003 pairs of newstest2014, 1 others: its scores compare'
  assert said in capsys.readouterr().err


@pytest.mark.parametrize('reorder', [False, True])
def test_newstest_swapped(reorder: bool, shared_data):
  pairs = published(shared_data, 'en-fr', 'newstest2013')
  message = 'FILE0: this is newstest2013 with its sides swapped; .* has fr -> en'
  with pytest.raises(UserError, match=message):
    read(pairs, ('fr', 'en'), reorder)


def test_other_text_is_not_taken_for_newstest(shared_data):
  pairs = published(shared_data, 'en-de', 'newstest2013')
  given = pairs[:9] + [(f'one {n}', f'eins {n}') for n in range(50)]
  found, about = read(given)
  assert found == given and 'official' not in about
  assert newstest.recognise(pairs[:9], EN_DE) is not None
