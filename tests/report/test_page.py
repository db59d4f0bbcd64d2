"""Blocks as Markdown, read by a library that knows it, and as an HTML page."""

import html.parser

import markdown_it
import pytest

from toy.results import family
from transformer_jax.report import curves, differences, grouping, page, tables
from transformer_jax.report.blocks import (
  Bullets,
  Facts,
  Heading,
  Paragraph,
  Picture,
  Table,
  legible,
)

HOSTILE = (
  'a<b>c</b> | *d* _e_ __f__ snake_case',
  'an `unpaired <script>alert(1)</script>',
  '`` ` <img src=x onerror=alert(1)> ``',
  '``` <b>fenced</b>',
  '`<b>`<b>``<b>',
  '\\`<b>`',
  '<!-- a comment',
  '&lt;b&gt; &#60;b&#62; AT&T',
  '![x](javascript:alert(1)) [y](z) <https://a.b>',
  '# no heading',
  '- no list',
  '1. no list',
  '12) no list',
  '+ no list',
  '=== no heading',
  '~~struck~~ $\\frac{1}{2}$',
  '\ttabs\tand\nnew lines\r\x0b\x85\u2028here',
  'bytes \udcff and \x00 \x1b[31m',
  '    four spaces',
)


class Reader(html.parser.HTMLParser):
  """Checks that tags close in order; collects tags, links and text."""

  VOID = {'meta', 'br', 'path', 'use', 'rect', 'hr', 'img'}

  def __init__(self, source: str):
    super().__init__()
    self.open, self.tags, self.links, self.words = [], [], [], []
    self.feed(source)
    assert not self.open

  def handle_starttag(self, tag: str, attributes: list):
    self.tags.append(tag)
    self.links += [v for k, v in attributes if k in ('src', 'href', 'xlink:href')]
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag: str, attributes: list):
    self.handle_starttag(tag, attributes)
    if tag not in self.VOID:
      self.open.pop()

  def handle_endtag(self, tag: str):
    if tag not in self.VOID:
      assert self.open.pop() == tag

  def handle_data(self, data: str):
    self.words.append(data)


def blocks(text: str) -> list:
  return [
    Heading(2, text),
    Paragraph(text),
    Bullets([text, text]),
    Facts([('run', text), (text, 'x')]),
    Table(['x', text], [[text, text]]),
    Table(['x', 'of nothing'], []),
  ]


def rendered(markdown: str) -> Reader:
  """As GitHub renders it: HTML is passed through, tables and ~~ are known."""
  known = markdown_it.MarkdownIt('commonmark').enable(['table', 'strikethrough'])
  return Reader(known.render(markdown))


@pytest.mark.parametrize('text', HOSTILE)
def test_no_text_is_markup(text: str):
  """Every block shows the text as it is, and nothing else, in Markdown and in HTML."""
  frame = rendered(page.markdown(blocks('plain')))
  found = rendered(page.markdown(blocks(text)))
  assert found.tags == frame.tags
  expected = ''.join(frame.words).replace('plain', legible(text))
  assert ''.join(found.words).split() == expected.split()
  source = Reader(page.page('t', blocks(text)))
  assert source.tags == Reader(page.page('t', blocks('plain'))).tags
  assert source.words.count(legible(text)) == 9


def test_words_stay_readable():
  text = 'snake_case, 1.5 - 2 & more (n^2)'
  assert page.markdown([Paragraph(text)]) == text + '\n'


def test_pictures_that_follow_one_another_stand_together():
  made = [Heading(2, 'x'), *(Picture(n, f'says {n}', '<svg></svg>') for n in 'ab')]
  assert page.markdown(made, 'my page') == (
    '## x\n\n![says a](my%20page.a.svg)\n![says b](my%20page.b.svg)\n'
  )
  links = rendered(page.markdown(made, 'my page')).links
  assert links == ['my%20page.a.svg', 'my%20page.b.svg']
  assert page.markdown(made) == '## x\n'
  source = page.page('t', made)
  assert source.count('<div class="pictures">') == 1 and source.count('<figure>') == 2


def test_the_page_is_whole_and_needs_nothing_else():
  found = [one._replace(records=[{'step': 1, 'loss': 9.0}]) for one in family()]
  ((group,), _) = grouping.group(found)
  differ = differences.differences(group, lambda *_: None)
  made = tables.comparable(group, None, differ) + curves.curves(found, [])
  source = page.page('Runs', made)
  reader = Reader(source)
  assert reader.tags.count('svg') == 3 and reader.tags.count('table') == 2
  assert all(link.startswith('#') for link in reader.links)
  assert 'url(http' not in source and '@import' not in source
  assert '<script' not in source


def test_every_picture_stands_below_a_heading():
  found = [one._replace(records=[{'step': 1, 'loss': 9.0}]) for one in family()]
  ((group,), _) = grouping.group(found)
  differ = differences.differences(group, lambda *_: None)
  made = tables.comparable(group, None, differ) + curves.curves(found, [])
  for before, block in zip(made, made[1:], strict=False):
    if isinstance(block, Picture):
      assert isinstance(before, Heading | Picture)
