"""Section 3.5: the encodings, M_k with PE(pos + k) = M_k PE(pos), and similarity."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from transformer_jax.report.blocks import Block, Heading, Paragraph, Table

OFFSETS = (1, 2, 4, 8, 16, 32)
CORNER = 32  # dimensions that are drawn of M_k; the others turn ever less


def shift(k: int, d_model: int) -> np.ndarray:
  """M_k, [d_model, d_model]: turns each sine with its cosine by k times their rate."""
  pair = np.arange(d_model) // 2
  angle = k / 10000.0 ** (2 * pair / d_model)
  even = np.arange(d_model) % 2 == 0
  turn = np.diag(np.cos(angle))
  for i in np.flatnonzero(even[: d_model - 1]):
    turn[i, i + 1], turn[i + 1, i] = np.sin(angle[i]), -np.sin(angle[i])
  return turn


def shift_error(table: np.ndarray, k: int) -> float:
  """The largest |M_k PE(pos) - PE(pos + k)| of any element."""
  moved = table[:-k] @ shift(k, table.shape[1]).T
  return float(np.abs(moved - table[k:]).max())


def similarity(table: np.ndarray) -> np.ndarray:
  """The cosine of the angle between each two rows."""
  unit = table / np.linalg.norm(table, axis=1, keepdims=True)
  return unit @ unit.T


def over_distance(table: np.ndarray) -> np.ndarray:
  """The mean similarity of rows that are 0, 1, 2 ... positions apart."""
  alike = similarity(table)
  return np.array([np.diagonal(alike, k).mean() for k in range(len(table))])


def blocks(tables: Mapping[str, np.ndarray]) -> list[Block]:
  """Errors of M_k, and mean similarities over distance."""
  sinusoids = tables['sinusoids']
  offsets = [k for k in OFFSETS if all(k < len(table) for table in tables.values())]
  errors = [f'{shift_error(sinusoids, k):.1e}' for k in offsets]
  rows = [('largest error of M_k', *errors)]
  for name, table in tables.items():
    means = over_distance(table)
    rows.append((f'mean cosine: {name}', *(f'{means[k]:.2f}' for k in offsets)))
  text = f'{len(sinusoids)} positions.'
  header = ('', *(f'k = {k}' for k in offsets))
  return [Heading(2, 'Positions'), Paragraph(text), Table(header, rows)]


def encodings_figure(tables: Mapping[str, np.ndarray]) -> Figure:
  """The tables themselves as heat maps."""
  figure = Figure((9, 2.6 * len(tables)), layout='constrained')
  grid = figure.subplots(len(tables), 1, squeeze=False)
  for axes, (name, table) in zip(grid.flat, tables.items(), strict=True):
    most = np.abs(table).max()
    image = axes.imshow(table, cmap='RdBu', vmin=-most, vmax=most, aspect='auto')
    axes.set(title=name, xlabel='dimension', ylabel='position')
    figure.colorbar(image, ax=axes)
  return figure


def shifts_figure(table: np.ndarray, offsets: Sequence[int] = (1, 4, 16)) -> Figure:
  """A corner of M_k for some k, and the error of M_k PE(pos) for every k."""
  width = table.shape[1]
  figure = Figure((3.2 * (len(offsets) + 1), 3.2), layout='constrained')
  *panels, last = figure.subplots(1, len(offsets) + 1)
  for axes, k in zip(panels, offsets, strict=True):
    image = axes.imshow(shift(k, width)[:CORNER, :CORNER], cmap='RdBu', vmin=-1, vmax=1)
    axes.set(title=f'$M_{{{k}}}$', xlabel='dimension')
  figure.colorbar(image, ax=panels)
  every = range(1, len(table))
  last.semilogy(every, [max(shift_error(table, k), 1e-9) for k in every])
  last.set(title='largest error', xlabel='k', ylim=(1e-9, 1))
  last.grid(alpha=0.3)
  return figure


def similarity_figure(tables: Mapping[str, np.ndarray]) -> Figure:
  """Similarity of every two positions, and its mean over their distance."""
  figure = Figure((3.2 * (len(tables) + 1), 3.2), layout='constrained')
  *panels, last = figure.subplots(1, len(tables) + 1)
  for axes, (name, table) in zip(panels, tables.items(), strict=True):
    image = axes.imshow(similarity(table), cmap='RdBu', vmin=-1, vmax=1)
    axes.set(title=name, xlabel='position', ylabel='position')
    last.plot(over_distance(table), label=name)
  figure.colorbar(image, ax=panels)
  last.set(title='mean cosine', xlabel='positions apart')
  last.legend(frameon=False, fontsize='small')
  last.grid(alpha=0.3)
  return figure
