"""Shapes of the embedded corpus: clauses parsed from their tables, and frames of them.

A sentence is a frame filled with clauses, a clause is a pattern filled with values.
"""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

from transformer_jax.quickstart_corpus.clauses import FACTS, VERB_PHRASES
from transformer_jax.quickstart_corpus.values import Value

LOCALES = ('en', 'de', 'fr')
TENSES = ('past', 'present', 'future', 'must', 'can', 'want')
_SLOT = re.compile(r'\{(\w+?)(?::(\w+))?\}')


class Pattern:
  """One clause of the tables; verb is empty for facts, which hold their own."""

  def __init__(self, lines: str):
    first, *others = lines.replace('\n  ', ' ').split('\n')
    limits, english = re.fullmatch(r'(?:\[(.*?)\] )?(.*)', first).groups()
    self.tenses = tuple(limits.split()) if limits else TENSES
    self.verb, self.template = {}, {}
    for locale, line in zip(LOCALES, (english, *others), strict=True):
      verb, _, rest = line.rpartition(' / ')
      self.template[locale] = rest
      if verb:
        self.verb[locale] = verb
    self.slots = tuple(dict.fromkeys(name for name, _ in _SLOT.findall(english)))

  @cached_property
  def relative(self) -> bool:
    """Whether the slot 'thing' is a plain direct object, so can become 'that'."""
    german = self.template['de']
    return bool(self.verb) and re.search(r'@ \{thing:acc\}', german) is not None

  @cached_property
  def timed(self) -> bool:
    return '@' in self.template['de']


class Clause(NamedTuple):
  """A pattern with its values; subject is None for facts, time where none is given."""

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
    return self.subject, *self.slots.values(), self.time


class Frame(NamedTuple):
  """weight: relative frequency; specs: what each clause must be."""

  weight: int
  specs: tuple[str, ...]
  template: dict[str, str]


@lru_cache(maxsize=1024)
def _pieces(template: str) -> list[str]:
  """text, then (slot's name, its form, text) over and over."""
  return _SLOT.split(template)


def fill(
  template: str,
  clause: Clause,
  phrase: Callable[[Value, str], str],
  omitted: str = '',
) -> str:
  """The template with its slots worded, but for the omitted one."""

  text, *rest = _pieces(template)
  for name, form, literal in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
    said = '' if name == omitted else phrase(clause.slots[name], form or '')
    text += said + literal
  return text


def sentence_case(text: str) -> str:
  """Single spaces, none before a comma or full stop, one comma, a capital first."""
  text = re.sub(r' (?=[,.])', '', ' '.join(text.split()))
  text = re.sub(r',(?=[,.?])', '', text)
  return text[0].upper() + text[1:]


def _parse_frame(lines: str) -> Frame:
  head, *templates = lines.split('\n')
  weight, *specs = head.split()
  return Frame(int(weight), tuple(specs), dict(zip(LOCALES, templates, strict=True)))


# weight and the kind of each clause: any; event (it has a verb of VERB_PHRASES); a
# tense; timed (it has a time); bare (it has none); positive (it is not negated);
# request; infinitive (with the subject of clause 0); about (a fact about a slot
# 'this'); relative (the clause that says more of it). {0:front} is clause 0 with its
# time first.
_FRAMES = """
10 any
{0:main}.
{0:main}.
{0:main}.

12 timed
{0:front}.
{0:front}.
{0:front}.

8 any any
{0:main} because {1:main}.
{0:main}, weil {1:sub}.
{0:main} parce que {1:main}.

4 timed any
{0:front} because {1:main}.
{0:front}, weil {1:sub}.
{0:front} parce que {1:main}.

6 any event+past
although {1:main}, {0:main}.
obwohl {1:sub}, {0:inverted}.
bien que {1:subjunctive}, {0:main}.

7 event+future event+present
if {1:main}, {0:main}.
wenn {1:sub}, {0:inverted}.
si {1:main}, {0:main}.

5 any any
{0:main}, and {1:main}.
{0:main}, und {1:main}.
{0:main} et {1:main}.

5 any any
{0:main}, but {1:main}.
{0:main}, aber {1:main}.
{0:main}, mais {1:main}.

5 any any
{0:main}, so {1:main}.
{0:main}, deshalb {1:inverted}.
{0:main}, donc {1:main}.

4 any any
{0:main}, whereas {1:main}.
{0:main}, während {1:sub}.
{0:main}, tandis que {1:main}.

4 any
{speaker:nom} says that {0:main}.
{speaker:nom} sagt, dass {0:sub}.
{speaker:nom} dit que {0:main}.

4 any
{speaker:nom} knows that {0:main}.
{speaker:nom} weiß, dass {0:sub}.
{speaker:nom} sait que {0:main}.

4 any
{speaker:nom} has heard that {0:main}.
{speaker:nom} hat gehört, dass {0:sub}.
{speaker:nom} a entendu dire que {0:main}.

3 event+future
{speaker:nom} hopes that {0:main}.
{speaker:nom} hofft, dass {0:sub}.
{speaker:nom} espère que {0:main}.

3 any
the newspaper reports that {0:main}.
die Zeitung berichtet, dass {0:sub}.
le journal rapporte que {0:main}.

4 event+bare
{speaker:nom} asks why {0:main}.
{speaker:nom} fragt, warum {0:sub}.
{speaker:nom} demande pourquoi {0:main}.

4 any
do you know whether {0:main}?
wissen Sie, ob {0:sub}?
savez-vous si {0:main} ?

5 event+positive
{0:question}?
{0:inverted}?
est-ce que {0:main} ?

3 event+positive
why {0:question}?
warum {0:inverted}?
pourquoi est-ce que {0:main} ?

3 event+positive+bare
when {0:question}?
wann {0:inverted}?
quand est-ce que {0:main} ?

4 request
please {0:infinitive}.
bitte {0:inverted}.
veuillez {0:infinitive}.

7 event+past infinitive
{0:main} in order to {1:infinitive}.
{0:main}, um {1:zu}.
{0:main} pour {1:infinitive}.

4 timed+event infinitive
{0:front} in order to {1:infinitive}.
{0:front}, um {1:zu}.
{0:front} pour {1:infinitive}.

12 about relative
{0:about}.
{0:about}.
{0:about}.

4 about relative
{speaker:nom} says that {0:about}.
{speaker:nom} sagt, dass {0:aboutsub}.
{speaker:nom} dit que {0:about}.

5 any any
{speaker:nom} says that {0:main} because {1:main}.
{speaker:nom} sagt, dass {0:sub}, weil {1:sub}.
{speaker:nom} dit que {0:main} parce que {1:main}.

4 event+future event+present any
if {1:main}, {0:main}, because {2:main}.
wenn {1:sub}, {0:inverted}, weil {2:sub}.
si {1:main}, {0:main}, parce que {2:main}.

4 any event+past any
although {1:main}, {0:main}, and {2:main}.
obwohl {1:sub}, {0:inverted}, und {2:main}.
bien que {1:subjunctive}, {0:main} et {2:main}.

4 timed any any
{0:front} because {1:main}, but {2:main}.
{0:front}, weil {1:sub}, aber {2:main}.
{0:front} parce que {1:main}, mais {2:main}.
"""


def _blocks(table: str) -> list[str]:
  return table.strip().split('\n\n')


EVENTS = tuple(Pattern(block) for block in _blocks(VERB_PHRASES))
STATEMENTS = tuple(Pattern(block) for block in _blocks(FACTS))
FRAMES = tuple(_parse_frame(block) for block in _blocks(_FRAMES))
