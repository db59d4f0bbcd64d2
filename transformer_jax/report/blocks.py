"""The parts of a report, from which page.py makes Markdown or HTML."""

import re
from collections.abc import Sequence
from typing import NamedTuple

# What neither XML nor a terminal takes: control characters, and the surrogates that
# stand for the bytes of a file's name that are not UTF-8.
_UNPRINTABLE = re.compile('[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')


def legible(text: str) -> str:
  """The text in one line, with U+FFFD for each character that cannot be shown."""
  return _UNPRINTABLE.sub('\ufffd', ' '.join(text.split()))


class Heading(NamedTuple):
  level: int
  text: str


class Paragraph(NamedTuple):
  text: str


class Bullets(NamedTuple):
  items: Sequence[str]


class Facts(NamedTuple):
  """Sentences, each under a name."""

  items: Sequence[tuple[str, str]]


class Table(NamedTuple):
  """Rows of text; the first column names the row."""

  header: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  """Pictures that follow one another stand side by side where there is room."""

  name: str  # of its file, without the ending
  text: str  # says what it shows to readers who cannot see it
  svg: str


Block = Heading | Paragraph | Bullets | Facts | Table | Picture
