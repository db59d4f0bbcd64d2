"""Blocks as Markdown, read by a library that knows it, and as an HTML page."""

import html
import pathlib
import re
import xml.etree.ElementTree

import markdown_it
import pytest

from transformer_jax.report import page
from transformer_jax.report.page import legible

HOSTILE = (
  'a<b>c</b> | *d* _e_ __f__ snake_case',
  'an `unpaired <script>alert(1)</script> `<b>`<b>``<b>',
  '&lt;b&gt; AT&T ![x](javascript:alert(1)) [y](z) <https://a.b>',
  '# no heading',
  '\ttabs\tand\nnew lines\r\x0b\x85\u2028here',
  'bytes \udcff and \x00 \x1b[31m',
)


def tags(source: str) -> list[str]:
  return re.findall(r'<(/?\w+)', source)


def words(source: str) -> list[str]:
  return html.unescape(re.sub('<[^>]*>', '', source)).split()


def blocks(text: str) -> list:
  return [
    page.heading(2, text),
    page.paragraph(text),
    page.bullets([text, text]),
    page.facts([('run', text), (text, 'x')]),
    page.table(['x', text], [[text, text]]),
    page.table(['x', 'of nothing'], []),
  ]


def test_numbers_are_set_to_the_right_and_text_is_not():
  table = rendered(page.table(['', 'number', 'text'], [['a', '-0.9', 'Мужчина']]))
  assert re.findall(r'<td( style)?', table) == ['', ' style', '']


def rendered(markdown: str) -> str:
  """Renders Markdown as GitHub does, which passes HTML through."""
  known = markdown_it.MarkdownIt('commonmark').enable(['table', 'strikethrough'])
  return known.render(markdown)


@pytest.mark.parametrize('text', HOSTILE)
def test_no_text_is_markup(text: str):
  """Every block shows its text as it is, in Markdown and in HTML."""
  frame = rendered(page.markdown(blocks('plain')))
  shown = rendered(page.markdown(blocks(text)))
  assert tags(shown) == tags(frame)
  expected = ' '.join(words(frame)).replace('plain', legible(text)).split()
  assert words(shown) == expected
  whole = page.page('t', blocks(text))
  assert tags(whole) == tags(page.page('t', blocks('plain')))
  assert words(whole)[-len(expected) :] == expected


def test_pictures_stand_beside_a_page_or_in_it(tmp_path: pathlib.Path):
  """Each says what it shows."""
  first, second = (
    page.Picture(f'n {n}', f'<{n}> & b', f'<svg width="{n}"><g/></svg>') for n in '12'
  )
  parts = [page.paragraph('a'), first, page.paragraph('b'), second]
  page.write_markdown(parts, tmp_path / 'my page.md')
  links = re.findall('src="(.*?)"', rendered((tmp_path / 'my page.md').read_text()))
  assert links == [f'my%20page.n%20{n}.svg' for n in '12']
  for number in '12':
    svg = (tmp_path / f'my page.n {number}.svg').read_text()
    root = xml.etree.ElementTree.fromstring(svg)
    assert root.get('width') == number and [x.tag for x in root] == ['style', 'g']
    assert all(
      colour in root[0].text for both in page.COLOURS.values() for colour in both
    )
  source = page.page('of <x> & y', parts)
  assert '<title>of &lt;x&gt; &amp; y</title>' in source
  labels = [f'&lt;{n}&gt; &amp; b' for n in '12']
  assert [*re.findall('<figure><svg role="img" aria-label="(.*?)"', source)] == labels
