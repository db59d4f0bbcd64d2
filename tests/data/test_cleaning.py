"""Each limit at its edge; a pair is as good in the one direction as in the other."""

import itertools
import pathlib
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import toy.corpus
from transformer_jax.data.cleaning import (
  check_code,
  check_is_text,
  check_languages,
  fault,
  looks_like,
)
from transformer_jax.data.corpus import Cleaning
from transformer_jax.machine.errors import UserError

LOOSE = Cleaning(
  off=False,
  max_characters=5000,
  max_ratio=9.0,
  drop_untranslated=False,
  min_alphanumeric=0,
)
STRICT = Cleaning(
  off=False,
  max_characters=20,
  max_ratio=2.0,
  drop_untranslated=True,
  min_alphanumeric=0.5,
)
OFF = replace(STRICT, off=True)


def both(pair: tuple[str | None, str | None], limits: Cleaning) -> str | None:
  """What is wrong with a pair, which is the same in the other direction."""
  found = fault(pair, limits)
  assert fault(pair[::-1], limits) == found
  return found


def test_a_good_pair():
  for limits in (LOOSE, STRICT, OFF):
    assert both(('one two', 'eins zwei'), limits) is None


# Reasons

BAD = {
  'not UTF-8': [None],
  'empty': ['', ' ', '\t', '\u3000', '\xa0', ' \t \xa0'],
  'control character': [
    f'one{c}two' for c in '\x00\r\n\x0b\x0c\x1c\x1d\x1e\u2028\u2029'
  ],
}


@pytest.mark.parametrize('reason', BAD)
def test_what_is_no_text(reason: str):
  """Whatever the limits, and though the other side is the same."""
  for line in BAD[reason]:
    for other in ('eins', line):
      for limits in (LOOSE, STRICT, OFF):
        assert both((line, other), limits) == reason, line


def test_a_character_lost_in_a_conversion():
  for line in ('\ufffd', 'sch\ufffdn'):
    for limits in (LOOSE, STRICT):
      assert both((line, 'eins'), limits) == 'replacement character'


@pytest.mark.parametrize(
  'pair',
  [
    ('x' * 21, 'eins'),
    ('a b c', 'x'),
    ('the same', 'the same'),
    ('...', 'drei'),
    ('sch\ufffdn', 'nice'),
  ],
)
def test_without_limits(pair: tuple[str, str]):
  assert both(pair, STRICT) is not None
  assert both(pair, OFF) is None


@pytest.mark.parametrize(
  'line',
  ['a\tb', 'e\u0301', '\u200bx', 'a\xadb', '\xa0x', '\ufeffx', 'so\x85', '\x85x'],
)
def test_what_is_odd_but_text(line: str):
  assert both((line, 'eins'), LOOSE) is None


def test_characters():
  limits = replace(LOOSE, max_characters=10)
  assert both(('ü' * 10, 'eins'), limits) is None
  assert both(('ü' * 11, 'eins'), limits) == 'over 10 characters'
  assert both(('ü' * 9 + '  ', 'eins'), limits) == 'over 10 characters'


@pytest.mark.parametrize(
  ('words', 'ratio', 'good'),
  [
    ((1, 9), 9.0, True),
    ((1, 10), 9.0, False),
    ((2, 18), 9.0, True),
    ((2, 19), 9.0, False),
    ((2, 3), 1.5, True),
    ((4, 7), 1.5, False),
    ((3, 3), 1.0, True),
    ((3, 4), 1.0, False),
  ],
)
def test_ratio_of_words(words: tuple[int, int], ratio: float, good: bool):
  """Of words, not of characters."""
  pair = ' '.join(['langwierig'] * words[0]), '\t '.join(['x'] * words[1])
  expected = None if good else f'length ratio over {ratio:g}'
  assert both(pair, replace(LOOSE, max_ratio=ratio)) == expected


@pytest.mark.parametrize(
  'line',
  [
    '今天下午我们去图书馆借了三本关于历史的书。',
    '今日の午後、図書館で歴史の本を三冊借りました。',
    'บ่ายนี้เราไปยืมหนังสือประวัติศาสตร์สามเล่มจากห้องสมุด',
    'ဒီနေ့ မွန်းလွဲပိုင်းမှာ စာကြည့်တိုက်ကနေ သမိုင်းစာအုပ် သုံးအုပ် ငှားခဲ့တယ်။',
    'រសៀលនេះយើងបានទៅខ្ចីសៀវភៅប្រវត្តិសាស្ត្របីក្បាលពីបណ្ណាល័យ។',
  ],
)
def test_ratio_without_spaces(line: str):
  """A sentence of a script without spaces between words is not one word."""
  english = (
    'This afternoon we went and borrowed three books on history from the library.'
  )
  limits = replace(LOOSE, max_ratio=9.0)
  assert both((english, line), limits) is None
  assert both((' '.join([english] * 45), line), limits) == 'length ratio over 9'
  assert both(('Books.', line), limits) is None


def test_ratio_of_letters_without_spaces():
  """Any letter may be a word, and no sign or mark may be one."""
  line, limits = 'ကြိုဆိုပါ', replace(LOOSE, max_ratio=2.0)
  assert sum(map(str.isalpha, line)) == 3 and len(line) == 9
  most = 2 * (1 + 3)
  assert both((line, ' '.join(['x'] * most)), limits) is None
  assert both((line, ' '.join(['x'] * (most + 1))), limits) == 'length ratio over 2'


def test_sentences_that_are_not_translated():
  limits = replace(LOOSE, drop_untranslated=True)
  sentences = ['Where is the beef?', 'Monsieur, je veux vous dire.', '这是一个句子']
  sentences += ['你好,世界!你好吗?', 'मैं कल घर जाऊँगा।', 'من فردا به خانه می‌روم']
  for line in ('a b', ' a b', *sentences):
    pair = line, f'{line.strip()}  '
    assert both(pair, LOOSE) is None
    assert both(pair, limits) == 'not translated'
  for pair in (('a b', 'a B'), ('a b', 'a  b'), ('é', 'e\u0301')):
    assert both(pair, limits) is None


@pytest.mark.parametrize(
  'line',
  [
    'Winston Churchill, Ava Gardner, Frank Sinatra.',
    'ASG: Buschkötter, Bolte - Bruland (2), C. Fitzek (5/3)',
    'Ludwig van Beethoven',
    '2014',
    'Die Presse (diepresse.com)',
    '日本銀行',
    'محمد',
    'ایالات متحده آمریکا',
  ],
)
def test_names_and_numbers_are_the_same_in_both_languages(line: str):
  assert both((line, line), replace(LOOSE, drop_untranslated=True)) is None


@pytest.mark.parametrize(
  ('line', 'good'),
  [
    ('a-', True),
    ('a--', False),
    ('a  b  - ,', True),  # spaces do not count
    ('中-', True),
    ('éü--', True),
    ('12:30', True),
    ('28.8.09', True),
    ('(...) 1', False),
    ('---', False),
    ('x --', False),
    ('e\u0301\u0301', True),  # marks do not count, as they stand at a letter
    ('\u0301\u0301-', False),
    ('မြို့', True),
  ],
)
def test_share_of_letters_and_digits(line: str, good: bool):
  expected = None if good else 'letters and digits under 0.5 of the characters'
  assert both((line, 'ein'), replace(LOOSE, min_alphanumeric=0.5)) == expected
  assert both((line, 'ein'), LOOSE) is None


def test_all_letters_may_be_asked_for():
  limits = replace(LOOSE, min_alphanumeric=1.0)
  assert both(('nur Buchstaben', 'only letters'), limits) is None
  assert both(('nur Buchstaben', 'only letters.'), limits) is not None


# Any text

TEXT = st.none() | st.text(
  st.sampled_from('aZé中19 .-\t\xa0\r\u2028\ufffd\x00'), max_size=25
)
REASONS = {
  *('not UTF-8', 'empty', 'control character', 'replacement character'),
  *('over 20 characters', 'length ratio over 2', 'not translated'),
  *('letters and digits under 0.5 of the characters', None),
}


@settings(max_examples=300)
@given(TEXT, TEXT)
@example('a' * 20, 'b ' * 10)
def test_either_direction_of_any_pair(source: str | None, target: str | None):
  found = both((source, target), STRICT)
  assert found in REASONS
  # What the looser limits refuse the stricter ones do not let through.
  loose, off = (both((source, target), limits) for limits in (LOOSE, OFF))
  if loose is not None:
    assert found is not None
  assert off in (None, loose)


@settings(max_examples=200)
@given(TEXT)
def test_no_translation_is_the_only_fault_of_two_good_sides(line: str | None):
  found = both((line, line), replace(LOOSE, drop_untranslated=True))
  assert found in (both((line, line), LOOSE), 'not translated')


def test_the_first_fault_is_the_one_that_counts():
  """Each pair is counted once."""
  pairs = [(None, ''), ('', '\x00'), ('\x00', '\ufffd'), ('\ufffd', 'x' * 21)]
  pairs += [('x' * 21, 'a b c d'), ('- . -', '1'), ('a.....', 'a.....'), ('.', '2')]
  assert Counter(both(pair, STRICT) for pair in pairs) == Counter(REASONS - {None})


# Languages

ENGLISH = ['The end of the day is near', 'This is for you and that is it']
GERMAN = ['Der Tag ist nicht von Dauer', 'Das ist ein Haus und eine Burg']
FRENCH = ['Le jour est dans la nuit', 'Les jours et les nuits du mois']
SIDES = {'en': ENGLISH, 'de': GERMAN, 'fr': FRENCH}


def parted(folder: pathlib.Path, stem: str, *languages: str) -> list[list[str]]:
  return [
    (folder / f'{stem}.{language}').read_bytes().decode().split('\n')[:-1]
    for language in languages
  ]


@pytest.mark.parametrize('language', SIDES)
def test_known_languages(language: str):
  assert looks_like(SIDES[language]) == language
  assert looks_like([line.upper() for line in SIDES[language]]) == language


@pytest.mark.parametrize('pair', itertools.permutations(SIDES, 2))
def test_either_direction(pair: tuple[str, str]):
  pairs = list(zip(SIDES[pair[0]], SIDES[pair[1]], strict=True))
  check_languages(pairs, pair, 'FILE')
  message = (
    f'FILE: the source looks like {pair[0]} and the target like {pair[1]}, but the '
    f'config has {pair[1]} -> {pair[0]}: are the two swapped'
  )
  with pytest.raises(UserError, match=message):
    check_languages(pairs, pair[::-1], 'FILE')


def test_nothing_is_said_of_other_text():
  """Toy corpora, other languages, numbers, nothing at all."""
  numbers = [[line.decode() for line in side] for side in toy.corpus.number_lines(200)]
  polish = ['Ala ma kota a kot ma Alę'], ['El gato de Ana es muy grande']
  for sides in (numbers, polish, (['1 2 3'], ['4 5 6']), ([''], [''])):
    assert [looks_like(side) for side in sides] == [None, None]
    for pair in itertools.permutations(('en', 'de', 'fr', 'pl', 'es'), 2):
      check_languages(list(zip(*sides, strict=True)), pair, 'FILE')
  check_languages([], ('en', 'de'), 'FILE')


def test_one_side_alone_is_not_enough():
  """Untranslated text is bad, but it is not swapped."""
  for sides in ((GERMAN, GERMAN), (ENGLISH, ENGLISH), (GERMAN, FRENCH)):
    check_languages(list(zip(*sides, strict=True)), ('en', 'de'), 'FILE')


def test_words_of_two_languages_tell_nothing():
  """Colloquial German has as many `du`s as French has."""
  assert looks_like(['Hast du das, du Armer', 'Bist du des Lebens und du']) == 'de'


@pytest.mark.parametrize('other', ['de', 'fr'])
@pytest.mark.parametrize('stem', ['newsmix/en-{}/train', 'newstest/en-{}/newstest2014'])
def test_real_text(stem: str, other: str, shared_data: pathlib.Path):
  """Any thousand pairs of it tell."""
  folder, name = (shared_data / stem.format(other)).parent, stem.split('/')[-1]
  pairs = list(zip(*parted(folder, name, 'en', other), strict=True))
  for start in range(0, len(pairs) - 1000, len(pairs) // 20):
    some = pairs[start : start + 1000]
    check_languages(some, ('en', other), name)
    with pytest.raises(UserError, match=f'{name}: .*are the two swapped'):
      check_languages(some, (other, 'en'), name)


@pytest.mark.parametrize('code', ['DE', 'de-DE', 'deu', 'german', 'q', 'jp'])
def test_what_is_no_code(code: str):
  with pytest.raises(UserError, match=f'^{code!r}'):
    check_code(code)


@pytest.mark.parametrize('code', ['de', 'hsb', 'pt_BR', 'zh_Hant'])
def test_codes(code: str):
  check_code(code)


# Another encoding


def test_most_of_a_text_is_no_text(capsys):
  check_is_text('FILE', 10, {'empty': 9})
  assert capsys.readouterr().err == ''
  check_is_text('FILE', 10, {'not UTF-8': 3, 'control character': 2, 'empty': 5})
  said = capsys.readouterr().err
  assert said.startswith('WARNING: FILE: 5 of 10 pairs are no text (3 not UTF-8, 2 con')
  with pytest.raises(UserError, match='206 of 240 .*another encoding, convert '):
    check_is_text('FILE', 240, {'not UTF-8': 206})
