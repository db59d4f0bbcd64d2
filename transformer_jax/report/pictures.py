"""Matplotlib's figures as SVG, for a page or for files of their own."""

import io
import pathlib

import matplotlib
from matplotlib.figure import Figure

from transformer_jax.machine import files
from transformer_jax.report.blocks import Picture


def picture(name: str, text: str, figure: Figure) -> Picture:
  """The figure as SVG; equal figures give equal bytes."""
  file = io.StringIO()
  with matplotlib.rc_context({'svg.hashsalt': name}):
    figure.savefig(file, format='svg', metadata={'Date': None})
  svg = file.getvalue()
  return Picture(name, text, svg[svg.index('<svg') :])


def write(block: Picture, path: pathlib.Path) -> None:
  """Writes a picture as an SVG file."""
  files.write(path, f'<?xml version="1.0" encoding="utf-8"?>\n{block.svg}')
