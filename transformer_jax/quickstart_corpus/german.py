"""German grammar of the embedded corpus: declension, verb second, verb last."""

import re
from functools import lru_cache

from transformer_jax.quickstart_corpus.templates import Clause, fill
from transformer_jax.quickstart_corpus.words import (
  ADJECTIVES,
  ADVERBS,
  FOODS,
  GERMAN_ARTICLES,
  NOUNS,
  PEOPLE,
  Value,
  join_words,
  put_in_words,
)

# Endings by case, in the order of _GENDERS (masculine, feminine, neuter, plural).
_GENDERS = 'mfnp'
_ARTICLE = {
  'nom': ('der', 'die', 'das', 'die'),
  'acc': ('den', 'die', 'das', 'die'),
  'dat': ('dem', 'der', 'dem', 'den'),
  'gen': ('des', 'der', 'des', 'der'),
}
_STRONG = {
  'nom': ('er', 'e', 'es', 'e'),
  'acc': ('en', 'e', 'es', 'e'),
  'dat': ('em', 'er', 'em', 'en'),
  'gen': ('es', 'er', 'es', 'er'),
}
_MIXED = {
  'nom': ('', 'e', '', 'e'),
  'acc': ('en', 'e', '', 'e'),
  'dat': ('em', 'er', 'em', 'en'),
  'gen': ('es', 'er', 'es', 'er'),
}
_WEAK = {
  'nom': ('e', 'e', 'e', 'en'),
  'acc': ('en', 'e', 'e', 'en'),
  'dat': ('en', 'en', 'en', 'en'),
  'gen': ('en', 'en', 'en', 'en'),
}
_STEMS = dict(a='ein', my='mein', his='sein', her='ihr', our='unser')
_PRONOUNS = {
  'I': {'nom': 'ich', 'acc': 'mich', 'dat': 'mir'},
  'he': {'nom': 'er', 'acc': 'ihn', 'dat': 'ihm'},
  'she': {'nom': 'sie', 'acc': 'sie', 'dat': 'ihr'},
  'we': {'nom': 'wir', 'acc': 'uns', 'dat': 'uns'},
  'you': {'nom': 'Sie', 'acc': 'Sie', 'dat': 'Ihnen'},
  'they': {'nom': 'sie', 'acc': 'sie', 'dat': 'ihnen'},
}
# ich, er, wir/Sie/sie
_AUXILIARIES = {
  'haben': ('habe', 'hat', 'haben'),
  'sein': ('bin', 'ist', 'sind'),
  'future': ('werde', 'wird', 'werden'),
  'must': ('muss', 'muss', 'müssen'),
  'can': ('kann', 'kann', 'können'),
  'want': ('will', 'will', 'wollen'),
}
_BEFORE_ARTICLE = {
  'in': ('in', 'dat'),
  'to': ('in', 'acc'),
  'from': ('aus', 'dat'),
}


def _ending(table: dict[str, tuple[str, ...]], case: str, gender: str) -> str:
  return table[case][_GENDERS.index(gender)]


def _genitive(noun: str, gender: str) -> str:
  if gender in 'fp':
    return noun
  syllables = len(re.findall('[aeiouäöüy]+', noun.lower()))
  return noun + ('es' if syllables == 1 or noun[-1] in 'sßzx' else 's')


def _inflect_determiner(determiner: str, case: str, gender: str) -> tuple[str, str]:
  """Returns the determiner, inflected, and the ending an adjective takes after it."""
  if determiner in ('the', 'all'):
    return _ending(_ARTICLE, case, gender), _ending(_WEAK, case, gender)
  if determiner == 'this':
    return 'dies' + _ending(_STRONG, case, gender), _ending(_WEAK, case, gender)
  if determiner in _STEMS:
    ending = _ending(_MIXED, case, gender)
    article = _STEMS[determiner] + ending
    bare = ending == ''
    return article, _ending(_STRONG if bare else _WEAK, case, gender)
  return determiner + 's', _ending(_STRONG, case, gender)


def _thing(case: str, noun: str, determiner: str, adjective: str) -> str:
  entry = NOUNS[noun]
  gender = 'p' if determiner == 'all' else entry.gender
  article, ending = _inflect_determiner(determiner, case, gender)
  word = entry.german if gender != 'p' else entry.german_plural
  if case == 'gen':
    word = _genitive(word, gender)
  if case == 'dat' and gender == 'p' and word[-1] not in 'ns':
    word += 'n'
  stem = ADJECTIVES[adjective] + ending if adjective else ''
  return ' '.join(f'{article} {stem} {word}'.split())


def _country(form: str, code: str) -> str:
  name, gender = put_in_words(('country', code), 'de'), GERMAN_ARTICLES.get(code)
  if gender is None:
    preposition = {'in': 'in ', 'to': 'nach ', 'from': 'aus '}.get(form, '')
    return preposition + name
  preposition, case = _BEFORE_ARTICLE.get(form, ('', form or 'nom'))
  if name.startswith('Vereinigte'):
    stem, noun = re.fullmatch(r'(Vereinigte)\w? (\w+)', name).groups()
    name = f'{stem}{_ending(_WEAK, case, gender)[1:]} {noun}'
  if case == 'dat' and gender == 'p' and name[-1] != 'n':
    name += 'n'
  article = _ending(_ARTICLE, case, gender)
  contracted = {'in dem': 'im', 'in das': 'ins'}
  opening = f'{preposition} {article}'.strip()
  return f'{contracted.get(opening, opening)} {name}'


@lru_cache(maxsize=1 << 17)
def phrase(value: Value, form: str = '') -> str:
  """Returns a value in German; form: a case (nom acc dat gen), in, to, from or into."""
  match value:
    case 'name', name:
      return name
    case 'adverb', adverb:
      return ADVERBS[adverb]
    case 'food', food:
      return FOODS[food]
    case 'pronoun', pronoun:
      return _PRONOUNS[pronoun][form]
    case 'person', noun, determiner:
      article, _ = _inflect_determiner(determiner, form, PEOPLE[noun].gender)
      return f'{article} {PEOPLE[noun].german}'
    case 'thing', *payload:
      return _thing(form, *payload)
    case 'count', noun, number, kind, adjective:
      stem = ADJECTIVES[adjective] + 'e' if adjective else ''
      words = f'{put_in_words((kind, number), "de")} {stem} {NOUNS[noun].german_plural}'
      return ' '.join(words.split())
    case 'list', members:
      return join_words([phrase(member, form) for member in members], 'de')
    case 'country', code:
      return _country(form, code)
    case 'language', _:
      name = put_in_words(value, 'de')
      return {'from': f'aus dem {name}en', 'into': f'ins {name}e'}.get(form, name)
    case 'ordinal', _:
      return put_in_words(value, 'de') + form
    case 'on', ordinal, with_weekday:
      day = put_in_words(('date', ordinal), 'de')
      if with_weekday:
        day = f'{put_in_words(("weekday", (ordinal - 1) % 7), "de")}, dem {day},'
      return f'am {day}'
    case 'last' | 'next' | 'every' as which, weekday:
      word = {'last': 'letzten', 'next': 'nächsten', 'every': 'jeden'}[which]
      return f'{word} {put_in_words(("weekday", weekday), "de")}'
    case 'in_year', year:
      return f'im Jahr {year}'
    case 'in_month', *payload:
      return f'im {put_in_words(("month", *payload), "de")}'
    case 'moment', day, minutes:
      return f'{phrase(day)} um {put_in_words(("clock", minutes), "de")} Uhr'
    case _:
      return put_in_words(value, 'de')


def _verb(clause: Clause, mode: str) -> tuple[str, str]:
  """Returns the finite verb and the verb's other part, which ends the clause.

  A '+' marks a separable prefix (an+), so that it can join its verb again.
  """
  infinitive, finite, participle, *rest = clause.pattern.verb['de'].split()
  prefix, stem = infinitive.split('+') if '+' in infinitive else ('', infinitive)
  if mode == 'zu':
    return '', f'{prefix}zu{stem}' if prefix else f'zu {stem}'
  subject = clause.subject[1] if clause.subject[0] == 'pronoun' else 'he'
  person = 0 if subject == 'I' else 1 if subject in ('he', 'she') else 2
  if clause.tense == 'present':
    form = (re.sub('en$', 'e', stem), finite, stem)[person]
    return form, prefix and prefix + '+'
  if clause.tense == 'past':
    return _AUXILIARIES[rest[0] if rest else 'haben'][person], participle
  return _AUXILIARIES[clause.tense][person], prefix + stem


def render(clause: Clause, mode: str) -> tuple[str, str]:
  """Returns the opening of a clause, mostly its subject, and the rest.

  Modes: main; inverted (finite verb first); front (time, then verb); sub (finite verb
  last); zu (infinitive); relative (as sub, the slot 'thing' left out).
  """
  omitted = 'thing' if mode == 'relative' else ''
  template = clause.pattern.template['de']
  time = phrase(clause.time) if clause.time else ''
  text = fill(template, clause, phrase, omitted)
  text = text.replace('@', '' if mode == 'front' else time)
  text = text.replace('#', 'nicht' if clause.negated else '')
  if clause.subject is None:
    subject, finite, middle, end = (part.strip() for part in text.split('|'))
  else:
    subject = phrase(clause.subject, 'nom')
    middle, (finite, end) = text, _verb(clause, mode)
  if mode in ('sub', 'relative'):
    joined = end[:-1] + finite if end.endswith('+') else f'{end} {finite}'
    return subject, f'{middle} {joined}'
  if mode == 'zu':
    return '', f'{middle} {end}'
  rest = f'{middle} {end.rstrip("+")}'
  if mode == 'main':
    return subject, f'{finite} {rest}'
  opening = f'{time} {finite}' if mode == 'front' else finite
  return opening, f'{subject} {rest}'


def relative(clause: Clause) -> str:
  """Returns a relative clause, as ', das Anna am Montag gekauft hat,'."""
  gender = NOUNS[clause.slots['thing'][1]].gender
  pronoun = _ending(_ARTICLE, 'acc', gender)
  return f', {pronoun} ' + ' '.join(render(clause, 'relative')) + ','
