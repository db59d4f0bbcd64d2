"""Each limit at its edge; both directions of a pair have the same fault."""

import itertools
import pathlib
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from transformer_jax.config import Cleaning
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import cleaning

LOOSE = Cleaning(drop_untranslated=False, min_alphanumeric=0.0)
FEW_LETTERS = 'letters and digits under 0.5 of the characters'


def both(pair: tuple[str | None, str | None], limits: Cleaning) -> str | None:
  """Returns the fault of a pair, which is the same in the other direction."""
  reason = cleaning.fault(pair, limits)
  assert cleaning.fault(pair[::-1], limits) == reason
  return reason


LINES = [
  ({}, None, 'not UTF-8'),
  *(({}, spaces, 'empty') for spaces in ('', '\u3000', ' \t \xa0')),
  *(
    ({}, f'one{c}two', 'control character')
    for c in '\x00\r\n\x0b\x0c\x1c\x1d\x1e\u2028\u2029'
  ),
  ({}, 'sch\ufffdn', 'replacement character'),
  ({}, 'odd: a\tb e\u0301 \u200bx \xa0x \ufeffx so\x85', None),
  ({'max_characters': 10}, 'ü' * 10, None),
  ({'max_characters': 10}, 'ü' * 11, 'over 10 characters'),
  ({'min_alphanumeric': 0.5}, 'a  b  - ,', None),  # spaces do not count
  ({'min_alphanumeric': 0.5}, '中-', None),
  ({'min_alphanumeric': 0.5}, 'e\u0301\u0301', None),  # marks of a letter do not count
  ({'min_alphanumeric': 0.5}, 'a--', FEW_LETTERS),
  ({'min_alphanumeric': 0.5}, '\u0301\u0301-', FEW_LETTERS),
  ({'off': True, 'max_characters': 3}, 'sch\ufffdn', None),
]


@pytest.mark.parametrize(('limits', 'line', 'reason'), LINES)
def test_limits_of_one_line(limits: dict, line: str | None, reason: str | None):
  assert both((line, 'eins'), replace(LOOSE, **limits)) == reason
  assert reason is None or not limits or both((line, 'eins'), LOOSE) is None


def test_ratio_of_words():
  """A sentence of a script without spaces between words is not one word."""
  limits, fewer = replace(LOOSE, max_ratio=1.5), ' '.join(['langwierig'] * 4)
  assert both((fewer, '\t '.join('xxxxxx')), limits) is None
  assert both((fewer, '\t '.join('xxxxxxx')), limits) == 'length ratio over 1.5'
  limits = replace(LOOSE, max_ratio=9.0)
  english = 'This afternoon we went and borrowed three books on history from the shop.'
  for line in (
    '今天下午我们去图书馆借了三本关于历史的书。',
    'บ่ายนี้เราไปยืมหนังสือประวัติศาสตร์สามเล่มจากห้องสมุด',
  ):
    assert both((english, line), limits) is None
    assert both((' '.join([english] * 45), line), limits) == 'length ratio over 9'
    assert both(('Books.', line), limits) is None


def test_sentences_that_are_not_translated():
  limits = replace(LOOSE, drop_untranslated=True)
  sentences = ['Where is the beef?', 'Monsieur, je veux vous dire.', '这是一个句子']
  sentences += ['你好,世界!你好吗?', 'मैं कल घर जाऊँगा।', 'من فردا به خانه می‌روم']
  for line in ('a b', ' a b', *sentences):
    pair = line, f'{line.strip()}  '
    assert both(pair, LOOSE) is None
    assert both(pair, limits) == 'not translated'
  names = ['Winston Churchill, Ava Gardner, Frank Sinatra.', 'Ludwig van Beethoven']
  names += ['2014', '日本銀行', 'محمد', 'ایالات متحده آمریکا']
  differ = ('a b', 'a B'), ('a b', 'a  b'), ('é', 'e\u0301')
  for pair in (*differ, *zip(names, names, strict=True)):
    assert both(pair, limits) is None, pair


ENGLISH = ['The end of the day is near', 'This is for you and that is it']
GERMAN = ['Der Tag ist nicht von Dauer', 'Das ist ein Haus und eine Burg']
FRENCH = ['Le jour est dans la nuit', 'Les jours et les nuits du mois']
SIDES = {'en': ENGLISH, 'de': GERMAN, 'fr': FRENCH}


@pytest.mark.parametrize('pair', [*itertools.permutations(SIDES, 2)])
def test_either_direction(pair: tuple[str, str]):
  pairs = list(zip(SIDES[pair[0]], SIDES[pair[1]], strict=True))
  cleaning.check_languages(pairs, pair, 'FILE')
  with pytest.raises(UserError, match='FILE: .* are the two swapped'):
    cleaning.check_languages(pairs, pair[::-1], 'FILE')


def test_other_text_is_not_refused():
  numbers = [[line.decode() for line in side] for side in toy.corpus.number_lines(200)]
  polish = ['Ala ma kota a kot ma Alę'], ['El gato de Ana es muy grande']
  for sides in (numbers, polish, ([''], [''])):
    assert [cleaning.guess_language(side) for side in sides] == [None, None]
    cleaning.check_languages(list(zip(*sides, strict=True)), ('en', 'de'), 'FILE')
  cleaning.check_languages([], ('en', 'de'), 'FILE')
  for sides in ((GERMAN, GERMAN), (ENGLISH, ENGLISH), (GERMAN, FRENCH)):
    cleaning.check_languages(list(zip(*sides, strict=True)), ('en', 'de'), 'FILE')


# Samples


def sample(folder: pathlib.Path, rows: Iterable, count: int, seed: int) -> list[int]:
  """Returns which of `rows`, a pair of lines each, are in a sample."""
  rows, texts = [*rows], [folder / name for name in 'ab']
  for path in texts:
    path.write_text(''.join(f'{path.name}{n}\n' for n in rows))
  chosen = cleaning.choose_pairs(texts, len(rows), count, seed)
  a, b = ([*cleaning.chosen_lines(path, chosen)] for path in texts)
  assert [line[1:] for line in a] == [line[1:] for line in b]
  return [int(line[1:]) for line in a]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.data())
def test_a_sample_is_of_text_and_seed(tmp_path_factory, rows: list[int], data):
  """The order of the text does not matter: tfds, which shuffles, gives the same."""
  wanted = data.draw(st.integers(0, len(rows) + 5), 'wanted')
  seed = data.draw(st.integers(-(2**32), 2**200), 'seed')
  folder = tmp_path_factory.mktemp('x')
  chosen, remaining = sample(folder, rows, wanted, seed), iter(rows)
  assert len(chosen) == min(wanted, len(rows))
  assert all(row in remaining for row in chosen), 'in their order'
  shuffled = data.draw(st.permutations(rows), 'shuffled')
  assert sorted(sample(folder, shuffled, wanted, seed)) == sorted(chosen)


def test_equal_pairs_are_sampled_like_others(tmp_path: pathlib.Path):
  rows = [*range(500)] + [500] * 500
  chosen, other = (sample(tmp_path, rows, 100, seed) for seed in (0, 1))
  assert len(chosen) == 100 and 30 < chosen.count(500) < 70 and chosen != other
  # A corpus that is prepared again has the same pairs.
  assert sample(tmp_path, range(60), 5, 1) == [5, 23, 27, 40, 42]
