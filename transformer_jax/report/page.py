"""A report's blocks as Markdown, or as one HTML page that needs no other file."""

import html
import re
from collections.abc import Sequence

from transformer_jax.report.blocks import (
  Block,
  Bullets,
  Heading,
  Paragraph,
  Picture,
  Sample,
  Table,
)

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 90rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid #ddd;
         font-variant-numeric: tabular-nums; white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; background: #f4f4f4; }
th:first-child, .words { text-align: left; }
.words { white-space: normal; min-width: 9rem; max-width: 22rem; }
code { font-size: 0.8125rem; overflow-wrap: anywhere; }
dl { border-left: 3px solid #ccc; padding-left: 1rem; }
dt { font-size: 0.8125rem; color: #595959; } dd { margin: 0 0 0.25rem; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
"""


def markdown(blocks: Sequence[Block], pictures: str | None = None) -> str:
  """Markdown whose pictures are links to PICTURES.NAME.svg, or left out without it."""
  parts = []
  for block in blocks:
    match block:
      case Heading(level, text):
        parts.append(f'{"#" * level} {_escaped(text)}')
      case Paragraph(text):
        parts.append(_escaped(text))
      case Bullets(items):
        parts.append('\n'.join(f'- {_escaped(item)}' for item in items))
      case Table(header, rows):
        line = lambda cells: '| ' + ' | '.join(map(_cell, cells)) + ' |'
        parts.append('\n'.join([line(header), '|---' * len(header) + '|']))
        parts[-1] += ''.join('\n' + line(row) for row in rows)
      case Picture(name, text, _):
        parts += [f'![{text}]({pictures}.{name}.svg)'] if pictures else []
      case Sample(source, translation, reference):
        parts.append(
          f'- source: {_escaped(source)}\n'
          f'  - translation: {_escaped(translation)}\n'
          f'  - reference: {_escaped(reference)}'
        )
  return '\n\n'.join(parts) + '\n'


def _escaped(text: str) -> str:
  """Escapes what Markdown would take for tags or emphasis; `code` stays code."""
  parts = re.split(r'(`[^`]*`)', text)
  plain = lambda part: re.sub(r'([\\*<>\[\]]|\b_|_\b)', r'\\\1', part)
  return ''.join(part if part[:1] == '`' else plain(part) for part in parts)


def _cell(text: str) -> str:
  return _escaped(text).replace('|', r'\|')


def page(title: str, blocks: Sequence[Block]) -> str:
  """An HTML page with its style and pictures inside."""
  body = '\n'.join(_html(block) for block in blocks)
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _html(block: Block) -> str:
  match block:
    case Heading(level, text):
      return f'<h{level}>{_inline(text)}</h{level}>'
    case Paragraph(text):
      return f'<p>{_inline(text)}</p>'
    case Bullets(items):
      items = ''.join(f'<li>{_inline(item)}</li>' for item in items)
      return f'<ul>{items}</ul>'
    case Table(header, rows):
      return _html_table(header, rows)
    case Picture(_, text, svg):
      svg = svg.replace('<svg', f'<svg role="img" aria-label="{html.escape(text)}"', 1)
      return f'<figure>{svg}</figure>'
    case Sample():
      pairs = zip(('source', 'translation', 'reference'), block, strict=True)
      inside = ''.join(f'<dt>{n}</dt><dd>{html.escape(t)}</dd>' for n, t in pairs)
      return f'<dl>{inside}</dl>'


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  columns = zip(*rows, strict=True)
  worded = (any(re.match('[A-Za-z]', cell) for cell in column) for column in columns)
  styles = [' class="words"' if words else '' for words in worded]
  styles[0] = ''
  head = ''.join(
    f'<th scope="col"{style}>{_inline(cell)}</th>'
    for style, cell in zip(styles, header, strict=True)
  )
  lines = []
  for first, *others in rows:
    cells = ''.join(
      f'<td{style}>{_inline(cell)}</td>'
      for style, cell in zip(styles[1:], others, strict=True)
    )
    lines.append(f'<tr><th scope="row">{_inline(first)}</th>{cells}</tr>')
  body = '\n'.join(lines)
  table = f'<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
  return f'<div class="scroll">{table}</div>'


def _inline(text: str) -> str:
  return re.sub('`([^`]*)`', r'<code>\1</code>', html.escape(text))
