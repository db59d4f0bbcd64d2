"""Matplotlib's figures as SVG that is as wide as a phone, in light and in dark."""

import io
import pathlib
import warnings
from collections.abc import Callable

import cycler
import matplotlib
from matplotlib.figure import Figure

from transformer_jax.machine import files
from transformer_jax.report.blocks import Picture

# Each colour on a light and on a dark page. A figure is drawn in the first; in the SVG
# it is a variable of CSS. Those of lines, grey too, have hues of Okabe and Ito (2008),
# moved apart until any two differ by 26 (CIE 1976) to all kinds of colour vision.
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
PAPER, INK, FAINT, GREY, *LINES = (light for light, _ in COLOURS.values())
WIDTH = 4.0  # inches: 384 pixels, so that a phone shows the letters as they are
FONT = 'DejaVu Sans'  # measures the text; the reader's own font shows it

_STYLE = {
  'axes.edgecolor': GREY,
  'axes.facecolor': 'none',
  'axes.grid': True,
  'axes.labelcolor': INK,
  'axes.prop_cycle': cycler.cycler(color=LINES),
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlecolor': INK,
  'axes.titlelocation': 'left',
  'axes.titlesize': 9,
  'axes.titleweight': 'bold',
  'figure.facecolor': PAPER,
  'font.sans-serif': [FONT],
  'font.size': 8,
  'grid.color': FAINT,
  'grid.linewidth': 0.6,
  'legend.frameon': False,
  'legend.labelcolor': INK,
  'savefig.facecolor': PAPER,
  'svg.fonttype': 'none',
  'text.color': INK,
  'text.parse_math': False,  # names of runs may have dollar signs
  'xtick.color': GREY,
  'xtick.labelcolor': INK,
  'ytick.color': GREY,
  'ytick.labelcolor': INK,
}


def picture(
  name: str, text: str, height: float, draw: Callable[[Figure], None]
) -> Picture:
  """What `draw` draws, as SVG; equal figures give equal bytes.

  Args:
    height: in inches.
  """
  file = io.StringIO()
  style = matplotlib.rc_context(_STYLE | {'svg.hashsalt': name})
  with style, warnings.catch_warnings():
    warnings.filterwarnings('ignore', r'Glyph \d+')  # the reader's font may have it
    figure = Figure(figsize=(WIDTH, height), layout='constrained')
    draw(figure)
    figure.savefig(file, format='svg', metadata={'Date': None})
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :].replace(f"'{FONT}'", 'system-ui')
  for variable, (light, _) in COLOURS.items():
    svg = svg.replace(light, f'var(--{variable})')
  return Picture(name, text, svg)


def css() -> str:
  """The colours as variables, which pictures and page share."""
  light, dark = (
    ' '.join(f'--{name}: {both[n]};' for name, both in COLOURS.items()) for n in (0, 1)
  )
  return (
    f':root {{ color-scheme: light dark; {light} }}\n'
    f'@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n'
  )


def write(block: Picture, path: pathlib.Path) -> None:
  """Writes a picture as an SVG file of its own."""
  start = block.svg.index('>') + 1
  svg = f'{block.svg[:start]}\n<style>{css()}</style>{block.svg[start:]}'
  files.write(path, f'<?xml version="1.0" encoding="utf-8"?>\n{svg}')
