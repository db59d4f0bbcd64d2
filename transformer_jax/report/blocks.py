"""The parts of a report, from which page.py makes Markdown or HTML."""

from collections.abc import Sequence
from typing import NamedTuple


class Heading(NamedTuple):
  level: int
  text: str


class Paragraph(NamedTuple):
  text: str


class Bullets(NamedTuple):
  items: Sequence[str]


class Table(NamedTuple):
  """Rows of text; the first column names the row."""

  header: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  name: str  # of its file, without the ending
  text: str  # says what it shows to readers who cannot see it
  svg: str


class Sample(NamedTuple):
  source: str
  translation: str
  reference: str


Block = Heading | Paragraph | Bullets | Table | Picture | Sample
