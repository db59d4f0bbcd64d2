"""Table 1 as it was measured, beside the paper's orders of growth."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from transformer_jax.report import paper
from transformer_jax.report.figures import GREY, picture
from transformer_jax.report.page import (
  Block,
  Picture,
  bullets,
  heading,
  paragraph,
  table,
)

Measured = Mapping[str, Any]  # what measuring.table() returns, and the machine
Cell = Mapping[str, Any]  # measuring.Cell's fields
HEIGHT = 6.6  # inches, of the picture
ATTENTION, RECURRENT = 'Self-Attention', 'Recurrent'
SYMBOLS = ('k', 'r', 'n', 'd')  # in the order in which the paper writes them
HEADER = ('layer', 'per layer (paper)', 'FLOPs', 'time', 'temporary memory')
HEADER += ('sequential (paper)', 'sequential', 'path (paper)', 'path')


def blocks(measured: Measured) -> list[Block]:
  """Returns a table, costs at the largest n and d, ratios, and a picture."""
  cells = _grid(measured)
  n, d = (_values(cells, size)[-1] for size in ('n', 'd'))
  costs = [_costs(cell) for cell in cells if (cell['n'], cell['d']) == (n, d)]
  return [
    heading(2, 'Table 1, measured'),
    table(HEADER, [_row(layer, measured) for layer in measured['exponents']]),
    _notes(measured),
    heading(3, f'At n = {n:,}, d = {d:,}'),
    table(('layer', 'GFLOP', 'ms', 'GFLOP/s', 'temporary MB'), costs),
    heading(3, "Recurrence's time over self-attention's"),
    *_ratios(cells),
    heading(3, 'Time over n and over d'),
    _picture(cells),
  ]


def _grid(measured: Measured) -> list[Cell]:
  """Returns the cells that vary n and d, without those that vary k or r."""
  first = {symbol: reaches[0] for symbol, reaches in measured['reaches'].items()}
  symbols = {layer: laws['flops'] for layer, laws in measured['exponents'].items()}
  reaches = {x: [first[s] for s in first if s in symbols[x]] or [0] for x in symbols}
  return [cell for cell in measured['cells'] if cell['reach'] in reaches[cell['layer']]]


def _values(cells: Sequence[Cell], name: str) -> list[int]:
  return sorted({cell[name] for cell in cells})


def _row(layer: str, measured: Measured) -> list[str]:
  printed = [''] * 3
  if layer in paper.TABLE_1:
    printed = [f'O({order})' for order in paper.TABLE_1[layer][:3]]
  fitted, counts = measured['exponents'][layer], measured['counts']
  path = _numbers(counts[layer]['path'])
  if (dilated := f'{layer}, dilated') in counts:
    path += f'; dilated {_numbers(counts[dilated]["path"])}'
  laws = [
    _power_law(fitted[q], q == 'seconds')
    for q in ('flops', 'seconds', 'temporary_bytes')
  ]
  sequential = _numbers(counts[layer]['sequential'])
  return [layer, printed[0], *laws, printed[1], sequential, printed[2], path]


def _numbers(counts: Sequence[int | None]) -> str:
  return ', '.join('none' if x is None else f'{x:,}' for x in counts)


def _power_law(fitted: dict | None, with_errors: bool) -> str:
  """Returns 'n^1.98 d^1.03', or with known errors 'n^1.98 ± 0.02 d^1.03 ± 0.01'."""
  if fitted is None:
    return 'none'
  factors = []
  for symbol in SYMBOLS:
    if symbol in fitted:
      error = fitted[symbol]['standard_error']
      about = f' ± {error:.2f}' if with_errors and error is not None else ''
      factors.append(f'{symbol}^{fitted[symbol]["exponent"]:.2f}{about}')
  return ' '.join(factors)


def _costs(cell: Cell) -> list[str]:
  return [
    cell['layer'],
    f'{cell["flops"] / 1e9:.2f}',
    f'{cell["seconds"] * 1e3:.1f}',
    f'{cell["flops"] / cell["seconds"] / 1e9:.1f}',
    f'{cell["temporary_bytes"] / 1e6:.1f}',
  ]


def _ratios(cells: Sequence[Cell]) -> list[Block]:
  """Returns recurrence's time over self-attention's, beside what section 4 says."""
  seconds = {(c['layer'], c['n'], c['d']): c['seconds'] for c in cells}
  ns, ds = _values(cells, 'n'), _values(cells, 'd')
  ratio = lambda n, d: seconds[RECURRENT, n, d] / seconds[ATTENTION, n, d]
  rows = [[f'n = {n:,}', *(f'{ratio(n, d):.2f}' for d in ds)] for n in ns]
  text = 'By section 4, self-attention is the faster one where n is smaller than d.'
  cases: dict[str, Callable[[int, int], bool]] = {
    'n < d': lambda n, d: n < d,
    'n = d': lambda n, d: n == d,
    'n > d': lambda n, d: n > d,
  }
  for name, holds in cases.items():
    ratios = [ratio(n, d) for n in ns for d in ds if holds(n, d)]
    if ratios:
      faster = sum(x > 1 for x in ratios)
      text += f' With {name} it is faster in {faster} of {len(ratios)} cells.'
  header = ['', *(f'd = {d:,}' for d in ds)]
  return [table(header, rows), paragraph(text)]


def _notes(measured: Measured) -> str:
  """Returns the device, and the sizes over which each column was measured."""
  cells, over = measured['cells'], measured['fitted_over']
  spread = [(c['quartiles'][1] - c['quartiles'][0]) / c['seconds'] for c in cells]
  swept = ' or '.join(f'{s} = {_numbers(x)}' for s, x in measured['reaches'].items())
  firsts = ', '.join(f'{s} = {x[0]}' for s, x in measured['reaches'].items())
  lengths = _numbers(measured['counts'][ATTENTION]['n'])
  return bullets(
    [
      f'One forward pass in float32, {firsts}; {measured["device"]}, '
      f'{measured["processor"]}, JAX {measured["versions"]["jax"]}.',
      f'Exponents: a least-squares fit over n = {_numbers(over["n"])}, over '
      f'd = {_numbers(over["d"])} and, at one n and d, over {swept}; of times with ± '
      'their standard error.',
      'Time: the median of several runs, whose interquartile range is '
      f'{statistics.median(spread):.1%} of it (the median over all cells).',
      'Temporary memory: what XLA allocates beside input, weights and output.',
      f'Sequential and path: matrix products of which each waits for the one before, '
      f'counted from the program at n = {lengths}.',
    ]
  )


def _picture(cells: Sequence[Cell]) -> Picture:
  """Draws time over n and over d; dashed lines are the paper's orders of growth."""
  n, d = (_values(cells, size)[-2] for size in ('n', 'd'))

  def draw(figure: Figure) -> None:
    upper, lower = figure.subplots(2)
    _lines(upper, [cell for cell in cells if cell['d'] == d], 'n')
    _lines(lower, [cell for cell in cells if cell['n'] == n], 'd')
    upper.set(xlabel=f'n (d = {d:,})', ylabel='milliseconds')
    lower.set(xlabel=f'd (n = {n:,})', ylabel='milliseconds')
    handles = upper.get_legend_handles_labels()
    figure.legend(*handles, loc='outside lower left', ncols=1)

  return picture('table1', 'Time of a layer over n and over d', HEIGHT, draw)


def _lines(axes: Axes, cells: Sequence[Cell], over: str) -> None:
  guide = "the paper's order, through the last point"
  for layer in dict.fromkeys(cell['layer'] for cell in cells):
    line = sorted((c for c in cells if c['layer'] == layer), key=lambda c: c[over])
    x, seconds = ([cell[name] for cell in line] for name in (over, 'seconds'))
    (curve,) = axes.plot(
      x, seconds, label=layer, linewidth=1.2, marker='.', markersize=4
    )
    if layer in paper.TABLE_1:
      cost = paper.TABLE_1[layer].cost
      values = [cost(c['n'], c['d'], c['reach'], c['reach']) for c in line]
      scaled = [seconds[-1] * value / values[-1] for value in values]
      axes.plot(x, scaled, color=curve.get_color(), linewidth=0.8, linestyle='--')
  axes.plot([], [], color=GREY, linewidth=0.8, linestyle='--', label=guide)
  axes.set(xscale='log', yscale='log')
  axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f'{y * 1e3:g}'))
  axes.set_xticks(x, [f'{value:,}' for value in x], minor=False)
  axes.set_xticks([], minor=True)
