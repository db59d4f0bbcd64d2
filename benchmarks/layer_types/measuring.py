"""Measures Table 1's columns for our layer types, as one object for JSON.

Operations are matrix products and convolutions, as in model/flops.py: elementwise
operations do not change Table 1's orders. FLOPs, sequential operations and paths are
counted from a layer's jaxpr, in which loops are unrolled.
"""

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core
from tqdm import tqdm

from benchmarks.layer_types.layers import LAYER_TYPES, dilated_convolution

Layer = Callable[[jax.Array], jax.Array]  # [n, d] -> [n, d]

# The first k or r is measured at all n and d, the others at one.
REACHES = {'': (0,), 'k': (3, 9, 27), 'r': (33, 65, 129)}
QUANTITIES = ('seconds', 'temporary_bytes', 'flops')
LARGEST = 3  # exponents are fitted to the cells of this many of the largest n and d
DILATED = ', dilated'
COUNTED = (*LAYER_TYPES, 'Convolutional' + DILATED)
COUNTED_D = 8  # sequential operations and paths do not depend on d
COUNTED_N = (32, 128, 512)

# A layer runs for MIN_SECONDS, but at least MIN_RUNS and at most MAX_RUNS times.
MIN_RUNS, MAX_RUNS, MIN_SECONDS = 7, 1000, 0.3


class Cell(NamedTuple):
  """The measurements of one layer's forward pass over one sequence, in float32."""

  layer: str
  n: int
  d: int
  reach: int  # k or r; 0 where there is none
  seconds: float  # median
  quartiles: tuple[float, float]  # of the seconds
  repeats: int
  temporary_bytes: int  # that XLA allocates beside input, weights and output
  flops: int


def grid(ns: Sequence[int], ds: Sequence[int]) -> list[tuple[str, int, int, int]]:
  """Returns the cells (layer, n, d, reach): all n and d; all k and r at one n and d."""
  cells = []
  for n, d in itertools.product(ns, ds):
    for layer, kind in LAYER_TYPES.items():
      first, *others = REACHES[kind.reach]
      cells.append((layer, n, d, first))
      if (n, d) == (ns[-2], ds[-2]):
        cells += [(layer, n, d, reach) for reach in others]
  return cells


def measure(layer: str, n: int, d: int, reach: int) -> Cell:
  """Compiles and times one layer, after a warm-up run."""
  random = np.random.default_rng(0)
  shapes = LAYER_TYPES[layer].weights(d, reach)
  draw = lambda shape: random.standard_normal(shape, np.float32)
  scale = lambda shape: np.float32(math.prod(shape[:-1]) ** -0.5)
  x, *weights = map(jnp.asarray, [draw((n, d)), *(draw(s) * scale(s) for s in shapes)])
  function = functools.partial(LAYER_TYPES[layer].apply, reach)
  compiled = jax.jit(function).lower(x, *weights).compile()
  seconds = _seconds(lambda: jax.block_until_ready(compiled(x, *weights)))
  first, median, third = statistics.quantiles(seconds, n=4)
  return Cell(
    layer,
    n,
    d,
    reach,
    median,
    (first, third),
    len(seconds),
    compiled.memory_analysis().temp_size_in_bytes,
    flops(function, x, *weights),
  )


def _seconds(run: Callable[[], object]) -> list[float]:
  run()  # warm-up
  seconds: list[float] = []
  while len(seconds) < MIN_RUNS or (
    sum(seconds) < MIN_SECONDS and len(seconds) < MAX_RUNS
  ):
    start = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - start)
  return seconds


def exponents(cells: Sequence[Cell], of: str) -> dict[str, dict] | None:
  """Fits a power law to one layer's cells of the largest n and d, by least squares.

  log(value) = c + a log(n) + b log(d), and likewise for k or r.

  Returns:
    For each symbol its exponent and the exponent's standard error, which is None if
    there are too few cells; or None if a value is 0.
  """
  large = lambda name: sorted({getattr(cell, name) for cell in cells})[-LARGEST:]
  ns, ds = large('n'), large('d')
  cells = [cell for cell in cells if cell.n in ns and cell.d in ds]
  values = [getattr(cell, of) for cell in cells]
  if not all(values):
    return None
  symbols = {'n': 'n', 'd': 'd'}
  if reach := LAYER_TYPES[cells[0].layer].reach:
    symbols[reach] = 'reach'
  logs = [np.log([getattr(cell, name) for cell in cells]) for name in symbols.values()]
  design = np.stack([np.ones(len(cells)), *logs], axis=1)
  fitted, _, rank, _ = np.linalg.lstsq(design, np.log(values))
  if rank < design.shape[1]:
    raise ValueError(
      f'{cells[0].layer}: two of each of {", ".join(symbols)} are needed'
    )
  errors = _standard_errors(design, np.log(values) - design @ fitted)
  return {
    symbol: {'exponent': exponent, 'standard_error': error}
    for symbol, exponent, error in zip(
      symbols, fitted[1:].tolist(), errors, strict=True
    )
  }


def _standard_errors(design: np.ndarray, residuals: np.ndarray) -> list[float | None]:
  """Returns standard errors of all fitted numbers but the constant."""
  rows, columns = design.shape
  if rows == columns:
    return [None] * (columns - 1)
  variance = residuals @ residuals / (rows - columns)
  return np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))[1:].tolist()


def stack(layer: str, reach: int) -> Iterator[Layer]:
  """Yields an endless stack of layers; each DILATED one is dilated k times as much."""
  name = layer.removesuffix(DILATED)
  shapes = LAYER_TYPES[name].weights(COUNTED_D, reach)
  weights = [_orthogonal(seed, shape) for seed, shape in enumerate(shapes)]
  if name == layer:
    apply = LAYER_TYPES[name].apply
    yield from itertools.repeat(lambda x: apply(reach, x, *weights))
  for depth in itertools.count():
    yield lambda x, by=reach**depth: dilated_convolution(x, *weights, by)


def _orthogonal(seed: int, shape: tuple[int, ...]) -> np.ndarray:
  """Returns orthogonal weights, through which signals do not fade."""
  flat = math.prod(shape[:-1]), shape[-1]
  normal = np.random.default_rng(seed).standard_normal(flat, np.float32)
  return np.linalg.qr(normal).Q.reshape(shape)


def counts(layer: str) -> dict[str, list]:
  """Returns sequential operations, layers and path length for each of COUNTED_N.

  The path leads from the first position's input to the last position's output, through
  `layers` layers and all sequential operations of each. Both are None if n layers do
  not connect the two.
  """
  reach = REACHES[LAYER_TYPES[layer.removesuffix(DILATED)].reach][0]
  columns = {'n': list(COUNTED_N), 'sequential': [], 'layers': [], 'path': []}
  for n in COUNTED_N:
    # Small numbers, for which tanh(x) is almost x, so that signals do not fade.
    x = np.random.default_rng(n).standard_normal((n, COUNTED_D), np.float32) / 1000
    sequential = sequential_operations(next(stack(layer, reach)), x)
    layers = layers_between(itertools.islice(stack(layer, reach), n), x)
    columns['sequential'].append(sequential)
    columns['layers'].append(layers)
    columns['path'].append(None if layers is None else sequential * layers)
  return columns


def table(ns: Sequence[int], ds: Sequence[int]) -> dict:
  """Measures all cells, fits the exponents, and counts.

  `ns` and `ds` are two or more different numbers each, in ascending order.
  """
  bar = tqdm(grid(ns, ds), desc='measuring', unit='layer', disable=None)
  cells = [measure(*cell) for cell in bar]
  fits = {}
  for layer in LAYER_TYPES:
    of_layer = [cell for cell in cells if cell.layer == layer]
    fits[layer] = {quantity: exponents(of_layer, quantity) for quantity in QUANTITIES}
  return {
    'reaches': {symbol: reaches for symbol, reaches in REACHES.items() if symbol},
    'fitted_over': {'n': ns[-LARGEST:], 'd': ds[-LARGEST:]},
    'exponents': fits,
    'counts': {name: counts(name) for name in COUNTED},
    'cells': [cell._asdict() for cell in cells],
  }


# Counts from a layer's program


def flops(function: Callable, *arguments: Array) -> int:
  """Returns FLOPs, two for each multiply-add; the body of a loop counts once a round.

  (XLA's own count takes the body of a loop once.)
  """
  return sum(map(_flops, _unrolled(function, *arguments).eqns))


def sequential_operations(function: Callable, *arguments: Array) -> int:
  """Returns the length of the longest chain of operations that depend on each other.

  It is the same for a loop and for the same loop unrolled. Rounds that do not need one
  another count once.
  """
  jaxpr = _unrolled(function, *arguments)
  chains: dict[core.Var, int] = {}  # the longest to each variable; inputs have none
  longest = lambda variables: max(
    (0 if isinstance(v, core.Literal) else chains.get(v, 0) for v in variables),
    default=0,
  )
  for equation in jaxpr.eqns:
    chain = longest(equation.invars) + _is_product(equation)
    chains |= dict.fromkeys(equation.outvars, chain)
  return longest(jaxpr.outvars)


def layers_between(stack: Iterable[Layer], x: Array) -> int | None:
  """Returns the fewest layers after which the last position depends on the first.

  Each layer is differentiated (jvp) with random tangents at all positions that depend
  on the first. Positions with a tangent other than exact zero depend on it after that
  layer. Fresh tangents for every layer keep them from fading in a deep stack.

  Args:
    stack: layers, the lowest first.
    x: [n, d], the input.

  Returns:
    None if the stack has too few layers.
  """
  noise = np.random.default_rng(0).standard_normal(x.shape, np.float32)
  reached = np.arange(len(x)) == 0
  for depth, layer in enumerate(stack):
    x, reached = _follow(layer, x, reached, noise)
    if reached[-1]:
      return depth + 1
  return None


@functools.partial(jax.jit, static_argnums=0)
def _follow(
  layer: Layer, x: jax.Array, reached: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
  z, tangent = jax.jvp(layer, (x,), (jnp.where(reached[:, None], noise, 0.0),))
  return z, (tangent != 0).any(axis=1)


def _unrolled(function: Callable, *arguments: Array) -> core.Jaxpr:
  """Returns the program of a function, with each round of its loops.

  Raises:
    ValueError: an operation has a program of its own, such as jax.checkpoint, or a loop
      whose rounds depend on values.
  """
  with jax.disable_jit():  # calls and loops are Python's
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
  for equation in jaxpr.eqns:
    values = jax.tree.leaves([*equation.params.values()])
    if any(isinstance(v, core.Jaxpr | core.ClosedJaxpr) for v in values):
      raise ValueError(f'{equation.primitive.name}: what is in it would not be counted')
  return jaxpr


def _is_product(equation: core.JaxprEqn) -> bool:
  return equation.primitive.name in ('dot_general', 'conv_general_dilated')


def _flops(equation: core.JaxprEqn) -> int:
  if not _is_product(equation):
    return 0
  return 2 * equation.outvars[0].aval.size * _multiply_adds(equation)


def _multiply_adds(equation: core.JaxprEqn) -> int:
  """Returns the multiply-adds for each number of a product's result."""
  left, right = (variable.aval.shape for variable in equation.invars)
  dimensions = equation.params['dimension_numbers']
  if equation.primitive.name == 'dot_general':
    (contracted, _), _ = dimensions
    return math.prod(left[axis] for axis in contracted)
  return math.prod(right) // right[dimensions.rhs_spec[0]]
