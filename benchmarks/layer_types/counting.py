"""FLOPs, sequential operations and path lengths, counted from a layer's jaxpr.

Operations are matrix products and convolutions, as in model/flops.py: elementwise
operations do not change Table 1's orders.
"""

import functools
import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from transformer_jax.model.layers import Array

Layer = Callable[[jax.Array], jax.Array]  # [n, d] -> [n, d]


def flops(function: Callable, *arguments: Array) -> int:
  """Returns FLOPs, two for each multiply-add; the body of a loop counts once a round.

  (XLA's own count takes the body of a loop once.)
  """
  return _flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def sequential_operations(function: Callable, *arguments: Array) -> int:
  """Returns the length of the longest chain of operations that depend on each other.

  It is the same for a loop and for the same loop unrolled. Rounds that do not need one
  another count once.
  """
  jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
  return max(_depths(jaxpr, [0] * len(jaxpr.invars)))


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


def _inner_jaxpr(equation: core.JaxprEqn) -> core.Jaxpr | None:
  """Returns the jaxpr inside a loop or a call; None for a plain operation."""
  name = equation.primitive.name
  if name in ('while', 'cond'):
    raise ValueError(f'{name}: what it does is not in the program, but in its values')
  for key in ('jaxpr', 'call_jaxpr'):
    if key in equation.params:
      inner = equation.params[key]
      return inner.jaxpr if isinstance(inner, core.ClosedJaxpr) else inner
  return None


def _is_product(equation: core.JaxprEqn) -> bool:
  return equation.primitive.name in ('dot_general', 'conv_general_dilated')


def _flops(jaxpr: core.Jaxpr) -> int:
  total = 0
  for equation in jaxpr.eqns:
    if (inner := _inner_jaxpr(equation)) is not None:
      rounds = equation.params['length'] if equation.primitive.name == 'scan' else 1
      total += rounds * _flops(inner)
    elif _is_product(equation):
      total += 2 * equation.outvars[0].aval.size * _multiply_adds(equation)
  return total


def _multiply_adds(equation: core.JaxprEqn) -> int:
  """Multiply-adds for each number of a product's result."""
  left, right = (variable.aval.shape for variable in equation.invars)
  dimensions = equation.params['dimension_numbers']
  if equation.primitive.name == 'dot_general':
    (contracted, _), _ = dimensions
    return math.prod(left[axis] for axis in contracted)
  return math.prod(right) // right[dimensions.rhs_spec[0]]


def _depths(jaxpr: core.Jaxpr, inputs: list[int]) -> list[int]:
  """Returns the longest chain to each output; `inputs` has those to each input."""
  known = dict(zip(jaxpr.invars, inputs, strict=True))
  # Constants, which `known` does not have, wait for nothing.
  depth = lambda v: 0 if isinstance(v, core.Literal) or v not in known else known[v]
  for equation in jaxpr.eqns:
    before = [depth(variable) for variable in equation.invars]
    inner = _inner_jaxpr(equation)
    if inner is None:
      after = max(before, default=0) + _is_product(equation)
      known |= dict.fromkeys(equation.outvars, after)
    else:
      loop = equation.primitive.name == 'scan'
      after = _loop(equation, inner, before) if loop else _depths(inner, before)
      known |= zip(equation.outvars, after, strict=True)
  return [depth(variable) for variable in jaxpr.outvars]


def _loop(equation: core.JaxprEqn, body: core.Jaxpr, before: list[int]) -> list[int]:
  """_depths() of a loop's rounds, each of which waits for the carry of the last one."""
  constants, carried = equation.params['num_consts'], equation.params['num_carry']
  fixed, items = before[:constants], before[constants + carried :]
  carry = before[constants : constants + carried]
  results = [0] * (len(equation.outvars) - carried)
  for _ in range(equation.params['length']):
    after = _depths(body, fixed + carry + items)
    carry = after[:carried]
    results = list(map(max, results, after[carried:]))
  return carry + results
