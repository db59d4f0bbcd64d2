"""Files about a few sentences: an interactive page, and pictures of chosen heads."""

import base64
import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.analysis import figures
from transformer_jax.analysis.maps import KINDS, Maps
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError

PAGE = pathlib.Path(__file__).with_name('page.html')  # with @DATA@ for the data


class View(NamedTuple):
  """What to draw; numbers count from 1, as in the paper."""

  kind: str  # one of KINDS
  layers: Sequence[int]  # empty: the last but one, as in the paper's figures
  heads: Sequence[int]  # empty: all heads
  word: str | None  # the word whose weights to draw; None: every word


def write(
  folder: pathlib.Path, sentences: Sequence[Maps], about: str, view: View
) -> list[pathlib.Path]:
  """Writes attention.html, and figures.lines() and maps() of each sentence and layer.

  Args:
    about: the text below the page's title.

  Raises:
    UserError: the model has no such layer or head, or no sentence has the word.
  """
  layers, heads = _chosen(view, sentences[0].of(view.kind)[0].shape)
  rows = [_row(view, maps) for maps in sentences]
  if view.word is not None and rows == [None] * len(rows):
    words = ' '.join(sentences[0].of(view.kind)[1])
    raise UserError(f'--word={view.word}: no sentence has it; the first has: {words}')
  folder.mkdir(parents=True, exist_ok=True)
  page = folder / 'attention.html'
  shown = {'kind': view.kind, 'layer': layers[0], 'heads': heads, 'word': rows[0]}
  _write_page(page, sentences, {'about': about, **shown})
  written = [page]
  for number, (maps, row) in enumerate(zip(sentences, rows, strict=True), 1):
    weights, *words = maps.of(view.kind)
    for layer in layers:
      title = f'{KINDS[view.kind]} attention, layer {layer + 1} of {len(weights)}'
      if len(heads) == 1:
        title += f', head {heads[0] + 1}'
      pictures = {
        'lines': figures.lines(weights[layer], *words, heads, row, title),
        'maps': figures.maps(weights[layer], *words, heads, title),
      }
      for name, figure in pictures.items():
        path = folder / f'{number}.{view.kind}.layer-{layer + 1}.{name}'
        written += figures.save(figure, path)
  return written


def _write_page(path: pathlib.Path, sentences: Sequence[Maps], shown: dict) -> None:
  """Writes a page with all weights, which needs no network.

  Args:
    shown: the text below the title, and what is shown at first: kind, layer and heads
      (from 0), and the row of the first sentence that is chosen, or None.
  """
  layers, heads = sentences[0].encoder.shape[:2]
  data = shown | {
    'kinds': KINDS,
    'N': layers,
    'H': heads,
    'sentences': [
      {kind: _as_json(*maps.of(kind)) for kind in KINDS} for maps in sentences
    ],
  }
  # Escaped, so that no sentence can end the <script> element around the data.
  text = json.dumps(data).replace('<', r'\u003c')
  files.write(path, PAGE.read_text(encoding='utf-8').replace('@DATA@', text))


def _as_json(weights: np.ndarray, rows: list[str], columns: list[str]) -> dict:
  """Returns an object for JSON. Weights are bytes in base 64; 255 stands for 1."""
  quantised = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
  text = base64.b64encode(quantised.tobytes()).decode()
  return {'rows': rows, 'columns': columns, 'weights': text}


def _chosen(view: View, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
  """Returns the layers and heads to draw, from 0; `shape` is that of the weights."""
  N, H = shape[:2]
  layers = [*view.layers] or [max(N - 1, 1)]
  heads = [*view.heads] or [*range(1, H + 1)]
  for name, numbers, count in (('layers', layers, N), ('heads', heads, H)):
    for number in numbers:
      if not 1 <= number <= count:
        raise UserError(f'--{name}={number}: the model has {name} 1 to {count}')
  return [n - 1 for n in layers], [n - 1 for n in heads]


def _row(view: View, maps: Maps) -> int | None:
  """Returns the first row of the view's word, if the maps have it."""
  rows = maps.of(view.kind)[1]
  return rows.index(view.word) if view.word in rows else None
