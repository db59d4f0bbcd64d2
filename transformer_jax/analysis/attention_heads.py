"""What heads do and what they are worth, as tables and pictures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from transformer_jax.analysis.attention_page import KINDS
from transformer_jax.analysis.attention_pictures import of_heads
from transformer_jax.report.blocks import Block, Heading, Paragraph, Table

Measures = Mapping[str, Mapping[str, tuple[np.ndarray, float]]]
BEST = 3  # heads that a table names


def survey_blocks(found: Measures, about: str) -> list[Block]:
  """The heads with the most of each measure, beside what looking everywhere would give.

  Of distance and entropy the least is as telling, so both ends are named.
  """
  rows = []
  for kind, measures in found.items():
    for name, (heads, uniform) in measures.items():
      most = ', '.join(_ranked(-heads, heads))
      rows.append((KINDS[kind], name, f'{uniform:.2f}', most))
      if name in ('distance', 'entropy'):
        least = ', '.join(_ranked(heads, heads))
        rows.append((KINDS[kind], f'{name}, least', f'{uniform:.2f}', least))
  header = ('attention', 'looks at', 'uniform', 'heads with the most (layer.head)')
  return [Heading(2, 'What heads look at'), Paragraph(about), Table(header, rows)]


def pair_blocks(
  found: Mapping[str, np.ndarray], counts: Mapping[str, int], query: str, key: str
) -> list[Block]:
  """The heads by which one word looks most at another."""
  rows = [
    (KINDS[kind], f'{counts[kind]}', ', '.join(_ranked(-heads, heads)))
    for kind, heads in found.items()
  ]
  header = ('attention', 'times', 'mean weight (layer.head)')
  return [Heading(2, f'From {query} to {key}'), Table(header, rows)]


def pruning_blocks(whole: float, without: Mapping[str, np.ndarray]) -> list[Block]:
  """The heads without which dev perplexity is worst, and those best left out."""
  rows = []
  for kind, perplexity in without.items():
    cost = perplexity - whole
    dearest = ', '.join(_ranked(-cost, cost, '+.3f'))
    cheapest = ', '.join(_ranked(cost, cost, '+.3f'))
    rows.append((KINDS[kind], dearest, cheapest, f'{(cost <= 0).sum()} of {cost.size}'))
  header = ('attention', 'costs most', 'costs least', 'costs nothing')
  text = f'Dev perplexity per piece is {whole:.3f}; without one head it changes by:'
  return [Heading(2, 'What a head is worth'), Paragraph(text), Table(header, rows)]


def _ranked(order: np.ndarray, shown: np.ndarray, form: str = '.2f') -> list[str]:
  """The first of all heads in ascending order, as LAYER.HEAD (NUMBER)."""
  places = np.argsort(order, axis=None, kind='stable')[:BEST]
  found = zip(*np.unravel_index(places, order.shape), strict=True)
  return [f'{n + 1}.{h + 1} ({shown[n, h]:{form}})' for n, h in found]


def survey_figure(found: Measures) -> Figure:
  """A layer x head panel for each attention and measure, a row for each attention."""
  across = max(map(len, found.values()))
  panels: list[tuple[str, np.ndarray] | None] = []
  for kind, measures in found.items():
    panels += [
      (f'{KINDS[kind]}: {name}', heads) for name, (heads, _) in measures.items()
    ]
    panels += [None] * (across - len(measures))
  return of_heads(panels, across, 'Mean weight; distance in pieces; entropy in nats')


def pruning_figure(whole: float, without: Mapping[str, np.ndarray]) -> Figure:
  panels: Sequence = [(KINDS[kind], found - whole) for kind, found in without.items()]
  return of_heads(panels, 3, f'Dev perplexity without a head, less {whole:.3f}')
