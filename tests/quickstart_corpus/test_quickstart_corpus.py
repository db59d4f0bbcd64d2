"""The embedded corpus: well formed, with held-out clauses, and grammatical."""

import re
import unicodedata
from collections import Counter

import numpy as np
import pytest

from configs import quickstart
from transformer_jax import quickstart_corpus
from transformer_jax.machine.errors import UserError
from transformer_jax.quickstart_corpus import (
  read_splits,
  sentence_pairs,
  sentences,
  write,
)
from transformer_jax.quickstart_corpus.templates import EVENTS, FACTS, FRAMES, Clause

BOOK = ('thing', 'book', 'the', 'red')
CAR = ('thing', 'car', 'a', 'new')
ANNA, PAUL, SHE = ('name', 'Anna'), ('name', 'Paul'), ('pronoun', 'she')
MONDAY = ('last', 0)


@pytest.fixture(scope='module')
def corpus():
  """Returns split -> rows of (sentence, English, German)."""
  rows = {split: [] for split in quickstart_corpus.SIZES}
  for split, sentence, english in sentences(quickstart.get_config().data.seed):
    row = sentence, english, write(sentence, 'de')
    rows[split].append(row)
  return rows


def _texts(rows, column):
  return [row[column] for row in rows]


@pytest.mark.slow
def test_sizes_and_lengths(corpus):
  """No sentence comes twice, and lengths are spread."""
  english = [text for rows in corpus.values() for text in _texts(rows, 1)]
  assert len(set(english)) == len(english) >= 100_000
  assert len(corpus['dev']) == len(corpus['test']) == 1000
  lengths = [len(text.split()) for text in _texts(corpus['train'], 1)]
  assert min(lengths) >= 3 and max(lengths) <= 40
  assert 12 <= np.mean(lengths) <= 16.5
  assert np.percentile(lengths, 10) <= 9 and np.percentile(lengths, 90) >= 20


@pytest.mark.slow
@pytest.mark.parametrize('held_out', ['dev', 'test'])
def test_train_has_no_clause_of_a_held_out_sentence(corpus, held_out):
  def clauses(split):
    rows = corpus[split]
    return {repr((c.shape, c.values)) for row in rows for c in row[0].clauses}

  assert not clauses('train') & clauses(held_out)


@pytest.mark.slow
def test_held_out_shapes_and_words_were_seen_in_train(corpus):
  frames = {row[0].frame.specs for row in corpus['train']}
  assert {row[0].frame.specs for row in corpus['test']} <= frames
  for column in (1, 2):
    seen = Counter(' '.join(_texts(corpus['train'], column)).split())
    words = ' '.join(_texts(corpus['test'], column)).split()
    assert sum(seen[word] < 5 for word in words) < 0.01 * len(words)


@pytest.mark.slow
def test_text_is_ordinary(corpus):
  for rows in corpus.values():
    for row in rows:
      for text in row[1:]:
        assert unicodedata.is_normalized('NFC', text)
        assert not re.search(r'[^\S ]|  |[{}@#~|_]| [,.]', text), text
        assert text[0].isdigit() or text[0].isupper() or text[0] in '€$£', text
        assert text[-1] in '.?', text


def test_same_seed_same_pairs(monkeypatch):
  sizes = {'train': 300, 'dev': 20, 'test': 20}
  monkeypatch.setattr(quickstart_corpus, 'SIZES', sizes)
  first = sentence_pairs(3)
  assert {split: len(pairs) for split, pairs in first.items()} == sizes
  assert first == sentence_pairs(3)
  assert first['train'] != sentence_pairs(4)['train']


@pytest.mark.parametrize('languages', [('en', 'de'), ('de', 'en')])
def test_reader_in_both_directions(languages, monkeypatch):
  """Source and target in the order of the config, all splits."""
  monkeypatch.setattr(quickstart_corpus, 'SIZES', {'train': 40, 'dev': 5, 'test': 5})
  splits = read_splits(*languages, 7)
  pairs = sentence_pairs(7)
  assert [*splits] == ['train', 'dev', 'test']
  for split, [source] in splits.items():
    order = 1 if languages[0] == 'en' else -1
    for _ in range(2):  # a source is read more than once
      assert [pair[::order] for pair in source.pairs()] == pairs[split]
    assert source.name == 'embedded corpus, seed 7'


@pytest.mark.parametrize('pair', ['en-fr', 'de-fr', 'en-en'])
def test_other_languages_are_refused(pair):
  with pytest.raises(UserError, match=f'{pair}: the embedded corpus is en-de or de-en'):
    read_splits(*pair.split('-'), 1)


# Grammar


def _clause(verb, tense='past', negated=False, subject=ANNA, time=None, **slots):
  pattern = next(p for p in EVENTS if p.verb['en'].split()[0] == verb)
  return Clause(pattern, slots, tense, negated, subject, time)


def _fact(start, tense='always', **slots):
  pattern = next(p for p in FACTS if p.template['en'].startswith(start))
  return Clause(pattern, slots, tense)


def _written(frame_start, *clauses):
  frame = next(f for f in FRAMES if f.template['en'].startswith(frame_start))
  sentence = quickstart_corpus.Sentence(frame, clauses, PAUL)
  return write(sentence, 'en'), write(sentence, 'de')


CITY = ('city', 'Europe/Vienna')
CASES = {
  'verb second': (
    ('{0:front}.', _clause('buy', thing=CAR, time=MONDAY)),
    'Last Monday, Anna bought a new car.',
    'Letzten Montag hat Anna ein neues Auto gekauft.',
  ),
  'verb last': (
    ('{speaker:nom} says that {0:main}.', _clause('call', 'present', person=SHE)),
    'Paul says that Anna calls her.',
    'Paul sagt, dass Anna sie anruft.',
  ),
  'clitic before auxiliary': (
    ('{0:question}?', _clause('help', person=SHE)),
    'Did Anna help her?',
    'Hat Anna ihr geholfen?',
  ),
  'dative and genitive s': (
    (
      '{0:main}.',
      _clause('give', person=PAUL, thing=('thing', 'hat', 'Anna', 'black')),
    ),
    "Anna gave Paul Anna's black hat.",
    'Anna hat Paul Annas schwarzen Hut gegeben.',
  ),
  'purpose': (
    ('{0:main} in order', _clause('buy', thing=CAR), _clause('call', person=PAUL)),
    'Anna bought a new car in order to call Paul.',
    'Anna hat ein neues Auto gekauft, um Paul anzurufen.',
  ),
  'relative clause': (
    (
      '{0:about}.',
      _fact('{this} | weighs', this=CAR, weight=('measure', '2.5', 'mass-kilogram')),
      _clause('send', thing=CAR, person=('pronoun', 'I')),
    ),
    'A new car that Anna sent me weighs 2.5 kilograms.',
    'Ein neues Auto, das Anna mir geschickt hat, wiegt 2,5 Kilogramm.',
  ),
  'subjunctive, date and clock': (
    (
      'although',
      _clause('return', 'future', country=('country', 'NL')),
      _clause(
        'leave', subject=SHE, city=CITY, time=('moment', ('on', 737093, True), 945)
      ),
    ),
    'Although she left for Vienna at 3:45 PM on Sunday, February 3, 2019, Anna will'
    ' return to the Netherlands.',
    'Obwohl sie am Sonntag, dem 3. Februar 2019, um 15:45 Uhr nach Wien abgereist ist,'
    ' wird Anna in die Niederlande zurückkehren.',
  ),
  'currency': (
    ('{0:main}.', _clause('pay', money=('money', '1500', 'SEK'), thing=BOOK)),
    'Anna paid 1,500 Swedish kronor for the red book.',
    'Anna hat 1.500 Schwedische Kronen für das rote Buch bezahlt.',
  ),
}


@pytest.mark.parametrize('case', CASES)
def test_known_sentences(case):
  (frame, *clauses), *expected = CASES[case]
  assert list(_written(frame, *clauses)) == expected
