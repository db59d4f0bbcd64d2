"""Devices share the optimizer's state, and each makes its part of an update.

Adam treats every number by itself: a D-th of its state and of the gradient's sum give a
D-th of the update. The devices then collect the parameters from each other. This moves
as many bytes as a sum of the whole gradient does, and each device stores a D-th of
Adam's averages. Source: Xu et al. 2020, "Automatic Cross-Replica Sharding of Weight
Update in Data-Parallel Training"; it is the first stage of ZeRO.
"""

from typing import Any

import jax

AXIS = 'devices'
Tree = Any


class Shares:
  """Which part of each array is which device's.

  D devices share an array along axis 0, if D divides that axis. Any other array, and a
  vector, which is too short to gain by it, is whole on every device.

  Attributes:
    count: D. With 1, everything is whole.
  """

  def __init__(self, count: int):
    self.count = count

  def has(self, x: Any) -> bool:
    """Whether the devices share an array of this shape. `x` has `ndim` and `shape`."""
    return self.count > 1 and x.ndim > 1 and x.shape[0] % self.count == 0

  def axes(self, tree: Tree) -> Tree:
    """The axes over which pmap maps what split() gives: 0, or None for whole arrays."""
    return jax.tree.map(lambda x: 0 if self.has(x) else None, tree)

  def split(self, tree: Tree) -> Tree:
    """Returns shared arrays [n, ...] as [D, n / D, ...], and the others as they are."""
    apart = lambda x: x.reshape(self.count, -1, *x.shape[1:]) if self.has(x) else x
    return jax.tree.map(apart, tree)

  # The methods below are for the mapped function; they take arrays of one device.

  def sum(self, tree: Tree) -> Tree:
    """Returns this device's share [n / D, ...] of the devices' sum of [n, ...]."""
    leaves, structure = jax.tree.flatten(tree)
    whole = [x for x in leaves if not self.has(x)]
    summed = iter(jax.lax.psum(whole, AXIS))  # in one message
    scatter = lambda x: jax.lax.psum_scatter(x, AXIS, tiled=True)
    return structure.unflatten(
      scatter(x) if self.has(x) else next(summed) for x in leaves
    )

  def own(self, tree: Tree) -> Tree:
    """Returns this device's share [n / D, ...] of arrays [n, ...] that it has whole."""
    place = jax.lax.axis_index(AXIS)

    def part(x: jax.Array) -> jax.Array:
      if not self.has(x):
        return x
      each = x.shape[0] // self.count
      return jax.lax.dynamic_slice_in_dim(x, place * each, each)

    return jax.tree.map(part, tree)

  def join(self, tree: Tree, like: Tree) -> Tree:
    """Returns arrays [n, ...], shaped as in `like`, made of all devices' shares."""
    collect = lambda x: jax.lax.all_gather(x, AXIS, tiled=True)
    return jax.tree.map(lambda x, y: collect(x) if self.has(y) else x, tree, like)
