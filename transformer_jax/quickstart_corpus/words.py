"""The words of the embedded corpus: tables of our own, and Unicode CLDR's.

A value is a tuple (kind, *payload) that belongs to no language. CLDR (by Babel) and
num2words name countries, dates, prices and numbers. The tables here name the rest, and
say which of CLDR's countries, cities, languages and currencies occur.
english.py and german.py add articles, cases and prepositions.
"""

import unicodedata
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from babel import Locale, dates, lists, numbers, units
from num2words import num2words

Value = tuple


class Noun(NamedTuple):
  """An English noun's plural, and the noun in German; the gender is m, f or n."""

  plural: str
  gender: str
  german: str
  german_plural: str


class Person(NamedTuple):
  """A noun for a person: gender m or f, and 'the', or 'my' if any possessive goes."""

  gender: str
  determiner: str
  german: str


def _table(lines: str, row: type) -> dict:
  """Returns the first word of each line -> the rest as a `row`."""
  return {
    first: row(*rest)
    for first, *rest in (line.split() for line in lines.strip().split('\n'))
  }


NOUNS = _table(
  """
book books n Buch Bücher
car cars n Auto Autos
bicycle bicycles n Fahrrad Fahrräder
lamp lamps f Lampe Lampen
table tables m Tisch Tische
chair chairs m Stuhl Stühle
picture pictures n Bild Bilder
computer computers m Computer Computer
phone phones n Telefon Telefone
key keys m Schlüssel Schlüssel
coat coats m Mantel Mäntel
hat hats m Hut Hüte
bag bags f Tasche Taschen
suitcase suitcases m Koffer Koffer
umbrella umbrellas m Regenschirm Regenschirme
bottle bottles f Flasche Flaschen
ring rings m Ring Ringe
newspaper newspapers f Zeitung Zeitungen
guitar guitars f Gitarre Gitarren
piano pianos n Klavier Klaviere
camera cameras f Kamera Kameras
mirror mirrors m Spiegel Spiegel
shirt shirts n Hemd Hemden
box boxes f Kiste Kisten
cup cups f Tasse Tassen
plate plates m Teller Teller
dictionary dictionaries n Wörterbuch Wörterbücher
gift gifts n Geschenk Geschenke
clock clocks f Uhr Uhren
knife knives n Messer Messer
carpet carpets m Teppich Teppiche
violin violins f Geige Geigen
""",
  Noun,
)
PEOPLE = _table(
  """
brother m my Bruder
sister f my Schwester
father m my Vater
mother f my Mutter
uncle m my Onkel
aunt f my Tante
friend m my Freund
grandmother f my Großmutter
son m my Sohn
daughter f my Tochter
doctor m the Arzt
teacher m the Lehrer
director m the Direktor
baker m the Bäcker
engineer m the Ingenieur
singer f the Sängerin
""",
  Person,
)
# English adjective -> German stem.
ADJECTIVES = {
  'new': 'neu',
  'old': 'alt',
  'small': 'klein',
  'big': 'groß',
  'beautiful': 'schön',
  'red': 'rot',
  'blue': 'blau',
  'green': 'grün',
  'black': 'schwarz',
  'white': 'weiß',
  'expensive': 'teur',
  'heavy': 'schwer',
  'strange': 'seltsam',
  'modern': 'modern',
}
# Names spelt alike in both languages; none ends in a sibilant (German genitive).
MEN = tuple('Paul David Martin Daniel Robert Oliver Adam Simon Leon Victor'.split())
WOMEN = tuple('Anna Maria Emma Laura Julia Clara Nina Sarah Eva Sophia'.split())

# English -> German; four each of past, present and future.
ADVERBS = {
  'yesterday': 'gestern',
  'this morning': 'heute Morgen',
  'last week': 'letzte Woche',
  'last year': 'letztes Jahr',
  'every day': 'jeden Tag',
  'every week': 'jede Woche',
  'every month': 'jeden Monat',
  'today': 'heute',
  'tomorrow': 'morgen',
  'tonight': 'heute Abend',
  'next week': 'nächste Woche',
  'next year': 'nächstes Jahr',
}
FOODS = {
  'rice': 'Reis',
  'cheese': 'Käse',
  'bread': 'Brot',
  'meat': 'Fleisch',
  'fish': 'Fisch',
  'chocolate': 'Schokolade',
}

COUNTRIES = tuple(
  'AR AU AT BE BR BG CA CL CN CO HR CU CZ DK EC EG EE ET FI FR DE GR HU IS IN ID IR IQ'
  ' IE IL IT JP KE LV LB LT LU MY MX MN MA NL NZ NG NO PK PE PH PL PT RO RU SA SN RS'
  ' SG SK SI ZA KR ES SE CH TH TN UA GB US UY VE VN'.split()
)
PLURAL_COUNTRIES = ('NL', 'PH', 'US')
# Countries that take an article in German, by gender; the others take none.
GERMAN_ARTICLES = {
  **{code: 'f' for code in ('CH', 'UA', 'SK', 'MN')},
  **{code: 'm' for code in ('IR', 'IQ', 'LB')},
  **{code: 'p' for code in PLURAL_COUNTRIES},
  'GB': 'n',
}
LANGUAGES = tuple(
  'ar bg zh hr cs da nl en et fi fr de el he hu is id it ja ko lv lt no fa pl pt ro ru'
  ' sr sk sl es sv tr uk vi'.split()
)
CITIES = tuple(
  f'{continent}/{city}'
  for continent, cities in {
    'Europe': 'Vienna Warsaw Prague Rome Lisbon Copenhagen Athens Moscow Brussels'
    ' Bucharest Belgrade London Paris Berlin Madrid Stockholm Oslo Dublin Budapest'
    ' Sofia Zagreb Zurich Amsterdam Riga Vilnius Sarajevo',
    'Africa': 'Cairo Algiers Tunis Nairobi Casablanca Dakar Tripoli',
    'Asia': 'Beirut Tokyo Singapore Baghdad Damascus Seoul Shanghai Bangkok Jakarta'
    ' Jerusalem Tehran',
    'America': 'Mexico_City Havana New_York Chicago Toronto Lima Los_Angeles Santiago',
    'Australia': 'Sydney Melbourne',
  }.items()
  for city in cities.split()
)
NAMED_CURRENCIES = tuple('EUR USD GBP CHF JPY SEK NOK DKK PLN CAD AUD INR'.split())
SYMBOL_CURRENCIES = tuple('EUR USD GBP'.split())

_DAYS_PER = {'day': 1, 'week': 7, 'month': 30, 'year': 365}


@lru_cache(maxsize=1 << 17)
def put_in_words(value: Value, locale: str) -> str:
  """Returns a value's bare wording in 'en' or 'de'.

  Raises:
    ValueError: neither CLDR nor num2words has words for this kind of value.
  """
  return _plain(_to_words(value, locale))


def join_words(words: list[str], locale: str) -> str:
  """Returns 'A, B, and C' by the locale's list pattern."""
  return _plain(lists.format_list(words, locale=locale))


def _plain(text: str) -> str:
  """Returns the text in NFC, with ordinary spaces for CLDR's (U+00A0, U+202F ...)."""
  return ' '.join(unicodedata.normalize('NFC', text).split())


def _to_words(value: Value, locale: str) -> str:
  match value:
    case 'country', code:
      return Locale.parse(locale).territories[code]
    case 'language', code:
      return Locale.parse(locale).languages[code]
    case 'city', zone:
      return dates.get_timezone_location(zone, locale=locale, return_city=True)
    case 'clock', minutes:
      return dates.format_time(time(*divmod(minutes, 60)), 'short', locale=locale)
    case 'date', ordinal:
      return dates.format_date(date.fromordinal(ordinal), 'long', locale=locale)
    case 'month', year, month:
      return dates.format_date(date(year, month, 1), 'MMMM y', locale=locale)
    case 'weekday', weekday:  # 0 is Monday
      return dates.format_date(date(2024, 1, 1 + weekday), 'EEEE', locale=locale)
    case 'delta', count, unit:  # '3 weeks ago' for -3, 'in 3 weeks' for 3
      # A threshold out of reach keeps Babel from moving up to a larger unit.
      return dates.format_timedelta(
        timedelta(days=count * _DAYS_PER[unit]),
        unit,
        threshold=10**9,
        add_direction=True,
        locale=locale,
      )
    case 'money', amount, code if '.' in amount:
      return numbers.format_currency(Decimal(amount), code, locale=locale)
    case 'money', amount, code:  # with the currency's name, in the plural
      return numbers.format_currency(
        Decimal(amount),
        code,
        '#,##0',
        locale=locale,
        currency_digits=False,
        format_type='name',
      )
    case 'measure', amount, unit:
      return units.format_unit(Decimal(amount), unit, 'long', locale=locale)
    case 'percent', per_mille:
      return numbers.format_percent(
        Decimal(per_mille) / 1000, locale=locale, decimal_quantization=False
      )
    case 'number', number:
      return numbers.format_decimal(number, locale=locale)
    case 'millions', tenths:
      return numbers.format_compact_decimal(
        tenths * 100_000, format_type='long', fraction_digits=1, locale=locale
      )
    case 'words', number:
      return num2words(number, lang=locale)
    case 'ordinal', number:
      return num2words(number, lang=locale, to='ordinal')
  raise ValueError(f'no words for {value}')
