"""Values of the embedded corpus, worded by Unicode CLDR (Babel) and num2words.

A value is a tuple (kind, *payload) that belongs to no language; `worded` says it in
English, German or French. Articles, cases and prepositions are the grammars' business.
"""

import unicodedata
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache

from babel import Locale
from babel.dates import (
  format_date,
  format_time,
  format_timedelta,
  get_timezone_location,
)
from babel.lists import format_list
from babel.numbers import (
  format_compact_decimal,
  format_currency,
  format_decimal,
  format_percent,
)
from babel.units import format_unit
from num2words import num2words

Value = tuple

_DAYS_PER = {'day': 1, 'week': 7, 'month': 30, 'year': 365}
_A_MONDAY = date(2024, 1, 1)


def plain(text: str) -> str:
  """NFC with every CLDR space (U+00A0, U+202F, ...) made an ordinary one."""
  return ' '.join(unicodedata.normalize('NFC', text).split())


def _country(locale: str, code: str) -> str:
  return Locale.parse(locale).territories[code]


def _language(locale: str, code: str) -> str:
  return Locale.parse(locale).languages[code]


def _city(locale: str, zone: str) -> str:
  return get_timezone_location(zone, locale=locale, return_city=True)


def _clock(locale: str, minutes: int) -> str:
  return format_time(time(*divmod(minutes, 60)), 'short', locale=locale)


def _date(locale: str, ordinal: int) -> str:
  return format_date(date.fromordinal(ordinal), 'long', locale=locale)


def _month(locale: str, year: int, month: int) -> str:
  return format_date(date(year, month, 1), 'MMMM y', locale=locale)


def _weekday(locale: str, weekday: int) -> str:
  day = _A_MONDAY + timedelta(days=weekday)
  return format_date(day, 'EEEE', locale=locale)


def _delta(locale: str, count: int, unit: str) -> str:
  """'3 weeks ago' for count -3, 'in 3 weeks' for 3."""
  delta = timedelta(days=count * _DAYS_PER[unit])
  # A threshold out of reach keeps Babel from moving up to a larger unit.
  return format_timedelta(
    delta, unit, threshold=10**9, add_direction=True, locale=locale
  )


def _money(locale: str, amount: str, code: str) -> str:
  """'12.50' with a symbol; a whole amount with the currency's name in the plural."""
  if '.' in amount:
    return format_currency(Decimal(amount), code, locale=locale)
  return format_currency(
    Decimal(amount),
    code,
    '#,##0',
    locale=locale,
    currency_digits=False,
    format_type='name',
  )


def _measure(locale: str, amount: str, unit: str) -> str:
  return format_unit(Decimal(amount), unit, 'long', locale=locale)


def _percent(locale: str, per_mille: int) -> str:
  share = Decimal(per_mille) / 1000
  return format_percent(share, locale=locale, decimal_quantization=False)


def _number(locale: str, number: int) -> str:
  return format_decimal(number, locale=locale)


def _millions(locale: str, tenths: int) -> str:
  return format_compact_decimal(
    tenths * 100_000, format_type='long', fraction_digits=1, locale=locale
  )


def _words(locale: str, number: int) -> str:
  return num2words(number, lang=locale)


def _ordinal(locale: str, number: int) -> str:
  return num2words(number, lang=locale, to='ordinal')


_KINDS = {
  'country': _country,
  'language': _language,
  'city': _city,
  'clock': _clock,
  'date': _date,
  'month': _month,
  'weekday': _weekday,
  'delta': _delta,
  'money': _money,
  'measure': _measure,
  'percent': _percent,
  'number': _number,
  'millions': _millions,
  'words': _words,
  'ordinal': _ordinal,
}


@lru_cache(maxsize=1 << 17)
def worded(value: Value, locale: str) -> str:
  """A value's bare wording in one locale; KeyError for a kind CLDR does not word."""
  kind, *payload = value
  return plain(_KINDS[kind](locale, *payload))


def listed(words: list[str], locale: str) -> str:
  """'A, B, and C' by the locale's list pattern."""
  return plain(format_list(words, locale=locale))
