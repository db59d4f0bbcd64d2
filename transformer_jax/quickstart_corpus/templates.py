"""The sentences' templates, English and German, as tables, and what fills them.

A sentence is a frame filled with clauses. A clause is a pattern filled with values. In
a template, '{thing:acc}' is a slot for a value of the type `thing` in the form `acc`;
digits at the end of a slot's name only tell it from another slot of its type.
"""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

from transformer_jax.quickstart_corpus.words import Value

TENSES = ('past', 'present', 'future', 'must', 'can', 'want')
_SLOT = re.compile(r'\{(\w+?)(?::(\w+))?\}')

# Two lines a pattern, English and German: the verb's forms / the rest. A pattern has
# only the tenses that stand in brackets before it, or all. English forms: base, past.
# German forms: infinitive ('+' after a separable prefix), er-form, participle, and
# 'sein' if that is the auxiliary. In German '@' is where a time stands and '#' where
# 'nicht' stands.
_VERB_PHRASES = """
buy bought / {thing}
  kaufen kauft gekauft / @ {thing:acc} #
sell sold / {thing} for {money}
  verkaufen verkauft verkauft / @ {thing:acc} # für {money}
order ordered / {count}
  bestellen bestellt bestellt / @ {count}
find found / {thing} in {city}
  finden findet gefunden / @ {thing:acc} # in {city}
[past future] lose lost / {thing} in {country}
  verlieren verliert verloren / @ {thing:acc} # {country:in}
look looked / for {thing}
  suchen sucht gesucht / @ {thing:acc} #
wait waited / for {person}
  warten wartet gewartet / @ # auf {person:acc}
call called / {person}
  an+rufen ruft angerufen / {person:acc} @ #
help helped / {person}
  helfen hilft geholfen / {person:dat} @ #
visit visited / {person} in {city}
  besuchen besucht besucht / {person:acc} @ # in {city}
invite invited / {person} to {city}
  ein+laden lädt eingeladen / {person:acc} @ # nach {city}
drive drove / {person} to {city}
  fahren fährt gefahren / {person:acc} @ # nach {city}
accompany accompanied / {person} to {country}
  begleiten begleitet begleitet / {person:acc} @ # {country:to}
thank thanked / {person} for {thing}
  danken dankt gedankt / {person:dat} @ # für {thing:acc}
give gave / {person} {thing}
  geben gibt gegeben / {person:dat} @ {thing:acc} #
show showed / {person} {thing}
  zeigen zeigt gezeigt / {person:dat} @ {thing:acc} #
send sent / {person} {thing}
  schicken schickt geschickt / {person:dat} @ {thing:acc} #
lend lent / {person} {money}
  leihen leiht geliehen / {person:dat} @ {money}
describe described / {thing} to {person}
  beschreiben beschreibt beschrieben / {person:dat} @ {thing:acc} #
write wrote / a letter to {person} in {language}
  schreiben schreibt geschrieben / {person:dat} @ einen Brief auf {language}
pay paid / {money} for {thing}
  bezahlen bezahlt bezahlt / @ {money} für {thing:acc}
bring brought / {thing} back
  zurück+bringen bringt zurückgebracht / @ {thing:acc} #
repair repaired / {thing} with {person}
  reparieren repariert repariert / @ {thing:acc} # mit {person:dat}
[past future] forget forgot / {thing} in {city}
  vergessen vergisst vergessen / @ {thing:acc} # in {city}
talk talked / about {thing} with {person}
  sprechen spricht gesprochen / @ # mit {person:dat} über {thing:acc}
speak spoke / {language} with {person}
  sprechen spricht gesprochen / @ mit {person:dat} {language}
learn learned / {language} in {country}
  lernen lernt gelernt / @ {country:in} {language}
translate translated / {page} pages from {language} into {language2}
  übersetzen übersetzt übersetzt / @ {page} Seiten {language:from} {language2:into}
travel traveled / to {country} with {person}
  reisen reist gereist sein / @ # mit {person:dat} {country:to}
return returned / to {country}
  zurück+kehren kehrt zurückgekehrt sein / @ # {country:to}
arrive arrived / in {city}
  an+kommen kommt angekommen sein / @ # in {city}
leave left / for {city}
  ab+reisen reist abgereist sein / @ # nach {city}
work worked / in {city}
  arbeiten arbeitet gearbeitet / @ # in {city}
live lived / in {country} with {person}
  wohnen wohnt gewohnt / @ # mit {person:dat} {country:in}
earn earned / {money} in {country}
  verdienen verdient verdient / @ {country:in} {money}
run ran / {run} with {person}
  laufen läuft gelaufen sein / @ mit {person:dat} {run}
[past future must can want] sleep slept / {hours} in {city}
  schlafen schläft geschlafen / @ {hours} in {city}
compare compared / {thing} with {thing2}
  vergleichen vergleicht verglichen / @ {thing:acc} # mit {thing2:dat}
transport transported / {count} to {city}
  transportieren transportiert transportiert / @ {count} nach {city}
eat ate / {mass} of {food}
  essen isst gegessen / @ {mass} {food}
read read / the {ordinal} chapter of the book
  lesen liest gelesen / @ das {ordinal} Kapitel des Buches #
choose chose / {thing} for {person}
  aus+suchen sucht ausgesucht / @ {thing:acc} # für {person:acc}
"""

# Two lines a pattern: subject | rest; in German subject | finite verb | middle | end.
_FACTS = """
[present] the train from {city} to {city2} | leaves at {clock}
  der Zug von {city} nach {city2} | fährt | @ um {clock} Uhr | ab+
[future] the conference in {city} | will begin at {clock}
  die Konferenz in {city} | wird | @ um {clock} Uhr | beginnen
[past] the meeting in {city} | lasted {duration}
  die Sitzung in {city} | hat | @ {duration} | gedauert
[past] {state} | exported {count} for {money}
  {state:nom} | hat | @ {count} für {money} | exportiert
[past] the population of {country} | grew by {percent}
  die Bevölkerung {country:in} | ist | @ um {percent} | gewachsen
[always] {percent} of the people in {country} | speak {language}
  {percent} der Menschen {country:in} | sprechen | {language} |
[always] {millions} people | live in {country}
  {millions} Menschen | leben | {country:in} |
[past] {countries} | signed the agreement
  {countries:nom} | haben | @ das Abkommen | unterzeichnet
[present] the museum in {city} | is open from {morning} to {evening}
  das Museum in {city} | ist | @ von {morning} Uhr bis {evening} Uhr | geöffnet
[past] the temperature in {city} | was {degrees}
  die Temperatur in {city} | lag | @ bei {degrees} |
[always] the distance between {city} and {city2} | is {distance}
  die Entfernung zwischen {city} und {city2} | beträgt | {distance} |
[always] {this} | costs {money}
  {this:nom} | kostet | {money} |
[always] {this} | weighs {weight}
  {this:nom} | wiegt | {weight} |
[always] {this} | comes from {country}
  {this:nom} | kommt | {country:from} |
[past] the price of {this} | rose by {percent}
  der Preis {this:gen} | ist | @ um {percent} | gestiegen
[always] the {ordinal} chapter of the book | has {page} pages
  das {ordinal} Kapitel des Buches | hat | {page} Seiten |
[always] {human} | is {page} years old
  {human:nom} | ist | {page} Jahre | alt
[always] {human} | was born in {city} {born}
  {human:nom} | wurde | {born} in {city} | geboren
[past] the cook in {city} | used {mass} of {food}
  der Koch in {city} | hat | @ {mass} {food} | verwendet
[past] {number} people | visited the museum in {city}
  {number} Menschen | haben | @ das Museum in {city} | besucht
[past] the ship from {country} | carried {tons} of {food}
  das Schiff {country:from} | hat | @ {tons} {food} | transportiert
[past] the train to {city} | reached {speed}
  der Zug nach {city} | hat | @ {speed} | erreicht
[past] the company in {city} | hired {page} people
  die Firma in {city} | hat | @ {page} Personen | eingestellt
[always] {language} | is spoken in {countries}
  {language} | wird | {countries:in} | gesprochen
[always] the flight from {city} to {city2} | takes {hours}
  der Flug von {city} nach {city2} | dauert | {hours} |
[future] the {ordinal} concert | will take place in {city}
  das {ordinal} Konzert | wird | @ in {city} | stattfinden
[past] the shop in {city} | sold {count}
  das Geschäft in {city} | hat | @ {count} | verkauft
[past] the ticket to {city} | cost {money}
  die Fahrkarte nach {city} | hat | @ {money} | gekostet
"""

# Three lines a frame: its relative frequency and a specification of each clause, then
# English and German. '{0:front}' is clause 0 with its time first; english.py and
# german.py list such modes. A specification joins by '+' any of: any; event (a pattern
# of _VERB_PHRASES); a tense; timed (with a time); bare (without); positive (not
# negated); request; infinitive (its subject is that of clause 0); about (a fact with
# the slot 'this'); relative (a clause that says more of that slot).
_FRAMES = """
10 any
  {0:main}.
  {0:main}.
12 timed
  {0:front}.
  {0:front}.
8 any any
  {0:main} because {1:main}.
  {0:main}, weil {1:sub}.
4 timed any
  {0:front} because {1:main}.
  {0:front}, weil {1:sub}.
6 any event+past
  although {1:main}, {0:main}.
  obwohl {1:sub}, {0:inverted}.
7 event+future event+present
  if {1:main}, {0:main}.
  wenn {1:sub}, {0:inverted}.
5 any any
  {0:main}, and {1:main}.
  {0:main}, und {1:main}.
5 any any
  {0:main}, but {1:main}.
  {0:main}, aber {1:main}.
5 any any
  {0:main}, so {1:main}.
  {0:main}, deshalb {1:inverted}.
4 any any
  {0:main}, whereas {1:main}.
  {0:main}, während {1:sub}.
4 any
  {speaker:nom} says that {0:main}.
  {speaker:nom} sagt, dass {0:sub}.
4 any
  {speaker:nom} knows that {0:main}.
  {speaker:nom} weiß, dass {0:sub}.
4 any
  {speaker:nom} has heard that {0:main}.
  {speaker:nom} hat gehört, dass {0:sub}.
3 event+future
  {speaker:nom} hopes that {0:main}.
  {speaker:nom} hofft, dass {0:sub}.
3 any
  the newspaper reports that {0:main}.
  die Zeitung berichtet, dass {0:sub}.
4 event+bare
  {speaker:nom} asks why {0:main}.
  {speaker:nom} fragt, warum {0:sub}.
4 any
  do you know whether {0:main}?
  wissen Sie, ob {0:sub}?
5 event+positive
  {0:question}?
  {0:inverted}?
3 event+positive
  why {0:question}?
  warum {0:inverted}?
3 event+positive+bare
  when {0:question}?
  wann {0:inverted}?
4 request
  please {0:infinitive}.
  bitte {0:inverted}.
7 event+past infinitive
  {0:main} in order to {1:infinitive}.
  {0:main}, um {1:zu}.
4 timed+event infinitive
  {0:front} in order to {1:infinitive}.
  {0:front}, um {1:zu}.
12 about relative
  {0:about}.
  {0:about}.
4 about relative
  {speaker:nom} says that {0:about}.
  {speaker:nom} sagt, dass {0:aboutsub}.
5 any any
  {speaker:nom} says that {0:main} because {1:main}.
  {speaker:nom} sagt, dass {0:sub}, weil {1:sub}.
4 event+future event+present any
  if {1:main}, {0:main}, because {2:main}.
  wenn {1:sub}, {0:inverted}, weil {2:sub}.
4 any event+past any
  although {1:main}, {0:main}, and {2:main}.
  obwohl {1:sub}, {0:inverted}, und {2:main}.
4 timed any any
  {0:front} because {1:main}, but {2:main}.
  {0:front}, weil {1:sub}, aber {2:main}.
"""


class Pattern:
  """A clause without its values.

  Attributes:
    tenses: those that it can have.
    verb: the verb's forms by language; empty for facts, whose templates hold the verb.
    template: by language.
    slots: the names of its slots.
  """

  def __init__(self, english: str, german: str):
    limits, english = re.fullmatch(r'(?:\[(.*?)\] )?(.*)', english).groups()
    self.tenses = tuple(limits.split()) if limits else TENSES
    self.verb, self.template = {}, {}
    for language, line in (('en', english), ('de', german)):
      verb, _, self.template[language] = line.rpartition(' / ')
      if verb:
        self.verb[language] = verb
    self.slots = tuple(dict.fromkeys(name for name, _ in _SLOT.findall(english)))

  @cached_property
  def can_be_relative(self) -> bool:
    """Whether the slot 'thing' is a plain direct object, so can become 'that'."""
    german = self.template['de']
    return bool(self.verb) and re.search(r'@ \{thing:acc\}', german) is not None

  @cached_property
  def can_be_timed(self) -> bool:
    """Whether it has a slot for a time."""
    return '@' in self.template['de']


class Clause(NamedTuple):
  """A pattern with its values; facts have no subject, and not every clause a time."""

  pattern: Pattern
  slots: dict[str, Value]
  tense: str
  negated: bool = False
  subject: Value | None = None
  time: Value | None = None

  @property
  def shape(self) -> tuple:
    """Everything but the values."""
    kind = self.time and self.time[0]
    return self.pattern.template['en'], self.tense, self.negated, kind

  @property
  def values(self) -> tuple:
    """The values of the subject, the slots and the time."""
    return self.subject, *self.slots.values(), self.time


class Frame(NamedTuple):
  """A sentence without its clauses: its frequency, their kinds, the words around."""

  weight: int
  specs: tuple[str, ...]
  template: dict[str, str]


@lru_cache(maxsize=1024)
def _pieces(template: str) -> list[str]:
  """Returns text, then (slot's name, its form, text) over and over."""
  return _SLOT.split(template)


def fill(
  template: str, clause: Clause, phrase: Callable[[Value, str], str], omitted: str
) -> str:
  """Returns the template with its slots put into words; '' for the omitted one."""
  text, *rest = _pieces(template)
  for name, form, literal in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
    words = '' if name == omitted else phrase(clause.slots[name], form or '')
    text += words + literal
  return text


def _rows(table: str, lines_each: int) -> list[tuple[str, ...]]:
  lines = [line.strip() for line in table.strip().split('\n')]
  return [*zip(*(lines[n::lines_each] for n in range(lines_each)), strict=True)]


def _frame(head: str, english: str, german: str) -> Frame:
  weight, *specs = head.split()
  return Frame(int(weight), tuple(specs), {'en': english, 'de': german})


EVENTS = tuple(Pattern(*row) for row in _rows(_VERB_PHRASES, 2))
FACTS = tuple(Pattern(*row) for row in _rows(_FACTS, 2))
FRAMES = tuple(_frame(*row) for row in _rows(_FRAMES, 3))
