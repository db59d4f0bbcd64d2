"""French grammar of the embedded corpus: agreement, clitics, elision, contraction."""

import re
from functools import lru_cache

from transformer_jax.quickstart_corpus.lexicon import (
  ADJECTIVES,
  ADVERBS,
  FOODS,
  FRENCH_FEMININE,
  FRENCH_MASCULINE,
  FRENCH_WITHOUT_ARTICLE,
  NOUNS,
  PEOPLE,
  PLURAL_COUNTRIES,
  WOMEN,
)
from transformer_jax.quickstart_corpus.shapes import Clause, fill, sentence_case
from transformer_jax.quickstart_corpus.values import Value, listed, worded

_VOWELS = 'aeiouâàéèêîôûœ'
_ASPIRATED = ('Hongrie', 'Havane', 'huit', 'hongrois')
_SUBJECTS = dict(I='je', he='il', she='elle', we='nous', you='vous', they='ils')
_DIRECT = dict(I='me', he='le', she='la', we='nous', you='vous', they='les')
_INDIRECT = dict(I='me', he='lui', she='lui', we='nous', you='vous', they='leur')
_TONIC = dict(I='moi', he='lui', she='elle', we='nous', you='vous', they='eux')
# je, il, nous, vous, ils
_PERSONS = dict(I=0, he=1, she=1, we=2, you=3, they=4)
_FUTURE = ('ai', 'a', 'ons', 'ez', 'ont')
_AUXILIARIES = {
  'avoir': ('ai', 'a', 'avons', 'avez', 'ont'),
  'être': ('suis', 'est', 'sommes', 'êtes', 'sont'),
  'avoir subjunctive': ('aie', 'ait', 'ayons', 'ayez', 'aient'),
  'être subjunctive': ('sois', 'soit', 'soyons', 'soyez', 'soient'),
  'must': ('dois', 'doit', 'devons', 'devez', 'doivent'),
  'can': ('peux', 'peut', 'pouvons', 'pouvez', 'peuvent'),
  'want': ('veux', 'veut', 'voulons', 'voulez', 'veulent'),
}
# masculine, masculine before a vowel, feminine, plural
_DETERMINERS = {
  'the': ('le', 'le', 'la', 'les'),
  'a': ('un', 'un', 'une', 'des'),
  'this': ('ce', 'cet', 'cette', 'ces'),
  'my': ('mon', 'mon', 'ma', 'mes'),
  'his': ('son', 'son', 'sa', 'ses'),
  'her': ('son', 'son', 'sa', 'ses'),
  'our': ('notre', 'notre', 'notre', 'nos'),
}


def _begins_with_vowel(word: str) -> bool:
  lower = word.lower()
  return lower[0] in _VOWELS or lower[0] == 'h' and not word.startswith(_ASPIRATED)


def _determiner(key: str, feminine: bool, following: str) -> str:
  masculine, liaison, female, _ = _DETERMINERS[key]
  if not _begins_with_vowel(following):
    return female if feminine else masculine
  # Before a vowel 'ma' and 'sa' give way to 'mon' and 'son'.
  return female if feminine and key not in ('my', 'his', 'her') else liaison


def _noun_phrase(noun: str, adjective: str, plural: bool) -> str:
  """Noun and adjective in agreement, without a determiner."""
  entry = NOUNS[noun]
  word = entry.french_plural if plural else entry.french
  if not adjective:
    return word
  masculine, liaison, feminine, plural_form = ADJECTIVES[adjective].french
  before = ADJECTIVES[adjective].before_noun
  if entry.genre == 'f':
    form = feminine + ('s' if plural else '')
  elif plural:
    form = plural_form
  else:
    form = liaison if before and _begins_with_vowel(word) else masculine
  return f'{form} {word}' if before else f'{word} {form}'


def _thing(noun: str, determiner: str, adjective: str) -> str:
  words = _noun_phrase(noun, adjective, determiner == 'all')
  if determiner == 'all':
    return f'les {words}'
  feminine = NOUNS[noun].genre == 'f'
  if determiner in _DETERMINERS:
    return f'{_determiner(determiner, feminine, words)} {words}'
  return f'{_determiner("the", feminine, words)} {words} de {determiner}'


def _count(noun: str, number: int, kind: str, adjective: str) -> str:
  form = 'f' if NOUNS[noun].genre == 'f' else ''
  return f'{phrase((kind, number), form)} {_noun_phrase(noun, adjective, True)}'


def _person(noun: str, determiner: str) -> str:
  entry = PEOPLE[noun]
  return f'{_determiner(determiner, entry.feminine, entry.french)} {entry.french}'


def _country(form: str, code: str) -> str:
  name = worded(('country', code), 'fr')
  feminine = name.endswith('e') or code in FRENCH_FEMININE
  feminine = feminine and code not in FRENCH_MASCULINE
  bare = code in FRENCH_WITHOUT_ARTICLE
  like_feminine = feminine or _begins_with_vowel(name)
  if code in PLURAL_COUNTRIES:
    article, inside = 'les ', 'à les '
  else:
    article = '' if bare else 'la ' if feminine else 'le '
    inside = 'en ' if like_feminine and code != 'CU' else f'à {article}'
  if form == 'in':
    return inside + name
  if form == 'from':
    return f'de {name}' if inside == 'en ' else f'de {article}{name}'
  return article + name


def _when(kind: str, *payload) -> str:
  match kind:
    case 'on':
      ordinal, with_weekday = payload
      # CLDR writes the first of a month as '1'.
      day = re.sub('^1 ', '1er ', worded(('date', ordinal), 'fr'))
      if with_weekday:
        day = f'{worded(("weekday", (ordinal - 1) % 7), "fr")} {day}'
      return f'le {day}'
    case 'last' | 'next' | 'every':
      weekday = worded(('weekday', *payload), 'fr')
      if kind == 'every':
        return f'tous les {weekday}s'
      return f'{weekday} {"dernier" if kind == "last" else "prochain"}'
    case 'in_year':
      return f'en {payload[0]}'
    case 'in_month':
      return f'en {worded(("month", *payload), "fr")}'
    case 'at':
      return f'à {worded(("clock", *payload), "fr")}'
    case 'moment':
      day, minutes = payload
      return f'{phrase(day)} {phrase(("at", minutes))}'
    case _:
      return worded((kind, *payload), 'fr')


def _pronoun(form: str, pronoun: str) -> str:
  forms = {'nom': _SUBJECTS, 'le': _DIRECT, 'lui': _INDIRECT, 'tonic': _TONIC}
  return forms[form][pronoun] if form in forms else ''


@lru_cache(maxsize=1 << 17)
def phrase(value: Value, form: str = '') -> str:
  """A value in French.

  Forms: nom (subject); le, lui (the clitic of a pronoun, else nothing); à and the
  default (the object of a non-pronoun, else nothing); tonic; in, from (countries);
  f (feminine number); e (the feminine participle's ending).
  """
  kind, *payload = value
  if form == 'e':
    return 'e' if is_feminine(value) else ''
  if kind == 'pronoun':
    return _pronoun(form, *payload)
  if form in ('le', 'lui'):
    return ''
  if form == 'à':
    return f'à {phrase(value)}'
  match kind:
    case 'name':
      return payload[0]
    case 'adverb':
      return ADVERBS[payload[0]][1]
    case 'food':
      return FOODS[payload[0]][1]
    case 'person':
      return _person(*payload)
    case 'thing':
      return _thing(*payload)
    case 'count':
      return _count(*payload)
    case 'list':
      return listed([phrase(member, form) for member in payload[0]], 'fr')
    case 'country':
      return _country(form, *payload)
    case 'words':
      words = worded(value, 'fr')
      return words + 'e' if form == 'f' and words.endswith('un') else words
    case _:
      return _when(kind, *payload)


def is_feminine(value: Value) -> bool:
  """Whether a person or thing is feminine in French."""
  kind, word, *_ = value
  match kind:
    case 'pronoun':
      return word == 'she'
    case 'name':
      return word in WOMEN
    case 'thing':
      return NOUNS[word].genre == 'f'
    case _:
      return PEOPLE[word].feminine


def _agreement(value: Value) -> str:
  plural = value[1] in ('we', 'they') or value[0] == 'thing' and value[2] == 'all'
  return ('e' if is_feminine(value) else '') + ('s' if plural else '')


def _participle(clause: Clause, mode: str, participle: str, auxiliary: str) -> str:
  """Agrees with the subject after être, with an object before it after avoir."""
  clitic = clause.slots.get('person')
  if auxiliary == 'être':
    agreement = _agreement(clause.subject)
  elif mode == 'relative':
    agreement = _agreement(clause.slots['thing'])
  elif clitic and clitic[0] == 'pronoun' and ':le}' in clause.pattern.template['fr']:
    agreement = _agreement(clitic)
  else:
    agreement = ''
  if agreement == 's' and participle.endswith('s'):
    return participle
  return participle + agreement


@lru_cache(maxsize=1024)
def _conjugated(verb: str) -> list[str]:
  """Infinitive, participle, stem of the future, je, il, nous, ils, auxiliary."""
  auxiliary = 'être' if verb.endswith(' être') else 'avoir'
  infinitive, *irregular = verb.removesuffix(' être').split()
  stem = infinitive[:-2]
  if irregular:
    forms = irregular
  elif infinitive.endswith('er'):
    soft = stem + 'e' if stem.endswith('g') else stem
    forms = [stem + 'é', infinitive, stem + 'e', stem + 'e', soft + 'ons', stem + 'ent']
  else:
    forms = [stem + 'u', stem + 'r', stem + 's', stem, stem + 'ons', stem + 'ent']
  return [infinitive, *forms, auxiliary]


def _predicate(clause: Clause, mode: str, clitic: str) -> str:
  """Clitics, negation and verb: "ne l'a pas acheté", without elision."""
  verb = _conjugated(clause.pattern.verb['fr'])
  infinitive, participle, stem, je, il, nous, ils, auxiliary = verb
  if mode == 'infinitive':
    return f'{clitic} {infinitive}'
  subject = clause.subject[1] if clause.subject[0] == 'pronoun' else 'he'
  person = _PERSONS[subject]
  ne, pas = ('ne', 'pas') if clause.negated else ('', '')
  if clause.tense == 'past':
    key = auxiliary + (' subjunctive' if mode == 'subjunctive' else '')
    agreed = _participle(clause, mode, participle, auxiliary)
    return f'{ne} {clitic} {_AUXILIARIES[key][person]} {pas} {agreed}'
  if clause.tense == 'present':
    vous = nous.removesuffix('ons') + 'ez'
    return f'{ne} {clitic} {(je, il, nous, vous, ils)[person]} {pas}'
  if clause.tense == 'future':
    return f'{ne} {clitic} {stem}{_FUTURE[person]} {pas}'
  return f'{ne} {_AUXILIARIES[clause.tense][person]} {pas} {clitic} {infinitive}'


def render(clause: Clause, mode: str) -> tuple[str, str]:
  """(subject, rest) of a clause, before elision.

  Modes: main; front (time first); subjunctive (of the past); infinitive; relative
  (the slot 'thing' left out).
  """
  omitted = 'thing' if mode == 'relative' else ''
  text = fill(clause.pattern.template['fr'], clause, phrase, omitted)
  time = phrase(clause.time) if clause.time else ''
  if clause.subject is None:
    subject, rest = text.split('|')
  else:
    clitic, _, objects = text.rpartition('~')
    subject = '' if mode == 'infinitive' else phrase(clause.subject, 'nom')
    rest = f'{_predicate(clause, mode, clitic)} {objects}'
  if mode == 'front':
    return f'{time}, {subject}', rest
  return subject, f'{rest} {time}'


def relative(clause: Clause) -> str:
  """ "qu'Anna a acheté lundi", to follow its noun."""
  return 'que ' + ' '.join(render(clause, 'relative'))


_CONTRACTIONS = {
  r'\bde les\b': 'des',
  r'\bà les\b': 'aux',
  r'\bde [lL]e\b': 'du',
  r'\bà [lL]e\b': 'au',
}
_ELIDED = re.compile(
  rf'\b([jldnsm]|qu|lorsqu|jusqu)[ea] (?!onz|{"|".join(_ASPIRATED)})'
  rf'(?=[h{_VOWELS}])',
  re.IGNORECASE,
)


def finish(text: str) -> str:
  """Spaces, elision, contraction and capitals of a whole sentence."""
  text = ' '.join(text.split())
  text = re.sub(r'\bsi (?=ils?\b)', "s'", text)
  text = _ELIDED.sub(lambda match: match[1] + "'", text)
  for pattern, contracted in _CONTRACTIONS.items():
    text = re.sub(pattern, contracted, text)
  return sentence_case(text)
