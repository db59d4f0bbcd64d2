"""WMT's test sets in SGML: documents of segments.

The text comes out as in the plain files of these sets: no white space at the ends, and
one space for every run of it inside, as sacreBLEU reads it. One difference: sacreBLEU
takes a no-break space for white space too. newstest2014 in French has 1,478 of them,
which stay here.
"""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from transformer_jax.data.lines import Unequal
from transformer_jax.machine.errors import UserError

_TAG = re.compile(r'<(/?)(doc|seg)\b([^<>]*)>', re.IGNORECASE)
_ATTRIBUTE = r'\b{}\s*=\s*(?:"([^"]*)"|([^\s"]+))'
_NUMBER = re.compile(_ATTRIBUTE.format('id'), re.IGNORECASE)
_DOCUMENT = re.compile(_ATTRIBUTE.format('docid'), re.IGNORECASE)
_SPACE = re.compile('[ \t\n\r\f\v]+')
# WMT also writes a bare & ("R&D"), so an entity must end with a semicolon.
_ENTITY = re.compile(r'&#?\w+;')


class Segment(NamedTuple):
  document: str
  number: str  # within its document
  text: str

  def __str__(self) -> str:
    return f'segment {self.number} of document {self.document}'


def segments(content: bytes, name: str) -> Iterator[Segment]:
  """The segments of a test set in order. A segment may span several lines.

  Args:
    content: the whole file.
    name: what error messages call it.

  Raises:
    UserError: it is not UTF-8, has no segment, or has one that does not end.
  """
  try:
    text = content.decode('utf-8')
  except UnicodeDecodeError as error:
    line = content.count(b'\n', 0, error.start) + 1
    raise UserError(f'{name}, line {line}: not UTF-8; get it again') from error
  document, opened, found = '', None, False
  for tag in _TAG.finditer(text):
    segment, closing = tag[2].lower() == 'seg', bool(tag[1])
    if (opened is not None) != (segment and closing):
      line = text.count('\n', 0, tag.start()) + 1
      raise UserError(f'{name}, line {line}: {tag[0]} is out of place; get it again')
    if opened:
      inside = text[opened.end() : tag.start()]
      yield Segment(document, _attribute(_NUMBER, opened), plain(inside))
      opened, found = None, True
    elif segment:
      opened = tag
    elif not closing:
      document = _attribute(_DOCUMENT, tag)
  if opened:
    line = text.count('\n', 0, opened.start()) + 1
    raise UserError(f'{name}, line {line}: {opened[0]} does not end; get it again')
  if not found:
    raise UserError(f'{name}: no <seg> in it; is it a test set of WMT?')


def _attribute(pattern: re.Pattern, tag: re.Match) -> str:
  found = pattern.search(tag[3])
  return found[1] or found[2] or '' if found else ''


def plain(text: str) -> str:
  """A segment's text with its entities replaced and its white space made regular."""
  text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
  return _SPACE.sub(' ', text).strip(' ')


def pairs(
  source: bytes, target: bytes, names: tuple[str, str]
) -> list[tuple[str, str]]:
  """Source and reference segments, document by document.

  Raises:
    UserError: a side is damaged, or the two do not hold the same segments.
  """
  sides = [[*segments(*side)] for side in zip((source, target), names, strict=True)]
  for pair in zip(*sides, strict=False):
    if pair[0][:2] != pair[1][:2]:
      raise UserError(f'{names[0]} has {pair[0]} where {names[1]} has {pair[1]}')
  if len(sides[0]) != len(sides[1]):
    short, long = sorted((0, 1), key=lambda side: len(sides[side]))
    raise Unequal(
      f'{names[long]} has {len(sides[long])} segments and {names[short]} has '
      f'{len(sides[short])}: {sides[long][len(sides[short])]} has no other side'
    )
  return [(a.text, b.text) for a, b in zip(*sides, strict=True)]
