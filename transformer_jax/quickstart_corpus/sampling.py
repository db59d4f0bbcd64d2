"""Samples the values of the embedded corpus, and whole clauses of them."""

from collections.abc import Callable
from datetime import date
from random import Random

from transformer_jax.quickstart_corpus.templates import (
  EVENTS,
  FACTS,
  TENSES,
  Clause,
  Pattern,
)
from transformer_jax.quickstart_corpus.words import (
  ADJECTIVES,
  ADVERBS,
  CITIES,
  COUNTRIES,
  FOODS,
  LANGUAGES,
  MEN,
  NAMED_CURRENCIES,
  NOUNS,
  PEOPLE,
  PLURAL_COUNTRIES,
  SYMBOL_CURRENCIES,
  WOMEN,
  Value,
)

_NOUNS, _ADJECTIVES, _FOODS = tuple(NOUNS), tuple(ADJECTIVES), tuple(FOODS)
_KNOWN = tuple(noun for noun, person in PEOPLE.items() if person.determiner == 'the')
_RELATIVES = tuple(noun for noun in PEOPLE if noun not in _KNOWN)
_ADVERBS = tuple(ADVERBS)
_STATES = tuple(code for code in COUNTRIES if code not in PLURAL_COUNTRIES)
_PRONOUNS = ('I', 'he', 'she', 'we', 'you', 'they')
_POSSESSIVES = ('my', 'his', 'her', 'our')
_ROUND = tuple(str(n) for n in (*range(2, 100), *range(100, 1000, 50)))
_LARGE = tuple(str(n) for n in range(1000, 20_000, 500))


def _person(rng: Random) -> Value:
  """Returns someone of the third person, by name or by relation."""
  if rng.random() < 0.5:
    return 'name', rng.choice(MEN + WOMEN)
  if rng.random() < 0.4:
    return 'person', rng.choice(_KNOWN), 'the'
  return 'person', rng.choice(_RELATIVES), rng.choice(_POSSESSIVES)


def _anyone(rng: Random) -> Value:
  if rng.random() < 0.4:
    return 'pronoun', rng.choice(_PRONOUNS)
  return _person(rng)


def _adjective(rng: Random) -> str:
  return rng.choice(_ADJECTIVES) if rng.random() < 0.6 else ''


def _thing(rng: Random) -> Value:
  draw = rng.random()
  if draw < 0.6:
    determiner = rng.choice(('the', 'a', 'this', 'all'))
  else:
    determiner = rng.choice(_POSSESSIVES if draw < 0.85 else MEN + WOMEN)
  return 'thing', rng.choice(_NOUNS), determiner, _adjective(rng)


def _this(rng: Random) -> Value:
  """Returns one definite thing."""
  determiner = rng.choice(('the', 'the', 'this', 'my', 'his', 'our'))
  return 'thing', rng.choice(_NOUNS), determiner, _adjective(rng)


def _count(rng: Random) -> Value:
  kind = 'words' if rng.random() < 0.3 else 'number'
  number = rng.randrange(2, 100)
  return 'count', rng.choice(_NOUNS), number, kind, _adjective(rng)


def _money(rng: Random) -> Value:
  draw = rng.random()
  if draw < 0.4:
    cents = rng.choice(('25', '50', '75', '99'))
    amount = f'{rng.randrange(2, 100)}.{cents}'
    return 'money', amount, rng.choice(SYMBOL_CURRENCIES)
  amount = rng.choice(_ROUND if draw < 0.75 else _LARGE)
  return 'money', amount, rng.choice(NAMED_CURRENCIES)


def _measure(low: int, high: int, *units: str) -> Callable[[Random], Value]:
  """Returns a function that samples amounts; a third of them have a decimal."""

  def sample(rng: Random) -> Value:
    amount = str(rng.randrange(low, high))
    if rng.random() < 0.3:
      amount += f'.{rng.randrange(1, 10)}'
    return 'measure', amount, rng.choice(units)

  return sample


def _duration(rng: Random) -> Value:
  if rng.random() < 0.5:
    return 'measure', str(rng.randrange(20, 100, 5)), 'duration-minute'
  return 'measure', str(rng.randrange(2, 13)), 'duration-hour'


def _clock(first: int, last: int) -> Callable[[Random], Value]:
  """Returns a function that samples times of day, in steps of five minutes."""
  return lambda rng: ('clock', rng.randrange(first * 12, last * 12) * 5)


def _countries(rng: Random) -> Value:
  codes = rng.sample(COUNTRIES, rng.randrange(2, 5))
  return 'list', tuple(('country', code) for code in codes)


def _on(rng: Random, first: int, last: int, with_weekday: bool) -> Value:
  bounds = date(first, 1, 1).toordinal(), date(last + 1, 1, 1).toordinal()
  return 'on', rng.randrange(*bounds), with_weekday


def _day(rng: Random, tense: str) -> Value:
  """Returns a day that suits the tense."""
  draw = rng.random()
  if tense == 'present':
    if draw < 0.5:
      return 'every', rng.randrange(7)
    return 'adverb', rng.choice(_ADVERBS[4:8])
  past = tense == 'past'
  years = (1970, 2024) if past else (2027, 2040)
  if draw < 0.35:
    return _on(rng, *years, with_weekday=draw < 0.12)
  if draw < 0.5:
    return 'last' if past else 'next', rng.randrange(7)
  if draw < 0.6:
    return 'in_month', rng.randrange(years[0], years[1] + 1), rng.randrange(1, 13)
  if draw < 0.7:
    return 'in_year', rng.randrange(years[0], years[1] + 1)
  if draw < 0.85:
    unit = rng.choice(('day', 'week', 'month', 'year'))
    # Fewer than a week, month or year of the unit below would read oddly.
    count = rng.randrange(2, {'day': 7, 'week': 5, 'month': 12, 'year': 30}[unit])
    return 'delta', -count if past else count, unit
  return 'adverb', rng.choice(_ADVERBS[:4] if past else _ADVERBS[8:])


def _time(rng: Random, tense: str, hours: bool) -> Value:
  """Returns a day, with a time of day now and then if `hours`."""
  day = _day(rng, tense)
  narrow = day[0] in ('on', 'last', 'next', 'every') or day[1] == 'tomorrow'
  if hours and narrow and rng.random() < 0.4:
    return 'moment', day, _clock(6, 23)(rng)[1]
  return day


_SLOTS: dict[str, Callable[[Random], Value]] = {
  'thing': _thing,
  'this': _this,
  'count': _count,
  'person': _anyone,
  'human': _person,
  'speaker': _person,
  'city': lambda rng: ('city', rng.choice(CITIES)),
  'country': lambda rng: ('country', rng.choice(COUNTRIES)),
  'state': lambda rng: ('country', rng.choice(_STATES)),
  'countries': _countries,
  'language': lambda rng: ('language', rng.choice(LANGUAGES)),
  'food': lambda rng: ('food', rng.choice(_FOODS)),
  'money': _money,
  'page': lambda rng: ('words', rng.randrange(2, 100)),
  'ordinal': lambda rng: ('ordinal', rng.randrange(2, 40)),
  'number': lambda rng: ('number', rng.randrange(10, 200) * 100),
  'percent': lambda rng: ('percent', rng.randrange(11, 1000)),
  'millions': lambda rng: ('millions', rng.randrange(21, 1000)),
  'duration': _duration,
  'hours': _measure(2, 13, 'duration-hour'),
  'degrees': _measure(2, 40, 'temperature-celsius'),
  'distance': lambda rng: (
    'measure',
    str(rng.randrange(200, 10_000, 50)),
    'length-kilometer',
  ),
  'run': _measure(2, 43, 'length-kilometer'),
  'weight': _measure(2, 50, 'mass-kilogram'),
  'mass': _measure(2, 500, 'mass-gram'),
  'tons': _measure(2, 500, 'mass-tonne'),
  'speed': _measure(60, 300, 'speed-kilometer-per-hour'),
  'clock': _clock(6, 23),
  'morning': _clock(7, 12),
  'evening': _clock(16, 22),
  'born': lambda rng: _on(rng, 1940, 2015, with_weekday=False),
}


def slot(rng: Random, name: str) -> Value:
  """Returns a value for a slot; digits that end its name are not part of its type."""
  return _SLOTS[name.rstrip('0123456789')](rng)


def _definite(value: Value) -> bool:
  kind, *payload = value
  return kind != 'count' and (kind != 'thing' or payload[1] != 'a')


def _clash(subject: Value | None, slots: dict[str, Value]) -> bool:
  """Tells whether a value or a noun occurs twice, or 'I' and 'we' occur together."""
  values = [*slots.values(), subject]
  if len(set(values)) < len(values):
    return True
  speakers = {('pronoun', 'I'), ('pronoun', 'we')}
  nouns = [value[1] for value in slots.values() if value[0] == 'thing']
  return speakers <= set(values) or len(set(nouns)) < len(nouns)


def _subject(rng: Random, spec: str, before: Clause | None) -> Value:
  if spec == 'request':
    return 'pronoun', 'you'
  return before.subject if spec == 'infinitive' else _anyone(rng)


def _pattern(rng: Random, traits: list[str]) -> Pattern:
  if 'relative' in traits:
    return rng.choice([pattern for pattern in EVENTS if pattern.can_be_relative])
  if 'about' in traits:
    return rng.choice([pattern for pattern in FACTS if 'this' in pattern.slots])
  wants_event = {'event', 'request', 'infinitive'} & set(traits)
  patterns = EVENTS if wants_event or rng.random() < 0.6 else FACTS
  return rng.choice(patterns)


def _tense(rng: Random, traits: list[str], pattern: Pattern) -> str | None:
  """Returns a tense that the traits allow; None if the pattern has none of those."""
  if {'request', 'infinitive'} & set(traits):
    return 'present' if 'want' in pattern.tenses else None
  required = [trait for trait in traits if trait in TENSES]
  if required:
    return required[0] if required[0] in pattern.tenses else None
  # The past is about as common as the rest together.
  more_past = ('past',) * (3 * ('past' in pattern.tenses))
  return rng.choice(pattern.tenses + more_past)


def clause(rng: Random, spec: str, before: Clause | None) -> Clause | None:
  """Samples a clause of the kind `spec`, such as 'event+past'; None if it does not fit.

  Args:
    spec: as templates.FRAMES have it.
    before: the sentence's first clause, from which an infinitive takes its subject and
      a relative clause its thing; None samples the first clause itself.
  """
  traits = spec.split('+')
  pattern = _pattern(rng, traits)
  tense = _tense(rng, traits, pattern)
  if tense is None:
    return None
  slots = {name: slot(rng, name) for name in pattern.slots}
  if spec == 'relative':
    slots['thing'] = before.slots['this']
  subject = _subject(rng, spec, before) if pattern.verb else None
  if _clash(subject, slots):
    return None
  time = None
  may_be_timed = pattern.can_be_timed and spec != 'infinitive' and 'bare' not in traits
  if may_be_timed and ('timed' in traits or rng.random() < 0.4):
    era = tense if tense in ('past', 'present') and spec != 'request' else 'future'
    time = _time(rng, era, hours=subject is not None)
  if 'timed' in traits and time is None:
    return None
  negatable = (
    '#' in pattern.template['de']
    and tense != 'must'
    and not {'positive', 'request', 'infinitive'} & set(traits)
    and all(_definite(value) for value in slots.values())
  )
  negated = negatable and rng.random() < 0.25
  return Clause(pattern, slots, tense, negated, subject, time)
