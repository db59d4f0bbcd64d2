"""English grammar of the embedded corpus: noun phrases, verbs, do-support."""

from functools import lru_cache

from transformer_jax.quickstart_corpus.templates import Clause, fill
from transformer_jax.quickstart_corpus.words import (
  NOUNS,
  PLURAL_COUNTRIES,
  Value,
  join_words,
  put_in_words,
)

_OBJECTIVE = dict(I='me', he='him', she='her', we='us', you='you', they='them')
_DETERMINERS = ('the', 'a', 'this', 'my', 'his', 'her', 'our')
_WITH_ARTICLE = (*PLURAL_COUNTRIES, 'GB')


def _thing(noun: str, determiner: str, adjective: str) -> str:
  words = f'{adjective} {noun}'.strip()
  if determiner == 'all':
    return f'the {adjective} {NOUNS[noun].plural}'.replace('  ', ' ')
  if determiner == 'a':
    return f'{"an" if words[0] in "aeiou" else "a"} {words}'
  if determiner not in _DETERMINERS:
    determiner += "'s"
  return f'{determiner} {words}'


@lru_cache(maxsize=1 << 17)
def phrase(value: Value, form: str = '') -> str:
  """Returns a value in English; form 'nom' gives pronouns as subjects."""
  match value:
    case 'name' | 'adverb' | 'food', word:
      return word
    case 'pronoun', pronoun:
      return pronoun if form == 'nom' else _OBJECTIVE[pronoun]
    case 'person', noun, determiner:
      return f'{determiner} {noun}'
    case 'thing', *payload:
      return _thing(*payload)
    case 'count', noun, number, kind, adjective:
      words = f'{put_in_words((kind, number), "en")} {adjective} {NOUNS[noun].plural}'
      return ' '.join(words.split())
    case 'list', members:
      return join_words([phrase(member, form) for member in members], 'en')
    case 'country', code if code in _WITH_ARTICLE:
      return f'the {put_in_words(value, "en")}'
    case 'on', ordinal, with_weekday:
      day = put_in_words(('date', ordinal), 'en')
      if with_weekday:
        day = f'{put_in_words(("weekday", (ordinal - 1) % 7), "en")}, {day}'
      return f'on {day}'
    case 'last' | 'next' | 'every' as which, weekday:
      return f'{which} {put_in_words(("weekday", weekday), "en")}'
    case 'in_year', year:
      return f'in {year}'
    case 'in_month', *payload:
      return f'in {put_in_words(("month", *payload), "en")}'
    case 'moment', day, minutes:
      return f'at {put_in_words(("clock", minutes), "en")} {phrase(day)}'
    case _:
      return put_in_words(value, 'en')


def _third_person(base: str) -> str:
  if base.endswith(('s', 'sh', 'ch', 'x', 'o')):
    return base + 'es'
  if base.endswith('y') and base[-2] not in 'aeiou':
    return base[:-1] + 'ies'
  return base + 's'


def _verb(clause: Clause) -> tuple[str, str, str]:
  """Returns the auxiliary of questions and 'not', what follows it, the finite verb."""
  base, past = clause.pattern.verb['en'].split()
  third = clause.subject[0] != 'pronoun' or clause.subject[1] in ('he', 'she')
  do = 'does' if third else 'do'
  match clause.tense:
    case 'past':
      return 'did', base, past
    case 'present':
      return do, base, _third_person(base) if third else base
    case 'future':
      return 'will', base, f'will {base}'
    case 'can':
      return 'can', base, f'can {base}'
    case 'must':
      return do, f'have to {base}', f'{"has" if third else "have"} to {base}'
    case _:
      return do, f'want to {base}', f'{"wants" if third else "want"} to {base}'


def render(clause: Clause, mode: str) -> tuple[str, str]:
  """Returns the opening of a clause, mostly its subject, and the rest.

  Modes: main; front (time first); question; infinitive ('' and 'buy ...'); relative
  (the slot 'thing' left out).
  """
  omitted = 'thing' if mode == 'relative' else ''
  text = fill(clause.pattern.template['en'], clause, phrase, omitted)
  time = phrase(clause.time) if clause.time else ''
  if clause.subject is None:
    subject, rest = text.split('|')
  else:
    subject = phrase(clause.subject, 'nom')
    auxiliary, infinitive, finite = _verb(clause)
    if mode == 'infinitive':
      subject, finite = '', clause.pattern.verb['en'].split()[0]
    elif mode == 'question':
      subject, finite = auxiliary, f'{subject} {infinitive}'
    elif clause.negated:
      negated = 'cannot' if auxiliary == 'can' else f'{auxiliary} not'
      finite = f'{negated} {infinitive}'
    rest = f'{finite} {text}'
  if mode == 'front':
    return f'{time}, {subject}', rest
  return subject, f'{rest} {time}'


def relative(clause: Clause) -> str:
  """Returns a relative clause, as 'that Anna bought on Monday'."""
  return 'that ' + ' '.join(render(clause, 'relative'))
