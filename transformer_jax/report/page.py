"""A report's blocks as Markdown, or as one HTML page that needs no other file."""

import html
import itertools
import os
import re
import urllib.parse
from collections.abc import Iterator, Sequence

from transformer_jax.report import pictures
from transformer_jax.report.blocks import (
  Block,
  Bullets,
  Facts,
  Heading,
  Paragraph,
  Picture,
  Table,
  legible,
)

NARROW = 8  # characters of a first column that stays in sight on a phone
LONG = 28  # characters of a cell that takes several lines
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--faint); }
h3 { margin-top: 2rem; }
p, ul, dl { max-width: 50rem; }
dl { border-left: 3px solid var(--faint); padding-left: 1rem; }
dt { font-size: 0.875rem; font-weight: 600; }
dd { margin: 0 0 0.5rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: 0.875rem;
  overflow-wrap: normal; }
th, td { padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--faint); font-variant-numeric: tabular-nums; }
thead th { vertical-align: bottom; white-space: normal; }
th:first-child, .words, .text { text-align: left; }
.text { white-space: normal; min-width: 9rem; max-width: 40rem; }
.narrow th:first-child { position: sticky; left: 0; background: var(--paper); }
.pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; }
figure svg { width: 100%; max-width: 36rem; height: auto; }
"""


def markdown(blocks: Sequence[Block], stem: str | None = None) -> str:
  """Markdown whose pictures are links to STEM.NAME.svg, or left out without it."""
  parts = []
  for kind, some in itertools.groupby(blocks, type):
    if kind is Picture:
      links = [f'![{_escaped(x.text)}]({_link(f"{stem}.{x.name}.svg")})' for x in some]
      parts += ['\n'.join(links)] if stem else []
    else:
      parts += map(_markdown, some)
  return '\n\n'.join(parts) + '\n'


def _markdown(block: Block) -> str:
  match block:
    case Heading(level, text):
      return f'{"#" * level} {_escaped(text)}'
    case Paragraph(text):
      return _line(text)
    case Bullets(items):
      return '\n'.join(f'- {_line(item)}' for item in items)
    case Facts(items):
      return '\n'.join(f'- **{_escaped(name)}**: {_escaped(x)}' for name, x in items)
    case Table(header, rows):
      line = lambda cells: '| ' + ' | '.join(map(_escaped, cells)) + ' |'
      rule = '|---' * len(header) + '|'
      return '\n'.join([line(header), rule, *map(line, rows)])


def _link(file: str) -> str:
  return urllib.parse.quote(os.fsencode(file))


def _escaped(text: str) -> str:
  """Escapes what Markdown would take for markup within a line."""
  inside = r'([\\`*<>\[\]|~$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_]))'
  return re.sub(inside, r'\\\1', legible(text))


def _line(text: str) -> str:
  """Escapes, too, what a line must not begin with."""
  return re.sub(r'^(\d*)([-+=#.)])', r'\1\\\2', _escaped(text))


def page(title: str, blocks: Sequence[Block]) -> str:
  """An HTML page with its style and pictures inside."""
  body = '\n'.join(_bodies(blocks))
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<style>
{pictures.css()}{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _bodies(blocks: Sequence[Block]) -> Iterator[str]:
  for kind, some in itertools.groupby(blocks, type):
    if kind is Picture:
      yield f'<div class="pictures">{"".join(map(_figure, some))}</div>'
    else:
      yield from map(_html, some)


def _figure(picture: Picture) -> str:
  named = f'<svg role="img" aria-label="{_text(picture.text)}"'
  return f'<figure>{picture.svg.replace("<svg", named, 1)}</figure>'


def _html(block: Block) -> str:
  match block:
    case Heading(level, text):
      return f'<h{level}>{_text(text)}</h{level}>'
    case Paragraph(text):
      return f'<p>{_text(text)}</p>'
    case Bullets(items):
      return f'<ul>{"".join(f"<li>{_text(item)}</li>" for item in items)}</ul>'
    case Facts(items):
      inside = (f'<dt>{_text(name)}</dt><dd>{_text(x)}</dd>' for name, x in items)
      return f'<dl>{"".join(inside)}</dl>'
    case Table(header, rows):
      return _html_table(header, rows)


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  columns = zip(*rows, strict=True) if rows else [()] * len(header)
  styles = [_style(column) for column in columns]
  head = ''.join(
    f'<th scope="col"{style}>{_text(cell)}</th>'
    for style, cell in zip(styles, header, strict=True)
  )
  lines = []
  for first, *others in rows:
    cells = ''.join(
      f'<td{style}>{_text(cell)}</td>'
      for style, cell in zip(styles[1:], others, strict=True)
    )
    lines.append(f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>')
  narrow = ' narrow' if all(len(row[0]) <= NARROW for row in rows) else ''
  body = '\n'.join(lines)
  table = f'<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
  return f'<div class="scroll{narrow}">{table}</div>'


def _style(column: Sequence[str]) -> str:
  """Words are set to the left, long ones in several lines; numbers to the right."""
  if not any(re.match('[A-Za-z]', cell) for cell in column):
    return ''
  return ' class="text"' if max(map(len, column)) > LONG else ' class="words"'


def _text(text: str) -> str:
  return html.escape(legible(text))
