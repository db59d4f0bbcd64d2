"""Swapped sides are noticed in real text; nothing is said of what is not known."""

import itertools
import pathlib

import pytest

import toy.corpus
from transformer_jax import quickstart_corpus
from transformer_jax.data.languages import check, looks_like
from transformer_jax.machine.errors import UserError

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
  check(pairs, pair, 'FILE')
  message = (
    f'FILE: the source looks like {pair[0]} and the target like {pair[1]}, but the '
    f'config has {pair[1]} -> {pair[0]}: are the two swapped'
  )
  with pytest.raises(UserError, match=message):
    check(pairs, pair[::-1], 'FILE')


def test_nothing_is_said_of_other_text():
  """Toy corpora, other languages, numbers, nothing at all."""
  numbers = [[line.decode() for line in side] for side in toy.corpus.number_lines(200)]
  polish = ['Ala ma kota a kot ma Alę'], ['El gato de Ana es muy grande']
  for sides in (numbers, polish, (['1 2 3'], ['4 5 6']), ([''], [''])):
    assert [looks_like(side) for side in sides] == [None, None]
    for pair in itertools.permutations(('en', 'de', 'fr', 'pl', 'es'), 2):
      check(list(zip(*sides, strict=True)), pair, 'FILE')
  check([], ('en', 'de'), 'FILE')


def test_one_side_alone_is_not_enough():
  """Untranslated text is bad, but it is not swapped."""
  for sides in ((GERMAN, GERMAN), (ENGLISH, ENGLISH), (GERMAN, FRENCH)):
    check(list(zip(*sides, strict=True)), ('en', 'de'), 'FILE')


def test_words_of_two_languages_tell_nothing():
  """Colloquial German has as many `du`s as French has."""
  assert looks_like(['Hast du das, du Armer', 'Bist du des Lebens und du']) == 'de'


def test_the_quickstart_corpus(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(quickstart_corpus, 'SIZES', {'train': 50, 'dev': 5, 'test': 5})
  for other in ('de', 'fr'):
    pairs = quickstart_corpus.sentence_pairs(other, 1)['train']
    check(pairs, ('en', other), 'FILE')
    with pytest.raises(UserError, match='swapped'):
      check(pairs, (other, 'en'), 'FILE')


@pytest.mark.parametrize('other', ['de', 'fr'])
@pytest.mark.parametrize('stem', ['newsmix/en-{}/train', 'newstest/en-{}/newstest2014'])
def test_real_text(stem: str, other: str, shared_data: pathlib.Path):
  """Any thousand pairs of it tell."""
  folder, name = (shared_data / stem.format(other)).parent, stem.split('/')[-1]
  pairs = list(zip(*parted(folder, name, 'en', other), strict=True))
  for start in range(0, len(pairs) - 1000, len(pairs) // 20):
    some = pairs[start : start + 1000]
    check(some, ('en', other), name)
    with pytest.raises(UserError, match=f'{name}: .*are the two swapped'):
      check(some, (other, 'en'), name)
