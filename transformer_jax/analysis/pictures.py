"""Figures 3 to 5 of the paper, and heat maps, for any weights."""

import itertools
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_jax.analysis.maps import KINDS, Maps
from transformer_jax.analysis.survey import Pruning, Survey
from transformer_jax.machine.errors import UserError

FAINTEST = 0.02  # weights below this are not drawn as lines
SQUARE = 0.06  # the width of a square, as a fraction of the lines' width
PLAIN = {'parse_math': False}  # a word may have dollars in it
# SVG files keep text as text, so that the viewer's own fonts draw it. These cover more
# scripts, and the viewer can set text from right to left.
SVG: Any = {'svg.fonttype': 'none', 'svg.hashsalt': 'attention'}


def draw_lines(
  weights: np.ndarray,
  rows: Sequence[str],
  columns: Sequence[str],
  heads: Sequence[int],
  chosen: int | None,
  title: str,
) -> Figure:
  """Draws words in two columns, and lines between them as strong as the weights.

  Figure 3 of the paper has a chosen word and all heads. Figure 4 has two heads, in two
  panels: the first head for all words, and both heads for a chosen word.

  Args:
    weights: [H, T, S] of a layer's heads, from the words in `rows` (T) to those in
      `columns` (S).
    heads: those to draw, from 0.
    chosen: the row whose lines are drawn. None: all rows.
  """
  panels = [(heads, chosen)]
  if chosen is not None and len(heads) <= 2:
    panels = [(heads[:1], None), *panels]
  size = max(len(rows), len(columns))
  figure = Figure(figsize=(4.2 * len(panels), 0.8 + 0.26 * size), layout='constrained')
  figure.suptitle(title, fontsize='medium', **PLAIN)
  for number, (shown, row) in enumerate(panels, 1):
    axes = figure.add_subplot(1, len(panels), number)
    _add_lines(axes, weights, shown, row)
    _add_words(axes, rows, columns, row, 0 if row is None else len(shown))
  return figure


def _add_lines(
  axes: Axes, weights: np.ndarray, heads: Sequence[int], chosen: int | None
) -> None:
  for order, head in enumerate(heads):
    shade = 0.8 * np.array(matplotlib.colormaps['hsv'](head / len(weights))[:3])
    for row, column in zip(*np.nonzero(weights[head] >= FAINTEST), strict=True):
      if chosen in (None, row):
        weight = min(float(weights[head, row, column]), 1.0)
        line: dict[str, Any] = {'color': shade, 'alpha': weight, 'linewidth': 1.8}
        axes.plot((0, 1), (row, column), solid_capstyle='butt', **line)
        if chosen is not None:  # a row of squares at the word, one for each head
          at = 1.02 + SQUARE * order, column - 0.35
          square = matplotlib.patches.Rectangle(at, SQUARE, 0.7)
          square.set(facecolor=shade, alpha=weight, linewidth=0)
          axes.add_patch(square)


def _add_words(
  axes: Axes,
  rows: Sequence[str],
  columns: Sequence[str],
  chosen: int | None,
  squares: int,
) -> None:
  for number, word in enumerate(rows):
    faint = chosen not in (None, number)
    axes.text(-0.05, number, word, ha='right', va='center', alpha=0.4 if faint else 1)
  for number, word in enumerate(columns):
    axes.text(1.05 + SQUARE * squares, number, word, ha='left', va='center')
  for text in axes.texts:
    text.set_parse_math(False)
  axes.set(
    xlim=(-1.2, 2.2 + SQUARE * squares), ylim=(max(len(rows), len(columns)) - 0.5, -0.5)
  )
  axes.axis('off')


def draw_maps(
  weights: np.ndarray,
  rows: Sequence[str],
  columns: Sequence[str],
  heads: Sequence[int],
  title: str,
) -> Figure:
  """Draws a heat map for each of `heads`, with one colour bar.

  Arguments are those of draw_lines().
  """
  across = min(4, len(heads))
  down = -(-len(heads) // across)
  width, height = (max(1.6, 0.2 * len(words)) for words in (columns, rows))
  figure = Figure((1.5 + across * width, 1.2 + down * height), layout='constrained')
  figure.suptitle(title, fontsize='medium', **PLAIN)
  grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
  for number in range(len(heads), grid.size):
    grid.flat[number].axis('off')
    grid.flat[number - across].tick_params(labelbottom=True)  # now the lowest
  for axes, head in zip(grid.flat, heads, strict=False):
    image = axes.imshow(weights[head], vmin=0, vmax=1, cmap='viridis', aspect='auto')
    axes.set_title(f'head {head + 1}', fontsize='small')
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=6, **PLAIN)
    axes.set_yticks(range(len(rows)), rows, fontsize=6, **PLAIN)
  figure.colorbar(image, ax=grid, label='weight')
  return figure


def draw_heads(
  panels: Sequence[tuple[str, np.ndarray] | None], across: int, label: str
) -> Figure:
  """Draws heat maps of numbers, each for all layers and heads.

  Args:
    panels: a title and its numbers [N, H], which are written into the map; None leaves
      a gap. Each panel has a scale of its own.
    across: panels in a row.
    label: what the numbers are.
  """
  down = -(-len(panels) // across)
  N, H = next(panel[1].shape for panel in panels if panel)
  size = across * max(2.0, 0.4 * H), down * (0.9 + 0.32 * N)
  figure = Figure(size, layout='constrained')
  figure.suptitle(label, fontsize='medium')
  grid = figure.subplots(down, across, squeeze=False)
  for axes, panel in itertools.zip_longest(grid.flat, panels):
    if panel is None:
      axes.axis('off')
      continue
    title, numbers = panel
    axes.imshow(numbers, cmap='viridis', aspect='auto')
    middle = (numbers.max() + numbers.min()) / 2
    for (layer, head), number in np.ndenumerate(numbers):
      shade = 'black' if number > middle else 'white'
      text = re.sub(r'^(-?)0\.', r'\1.', f'{number:.2f}')
      axes.text(head, layer, text, ha='center', va='center', color=shade, fontsize=6)
    axes.set_title(title, fontsize='small')
    axes.set_xticks(range(H), range(1, H + 1), fontsize=6)
    axes.set_yticks(range(N), range(1, N + 1), fontsize=6)
    axes.set_ylabel('layer', fontsize=6)
    axes.set_xlabel('head', fontsize=6)
  return figure


def draw_survey(surveyed: Survey) -> Figure:
  """Draws a row of panels for each kind of attention, with a panel for each measure."""
  across = max(map(len, surveyed.values()))
  panels: list[tuple[str, np.ndarray] | None] = []
  for kind, measures in surveyed.items():
    panels += [(f'{KINDS[kind]}: {name}', m.heads) for name, m in measures.items()]
    panels += [None] * (across - len(measures))
  return draw_heads(panels, across, 'Mean weight; distance in pieces; entropy in nats')


def draw_pruning(pruned: Pruning) -> Figure:
  """Draws, for each kind of attention, how dev perplexity rises without a head."""
  by_kind = pruned.without.items()
  panels = [(KINDS[kind], without - pruned.whole) for kind, without in by_kind]
  return draw_heads(
    panels, 3, f'Dev perplexity without a head, less {pruned.whole:.3f}'
  )


def save(figure: Figure, path: pathlib.Path) -> list[pathlib.Path]:
  """Writes path.svg and path.png; matplotlib warns of characters that no font has."""
  written = [path.with_name(f'{path.name}.{ending}') for ending in ('svg', 'png')]
  with matplotlib.rc_context(SVG):
    figure.savefig(written[0], metadata={'Date': None}, dpi=150)
  figure.savefig(written[1], dpi=150)
  return written


# What scripts.plot_attention writes


class Choice(NamedTuple):
  """What to draw; numbers count from 0."""

  kind: str  # one of KINDS
  layers: list[int]
  heads: list[int]
  rows: list[int | None]  # of each sentence, the row to draw; None: all rows


def choose(
  sentences: Sequence[Maps],
  kind: str,
  layers: Sequence[int],
  heads: Sequence[int],
  word: str | None,
) -> Choice:
  """Returns what to draw; layers and heads count from 1, as in the paper.

  Args:
    layers: [] for the last but one, as in the paper's figures.
    heads: [] for all.
    word: the word whose weights are drawn, where a sentence has it. None: every word.

  Raises:
    UserError: the model has no such layer or head, or no sentence has the word.
  """
  N, H = sentences[0].of(kind)[0].shape[:2]
  layers, heads = [*layers] or [max(N - 1, 1)], [*heads] or [*range(1, H + 1)]
  for name, numbers, count in (('layers', layers, N), ('heads', heads, H)):
    for number in numbers:
      if not 1 <= number <= count:
        raise UserError(f'--{name}={number}: the model has {name} 1 to {count}')
  queries = [maps.of(kind)[1] for maps in sentences]
  rows = [words.index(word) if word in words else None for words in queries]
  if word is not None and rows == [None] * len(rows):
    first = ' '.join(queries[0])
    raise UserError(f'--word={word}: no sentence has it; the first has: {first}')
  return Choice(kind, [n - 1 for n in layers], [n - 1 for n in heads], rows)


def write(
  folder: pathlib.Path, sentences: Sequence[Maps], choice: Choice
) -> list[pathlib.Path]:
  """Writes draw_lines() and draw_maps() of each sentence and layer; returns files."""
  folder.mkdir(parents=True, exist_ok=True)
  written = []
  for number, (maps, row) in enumerate(zip(sentences, choice.rows, strict=True), 1):
    weights, rows, columns = maps.of(choice.kind)
    for layer in choice.layers:
      title = f'{KINDS[choice.kind]} attention, layer {layer + 1} of {len(weights)}'
      if len(choice.heads) == 1:
        title += f', head {choice.heads[0] + 1}'
      pictures = {
        'lines': draw_lines(weights[layer], rows, columns, choice.heads, row, title),
        'maps': draw_maps(weights[layer], rows, columns, choice.heads, title),
      }
      for name, figure in pictures.items():
        path = folder / f'{number}.{choice.kind}.layer-{layer + 1}.{name}'
        written += save(figure, path)
  return written
