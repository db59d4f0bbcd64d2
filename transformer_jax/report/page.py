"""A report's parts as Markdown, and one HTML page of them that needs no other file."""

import html
import itertools
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.machine import files

# Light and dark value of each CSS colour; line colours are colour-blind safe.
COLOURS = {
  'paper': ('#ffffff', '#0d1117'),
  'ink': ('#1f2328', '#e6edf3'),
  'faint': ('#d1d9e0', '#3d444d'),
  'grey': ('#a7a7a7', '#7d7d7d'),
  'blue': ('#0a50bb', '#4c8dff'),
  'vermilion': ('#bd3200', '#dd6433'),
  'green': ('#00a65c', '#42dda0'),
  'purple': ('#983177', '#f5a3e4'),
  'gold': ('#d99c00', '#e0e05a'),
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--faint); }
h3 { margin-top: 2rem; }
p, ul { max-width: 50rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: 0.8125rem;
  overflow-wrap: normal; }
th, td { padding: 0.25rem 0.4rem; text-align: left; white-space: nowrap;
  border-bottom: 1px solid var(--faint); font-variant-numeric: tabular-nums; }
thead th { vertical-align: bottom; white-space: normal; }
/* Text has no style; numbers are aligned by one. */
td:not([style]) { white-space: normal; min-width: 6rem; max-width: 40rem; }
@media (max-width: 40rem) {
  th:first-child { position: sticky; left: 0; background: var(--paper);
    white-space: normal; max-width: 5rem; overflow-wrap: break-word; }
}
.pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; }
figure svg { width: 100%; max-width: 36rem; height: auto; }
"""
# What neither XML nor a terminal takes: control characters, and the surrogates that
# stand for the bytes of a file's name that are not UTF-8.
_UNPRINTABLE = re.compile('[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')


class Picture(NamedTuple):
  """A picture; the page sets adjacent ones beside each other where they fit."""

  name: str  # of its file, without the ending
  text: str  # says what it shows to readers who cannot see it
  svg: str

  def write(self, path: pathlib.Path) -> None:
    """Writes an SVG file of its own, which brings its colours along."""
    start = self.svg.index('>') + 1
    svg = f'{self.svg[:start]}\n<style>{css()}</style>{self.svg[start:]}'
    files.write(path, f'<?xml version="1.0" encoding="utf-8"?>\n{svg}')


DASH = '–'  # for a value that is missing
Block = str | Picture  # a str is Markdown, as the functions below return it


def legible(text: str) -> str:
  """Returns the text in one line, with U+FFFD for what cannot be shown."""
  return _UNPRINTABLE.sub('\ufffd', ' '.join(text.split()))


def heading(level: int, text: str) -> str:
  """Returns a heading; level 1 is the page's."""
  return f'{"#" * level} {_escape(text)}'


def paragraph(text: str) -> str:
  """Returns plain text; escapes markup, and what a line must not begin with."""
  return re.sub(r'^(\d*)([-+=#.)])', r'\1\\\2', _escape(text))


def bullets(items: Iterable[str]) -> str:
  """Returns a list of sentences."""
  return '\n'.join(f'- {paragraph(item)}' for item in items)


def facts(items: Iterable[tuple[str, str]]) -> str:
  """Returns a list of sentences, each after a name."""
  return '\n'.join(f'- **{_escape(name)}**: {_escape(text)}' for name, text in items)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table whose first column names the row; sets numbers to the right."""
  columns = zip(*rows, strict=True) if rows else ((),) * len(header)
  is_text = lambda cells: any(cell[:1].isalpha() for cell in cells)
  rules = ('---:' if n and not is_text(c) else '---' for n, c in enumerate(columns))
  lines = [[*map(_escape, line)] for line in (header, *rows)]
  lines.insert(1, [*rules])
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def table_of(rows: Sequence[Mapping[str, str]]) -> str:
  """Returns a table of rows, whose keys name the columns."""
  return table([*rows[0]], [[*row.values()] for row in rows])


def _escape(text: str) -> str:
  """Escapes what Markdown would take for markup within a line."""
  inside = r'([\\`*<>\[\]|~$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_]))'
  return re.sub(inside, r'\\\1', legible(text))


def markdown(blocks: Iterable[Block], stem: str | None = None) -> str:
  """Returns Markdown that links its pictures as STEM.NAME.svg; without a stem, none."""
  parts: list[str] = []
  for is_picture, group in itertools.groupby(blocks, _is_picture):
    some: list[Any] = [*group]
    if not is_picture:
      parts += some
    elif stem:
      link = lambda x: urllib.parse.quote(os.fsencode(f'{stem}.{x.name}.svg'))
      parts.append('\n'.join(f'![{_escape(x.text)}]({link(x)})' for x in some))
  return '\n\n'.join(parts) + '\n'


def write_markdown(blocks: Sequence[Block], path: pathlib.Path) -> None:
  """Writes Markdown, and its pictures beside it as STEM.NAME.svg."""
  for block in blocks:
    if isinstance(block, Picture):
      block.write(path.with_suffix(f'.{block.name}.svg'))
  files.write(path, markdown(blocks, path.stem))


def _is_picture(block: Block) -> bool:
  return isinstance(block, Picture)


def page(title: str, blocks: Iterable[Block]) -> str:
  """Returns an HTML page that contains its style and pictures."""
  body = '\n'.join(_bodies(blocks))
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(legible(title))}</title>
<style>
{css()}{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def css() -> str:
  """Returns the colours as variables, which pictures and page share."""
  light, dark = (
    ' '.join(f'--{name}: {both[n]};' for name, both in COLOURS.items()) for n in (0, 1)
  )
  return (
    f':root {{ color-scheme: light dark; {light} }}\n'
    f'@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n'
  )


def _bodies(blocks: Iterable[Block]) -> Iterator[str]:
  from markdown_it import MarkdownIt  # of an extra; export writes Markdown alone

  reader = MarkdownIt('commonmark', {'html': False}).enable('table')
  reader.add_render_rule('table_open', lambda *_: '<div class="scroll"><table>\n')
  reader.add_render_rule('table_close', lambda *_: '</table></div>\n')
  for is_picture, group in itertools.groupby(blocks, _is_picture):
    if is_picture:
      figures = ''.join(_figure(x) for x in group if isinstance(x, Picture))
      yield f'<div class="pictures">{figures}</div>'
    else:
      tokens = reader.parse(markdown(group))
      _name_rows(tokens)
      yield reader.renderer.render(tokens, reader.options, {}).strip()


def _figure(picture: Picture) -> str:
  named = f'<svg role="img" aria-label="{html.escape(legible(picture.text))}"'
  return f'<figure>{picture.svg.replace("<svg", named, 1)}</figure>'


def _name_rows(tokens: Sequence[Any]) -> None:
  """Makes the first cell of each row of a table the row's heading."""
  for before, cell, _, closing in zip(*(tokens[n:] for n in range(4)), strict=False):
    if (before.type, cell.type) == ('tr_open', 'td_open'):
      cell.tag = closing.tag = 'th'
      cell.attrSet('scope', 'row')
