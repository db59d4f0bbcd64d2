"""English grammar of the embedded corpus: noun phrases, verbs, do-support."""

from functools import lru_cache

from transformer_jax.quickstart_corpus.lexicon import NOUNS, PLURAL_COUNTRIES
from transformer_jax.quickstart_corpus.shapes import Clause, fill, sentence_case
from transformer_jax.quickstart_corpus.values import Value, listed, worded

_OBJECTIVE = {
  'I': 'me',
  'he': 'him',
  'she': 'her',
  'we': 'us',
  'you': 'you',
  'they': 'them',
}
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


def _count(noun: str, number: int, kind: str, adjective: str) -> str:
  words = f'{worded((kind, number), "en")} {adjective} {NOUNS[noun].plural}'
  return ' '.join(words.split())


def _when(kind: str, *payload) -> str:
  if kind == 'on':
    ordinal, with_weekday = payload
    day = worded(('date', ordinal), 'en')
    if with_weekday:
      day = f'{worded(("weekday", (ordinal - 1) % 7), "en")}, {day}'
    return f'on {day}'
  if kind in ('last', 'next', 'every'):
    return f'{kind} {worded(("weekday", *payload), "en")}'
  if kind == 'in_year':
    return f'in {payload[0]}'
  if kind == 'in_month':
    return f'in {worded(("month", *payload), "en")}'
  if kind == 'moment':
    day, minutes = payload
    return f'at {worded(("clock", minutes), "en")} {phrase(day)}'
  return worded((kind, *payload), 'en')


@lru_cache(maxsize=1 << 17)
def phrase(value: Value, form: str = '') -> str:
  """A value in English; form 'nom' gives pronouns as subjects."""
  kind, *payload = value
  match kind:
    case 'name' | 'adverb' | 'food':
      return payload[0]
    case 'pronoun':
      return payload[0] if form == 'nom' else _OBJECTIVE[payload[0]]
    case 'person':
      return f'{payload[1]} {payload[0]}'
    case 'thing':
      return _thing(*payload)
    case 'count':
      return _count(*payload)
    case 'list':
      return listed([phrase(member, form) for member in payload[0]], 'en')
    case 'country' if payload[0] in _WITH_ARTICLE:
      return f'the {worded(value, "en")}'
    case _:
      return _when(kind, *payload)


def _third_person(base: str) -> str:
  if base.endswith(('s', 'sh', 'ch', 'x', 'o')):
    return base + 'es'
  if base.endswith('y') and base[-2] not in 'aeiou':
    return base[:-1] + 'ies'
  return base + 's'


def _verb(clause: Clause) -> tuple[str, str, str]:
  """Auxiliary (for questions and 'not'), what follows it, and the plain finite verb."""
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
  """(subject, rest) of a clause.

  Modes: main; front (time first); question; infinitive ('' and 'buy ...'); relative
  (the slot 'thing' left out).
  """
  omitted = 'thing' if mode == 'relative' else ''
  template = clause.pattern.template['en']
  time = phrase(clause.time) if clause.time else ''
  if clause.subject is None:
    subject, rest = fill(template, clause, phrase, omitted).split('|')
  else:
    rest = fill(template, clause, phrase, omitted)
    subject = phrase(clause.subject, 'nom')
    auxiliary, infinitive, finite = _verb(clause)
    if mode == 'infinitive':
      subject, finite = '', clause.pattern.verb['en'].split()[0]
    elif mode == 'question':
      subject, finite = auxiliary, f'{subject} {infinitive}'
    elif clause.negated:
      negated = 'cannot' if auxiliary == 'can' else f'{auxiliary} not'
      finite = f'{negated} {infinitive}'
    rest = f'{finite} {rest}'
  if mode == 'front':
    return f'{time}, {subject}', rest
  return subject, f'{rest} {time}'


def relative(clause: Clause) -> str:
  """'that Anna bought on Monday', to follow its noun."""
  return 'that ' + ' '.join(render(clause, 'relative'))


def finish(text: str) -> str:
  """Spaces and capitals of a whole sentence."""
  return sentence_case(text)
