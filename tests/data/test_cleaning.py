"""Each limit at its edge; a pair is as good in the one direction as in the other."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer_jax.data.cleaning import Cleaning, fault

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
OFF = STRICT._replace(off=True)


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
  limits = LOOSE._replace(max_characters=10)
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
  assert both(pair, LOOSE._replace(max_ratio=ratio)) == expected


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
  limits = LOOSE._replace(max_ratio=9.0)
  assert both((english, line), limits) is None
  assert both((' '.join([english] * 45), line), limits) == 'length ratio over 9'
  assert both(('Books.', line), limits) is None


def test_ratio_of_letters_without_spaces():
  """Any letter may be a word, and no sign or mark may be one."""
  line, limits = 'ကြိုဆိုပါ', LOOSE._replace(max_ratio=2.0)
  assert sum(map(str.isalpha, line)) == 3 and len(line) == 9
  most = 2 * (1 + 3)
  assert both((line, ' '.join(['x'] * most)), limits) is None
  assert both((line, ' '.join(['x'] * (most + 1))), limits) == 'length ratio over 2'


def test_sentences_that_are_not_translated():
  limits = LOOSE._replace(drop_untranslated=True)
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
  assert both((line, line), LOOSE._replace(drop_untranslated=True)) is None


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
  assert both((line, 'ein'), LOOSE._replace(min_alphanumeric=0.5)) == expected
  assert both((line, 'ein'), LOOSE) is None


def test_all_letters_may_be_asked_for():
  limits = LOOSE._replace(min_alphanumeric=1.0)
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
  found = both((line, line), LOOSE._replace(drop_untranslated=True))
  assert found in (both((line, line), LOOSE), 'not translated')


def test_the_first_fault_is_the_one_that_counts():
  """Each pair is counted once."""
  pairs = [(None, ''), ('', '\x00'), ('\x00', '\ufffd'), ('\ufffd', 'x' * 21)]
  pairs += [('x' * 21, 'a b c d'), ('- . -', '1'), ('a.....', 'a.....'), ('.', '2')]
  assert Counter(both(pair, STRICT) for pair in pairs) == Counter(REASONS - {None})
